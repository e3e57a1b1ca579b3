import pytest

from biosqueeze.data.splits import check_splits, find_split, folds, open_directory, require_split
from biosqueeze.errors import SqueezeError, UsageError

TABLES = (".tsv", ".jsonl")


@pytest.mark.parametrize("name", ["dev.tsv", "devel.tsv", "valid.tsv", "validation.jsonl", "devel.jsonl.gz"])
def test_names_that_the_dev_split_may_have(tmp_path, name):
    (tmp_path / name).touch()
    assert require_split(tmp_path, "dev", TABLES) == tmp_path / name
    assert find_split(tmp_path, "test", TABLES) is None


def test_of_two_files_the_first_suffix_wins_and_it_is_said(tmp_path, capsys):
    for name in ("train.jsonl", "train.tsv", "train.tsv.gz"):
        (tmp_path / name).touch()
    assert find_split(tmp_path, "train", TABLES) == tmp_path / "train.tsv"
    assert "train.tsv.gz, train.jsonl could be it too" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((), ("looked for dev, devel, valid, validation with .tsv, .jsonl", "it holds nothing")),
        (("dev_0.tsv", "dev_1.tsv"), ("there is dev_0.tsv, dev_1.tsv", "rename it")),
        (("Devel.TSV",), ("there is Devel.TSV",)),
        (("blurb/devel.tsv",), ("there is blurb/devel.tsv", "name its directory")),
        (("1/train.tsv", "2/train.tsv"), ("2 folds", "name one of them")),
        (("a", "b", "c", "d", "e", "f"), ("it holds a, b, c, d, e and 1 more",)),
    ],
)
def test_a_missing_split_says_what_is_there(tmp_path, there, words):
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(SqueezeError) as caught:
        require_split(tmp_path, "dev", TABLES)
    for word in (f"{tmp_path} has no dev split", *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folds_are_ordered_by_number_and_hold_splits(tmp_path):
    for number in ("10", "2", "1"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "train.tsv.gz").touch()
    for name in ("3", "old"):
        (tmp_path / name).mkdir()
    (tmp_path / "old" / "train.tsv").touch()
    (tmp_path / "4").touch()
    assert [fold.name for fold in folds(tmp_path)] == ["1", "2", "10"]
    assert folds(tmp_path / "1") == folds(tmp_path / "gone") == ()


def test_what_is_no_directory(tmp_path):
    (tmp_path / "train.tsv").touch()
    with pytest.raises(SqueezeError, match=f"is a file.*name the directory: {tmp_path}"):
        open_directory(str(tmp_path / "train.tsv"))
    with pytest.raises(SqueezeError, match="there is no directory"):
        open_directory(str(tmp_path / "gone"))


def test_an_unknown_split_names_the_nearest():
    with pytest.raises(UsageError, match=r"no split 'tets'.*Did you mean 'test'"):
        check_splits(["train", "tets"])
