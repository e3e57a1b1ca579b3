import pytest

from biosqueeze.data.records.sample import take_sample
from biosqueeze.data.records.tables import read_records, splits_of
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import open_task
from tests import pico

datasets = pytest.importorskip("datasets")

TAGS = ["O", "B-Gene", "I-Gene"]


def sentences(count: int, tags_of_all=(0, 1, 0)):
    tags = datasets.Sequence(datasets.ClassLabel(names=TAGS))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    rows = {"tokens": [["gene", f"g{n}", "rises"] for n in range(count)], "ner_tags": [list(tags_of_all)] * count}
    return datasets.Dataset.from_dict(rows, features=features)


@pytest.fixture
def write(tmp_path):
    """`write("data/train.parquet", 3)` writes sentences below `tmp_path`."""

    def write(name: str, count: int):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sentences(count).to_parquet(path)
        return path

    return write


@pytest.mark.parametrize(
    ("train", "dev"),
    [
        (["train.parquet"], ["dev.parquet"]),
        (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"], ["validation-00000-of-00001.parquet"]),
        (["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"], ["data/valid.parquet"]),
        (
            [f"data/train-0000{number}-of-00002-36c3d1a2b4c5d6e{number}.parquet" for number in (0, 1)],
            ["data/validation-00000-of-00001-0123456789abcdef.parquet"],
        ),
        (["train/0000.parquet", "train/0001.parquet"], ["validation/0000.parquet"]),
    ],
)
def test_layouts_of_the_hub(train, dev, write, tmp_path) -> None:
    for name in train:
        write(name, 3)
    write(dev[0], 2)
    source = str(tmp_path)
    assert splits_of(source) == ("train", "dev")
    records = read_records(source, ("train", "dev"))
    assert len(records["train"]) == 3 * len(train)
    assert len(records["dev"]) == 2
    assert records["train"][0].values == {"tokens": ["gene", "g0", "rises"], "ner_tags": ["O", "B-Gene", "O"]}
    assert len(take_sample(source).saved) == 3 * len(train)


def test_files_that_are_read_are_logged(write, tmp_path, capsys) -> None:
    for name in ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/validation.parquet"):
        write(name, 1)
    read_records(str(tmp_path), ("train",))
    said = capsys.readouterr().err
    assert "train is data/train-00000-of-00002.parquet and 1 more" in said
    assert "validation.parquet" not in said


@pytest.mark.parametrize(
    "other", ["train.parquet", "data/train-00001-of-00002.parquet", "dev/0.parquet", "dataset_info.json"]
)
def test_files_named_for_splits_win(other, write, tmp_path, capsys) -> None:
    if other.endswith(".json"):
        (tmp_path / other).write_text("{}")
    else:
        write(other, 3)
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\nA {split} text.\tx\n")
    source = str(tmp_path)
    assert splits_of(source) == ("train", "dev")
    assert read_records(source, ("dev",), header=("text",))["dev"][0].values == {"text": "A valid text.", "label": "x"}
    assert take_sample(source).path == tmp_path / "train.tsv"
    said = capsys.readouterr().err
    assert said.count(f"such as train.tsv, are read; not read: {other}") == 1


@pytest.mark.parametrize("fingerprint", ["", "-36c3d1a2b4c5d6e7"])
def test_a_missing_shard_is_named(fingerprint, write, tmp_path) -> None:
    write(f"train-00000-of-00003{fingerprint}.parquet", 1)
    write(f"train-00002-of-00003{fingerprint}.parquet", 1)
    with pytest.raises(SqueezeError, match="has 2 of the 3 Parquet files of its train split"):
        read_records(str(tmp_path), ("train",))


def test_two_sets_of_files_are_refused(write, tmp_path) -> None:
    write("train.parquet", 1)
    write("train-00000-of-00001.parquet", 1)
    with pytest.raises(SqueezeError, match=r"two sets of Parquet files of its train split.*remove one"):
        splits_of(str(tmp_path))


def test_a_damaged_file_is_named(write, tmp_path) -> None:
    path = write("train.parquet", 5)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SqueezeError, match=r"train\.parquet cannot be read as Parquet") as caught:
        read_records(str(tmp_path), ("train",))
    assert "\n" not in str(caught.value)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(SqueezeError, match=r"train\.parquet is a Git LFS pointer and not the data; run `git lfs pull`"):
        read_records(str(tmp_path), ("train",))


def test_other_columns_in_a_shard(write, tmp_path) -> None:
    write("train/0.parquet", 1)
    datasets.Dataset.from_dict({"text": ["a"]}).to_parquet(tmp_path / "train" / "1.parquet")
    with pytest.raises(SqueezeError, match="differ in their columns"):
        read_records(str(tmp_path), ("train",))


def test_tagged_sentences_train_a_tagger(write, tmp_path, shell) -> None:
    for split in ("train", "validation", "test"):
        write(f"data/{split}-00000-of-00001.parquet", 8)
    model = pico.save("bert", tmp_path / "model")
    ran = shell("finetune", model, "--data", tmp_path, "--steps", "2", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "Gene" in (tmp_path / "out" / "config.json").read_text()


@pytest.mark.parametrize(
    "hidden", [sentences(3, (-1, -1, -1)), sentences(3, ()), sentences(3).remove_columns("ner_tags")]
)
def test_a_saved_test_split_without_tags_is_left_out(hidden, tmp_path, capsys) -> None:
    source = str(tmp_path / "saved")
    datasets.DatasetDict({"train": sentences(3), "validation": sentences(2), "test": hidden}).save_to_disk(source)
    assert set(open_task("ner").read(source, ("train", "dev")).splits) == {"train", "dev"}
    assert "test has no tags and is not compared with train and dev" in capsys.readouterr().err
    with pytest.raises(SqueezeError):
        open_task("ner").read(source, ("test",))


def test_a_vocabulary_is_cut_to_labelled_sentences(write, tmp_path, shell) -> None:
    write("data/train.parquet", 8)
    model = pico.save("bert", tmp_path / "model", head="token-classification")
    ran = shell("shrink", model, "--vocab-keep", tmp_path, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert f"{tmp_path} is read as ner" in " ".join(ran.err.split())
