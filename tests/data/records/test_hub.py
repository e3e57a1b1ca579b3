import json

import pytest

from biosqueeze.data.records.tables import read_records, splits_of
from biosqueeze.errors import SqueezeError, UsageError

datasets = pytest.importorskip("datasets")

ROWS = {
    "text": ["one", "two", "three"],
    "label": [1, 0, -1],
    "marks": [[0, 1], [], [1]],
    "spans": [[{"type": 1, "at": [0, 3]}], [], None],
    "score": [0.5, 1.0, float("nan")],
}


@pytest.fixture
def rows():
    classes = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": classes,
            "marks": datasets.Sequence(classes),
            "spans": [{"type": classes, "at": datasets.Sequence(datasets.Value("int64"))}],
            "score": datasets.Value("float64"),
        }
    )
    return datasets.Dataset.from_dict(ROWS, features=features)


@pytest.fixture
def saved(tmp_path, rows):
    datasets.DatasetDict({"train": rows, "validation": rows.select([0])}).save_to_disk(str(tmp_path / "saved"))
    return str(tmp_path / "saved")


def test_classes_become_names_at_any_depth(saved):
    records = read_records(saved, ("train", "dev"))
    assert [record.values["label"] for record in records["train"]] == ["yes", "no", None]
    assert [record.values["marks"] for record in records["train"]] == [["no", "yes"], [], ["yes"]]
    assert [record.values["spans"] for record in records["train"]] == [[{"type": "yes", "at": [0, 3]}], [], None]
    assert [record.values["score"] for record in records["train"]] == [0.5, 1.0, None]
    assert [record.where for record in records["dev"]] == [f"{saved}:validation:1"]


def test_splits_and_a_missing_one(saved):
    assert splits_of(saved) == ("train", "dev")
    with pytest.raises(SqueezeError, match="no test split: looked for test, testing; it has train, validation"):
        read_records(saved, ("test",))


def test_an_empty_split(tmp_path, rows, saved, monkeypatch):
    datasets.DatasetDict({"train": rows.select([])}).save_to_disk(str(tmp_path / "none"))
    with pytest.raises(SqueezeError, match="damaged, or a split of it is empty"):
        read_records(str(tmp_path / "none"), ("train",))
    loaded = datasets.DatasetDict({"train": rows.select([])})
    monkeypatch.setattr("datasets.load_from_disk", lambda path: loaded)
    with pytest.raises(SqueezeError, match="is empty: its train split"):
        read_records(saved, ("train",))


def test_a_saved_dataset_without_splits(tmp_path, rows):
    rows.save_to_disk(str(tmp_path / "one"))
    with pytest.raises(SqueezeError, match="without splits; save a DatasetDict"):
        read_records(str(tmp_path / "one"), ("train",))


def test_a_damaged_data_set(saved, tmp_path):
    (tmp_path / "saved" / "train" / "state.json").unlink()
    with pytest.raises(SqueezeError, match="datasets cannot read") as caught:
        read_records(saved, ("train",))
    assert "\n" not in str(caught.value)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder laid out like a data set on the Hub; `load_dataset` takes either."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    directory = tmp_path / "pairs"
    for split, count in (("train", 2), ("test", 1)):
        (directory / "data").mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"text": f"{split} {n}", "label": n}) for n in range(count)]
        (directory / "data" / f"{split}.jsonl").write_text("\n".join(lines))
    return f"hub:{directory}"


def test_a_data_set_by_name(repository, capsys):
    records = read_records(repository, ("train", "test"))
    assert [dict(record.values) for record in records["train"]] == [
        {"text": "train 0", "label": 0},
        {"text": "train 1", "label": 1},
    ]
    assert records["test"][0].where == f"{repository}:test:1"
    assert "train 2 records (text, label); test 1 record (" in " ".join(capsys.readouterr().err.split())
    assert splits_of(repository) == ("train", "test")


def test_an_unknown_configuration(repository):
    with pytest.raises(SqueezeError, match=r"datasets cannot load .*hub:NAME:CONFIG") as caught:
        read_records(f"{repository}:other", ("train",))
    assert "\n" not in str(caught.value)


def test_an_unknown_name():
    with pytest.raises(SqueezeError, match="datasets cannot load hub:no-such/data-set"):
        read_records("hub:no-such/data-set", ("train",))
    with pytest.raises(UsageError, match="names no data set"):
        read_records("hub:", ("train",))


def test_a_missing_package_names_the_pip_command(saved, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(SqueezeError, match=r'pip install "biosqueeze\[hub\]"'):
        read_records(saved, ("train",))
