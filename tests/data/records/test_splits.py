import pytest

from biosqueeze.data.records.splits import (
    check_splits,
    find_split,
    folds,
    has_split_word,
    open_directory,
    require_split,
    splits_named,
    splits_within,
)
from biosqueeze.errors import SqueezeError, UsageError

TABLES = (".tsv", ".jsonl")


@pytest.mark.parametrize(
    "name", ["dev.tsv", "devel.tsv", "valid.tsv", "validation.jsonl", "devel.jsonl.gz", "development.tsv"]
)
def test_spellings_of_the_dev_split(tmp_path, name):
    (tmp_path / name).touch()
    assert require_split(tmp_path, "dev", TABLES) == tmp_path / name
    assert find_split(tmp_path, "test", TABLES) is None


def test_several_matches_warn_and_the_first_suffix_wins(tmp_path, capsys):
    for name in ("train.jsonl", "train.tsv", "train.tsv.gz"):
        (tmp_path / name).touch()
    assert find_split(tmp_path, "train", TABLES) == tmp_path / "train.tsv"
    assert "train.tsv.gz, train.jsonl would match too" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((), ("looked for dev, devel, valid, validation, val, development with .tsv, .jsonl", "it holds nothing")),
        (("dev_0.tsv", "dev_1.tsv"), ("there is dev_0.tsv, dev_1.tsv", "rename or convert it")),
        (("blurb/devel.tsv",), ("there is blurb/devel.tsv", "name its directory")),
        (("1/train.tsv", "2/train.tsv"), ("2 folds", "name one of them")),
        (("a", "b", "c", "d", "e", "f"), ("it holds a, b, c, d, e and 1 more",)),
    ],
)
def test_a_missing_split_lists_the_existing_files(tmp_path, there, words):
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(SqueezeError) as caught:
        require_split(tmp_path, "dev", TABLES)
    for word in (f"{tmp_path} has no dev split", *words):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_way_out_of_a_missing_test_split(tmp_path):
    (tmp_path / "dev.tsv").touch()
    with pytest.raises(SqueezeError, match="or give --split dev where"):
        require_split(tmp_path, "test", TABLES)


def test_a_file_alone_in_the_folder_of_its_split(tmp_path):
    for name in ("Training/corpus.tsv", "Training/README.txt", "test/a.tsv", "test/b.tsv", "dev/a.tsv", "dev/a.ann"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_split(tmp_path, "train", TABLES) == tmp_path / "Training" / "corpus.tsv"
    assert find_split(tmp_path, "test", TABLES) is find_split(tmp_path, "dev", TABLES) is None
    assert splits_named(tmp_path) == ("train", "dev")


@pytest.mark.parametrize(
    ("others", "are_alike"),
    [
        ((), True),
        (("mtl_labels.tsv", "README_train.txt", "train.md"), True),
        (("Mtl_Dev.tsv",), True),
        (("mtl_train.jsonl",), False),
        (("dev_predictions.tsv",), False),
        (("mtl_train_dev.tsv",), False),
        (("train.tsv",), False),
        (("test/a.tsv",), False),
    ],
)
def test_names_that_differ_in_the_split_alone(tmp_path, others, are_alike):
    for name in ("mtl_train.tsv", "mtl_test.tsv", *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert (find_split(tmp_path, "train", TABLES) == tmp_path / "mtl_train.tsv") is are_alike


@pytest.mark.parametrize("name", ["train_0.tsv", "test-00001-of-00002.tsv"])
def test_a_numbered_part_is_no_split(tmp_path, name):
    (tmp_path / name).touch()
    assert find_split(tmp_path, name[:5].strip("_-"), TABLES) is None


def test_folds_are_ordered_by_number(tmp_path):
    for number in ("10", "2", "1"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "train.tsv.gz").touch()
    for name in ("3", "old", "11", "11/train"):  # train may be a directory of documents
        (tmp_path / name).mkdir()
    (tmp_path / "old" / "train.tsv").touch()
    (tmp_path / "4").touch()
    assert [fold.name for fold in folds(tmp_path)] == ["1", "2", "10", "11"]
    assert folds(tmp_path / "1") == folds(tmp_path / "gone") == ()


def test_a_file_or_nothing_instead_of_a_directory(tmp_path):
    (tmp_path / "train.tsv").touch()
    with pytest.raises(SqueezeError, match=f"is a file.*name the directory: {tmp_path}"):
        open_directory(str(tmp_path / "train.tsv"))
    with pytest.raises(SqueezeError, match="there is no directory"):
        open_directory(str(tmp_path / "gone"))


def test_an_unknown_split_suggests_the_nearest():
    with pytest.raises(UsageError, match=r"no split 'tets'.*Did you mean 'test'"):
        check_splits(["train", "tets"])


@pytest.mark.parametrize(
    ("name", "as_words", "within"),
    [
        ("train-v1.1.json", ["train"], ["train"]),
        ("BioASQ-test-factoid-7b-1.json", ["test"], ["test"]),
        ("mli_dev_v1.jsonl", ["dev"], ["dev"]),
        ("validation.tsv", ["dev"], ["dev"]),
        ("train_dev.tsv", ["train", "dev"], ["train", "dev"]),
        ("NCBItrainset_corpus.txt", [], ["train"]),
        ("CDR_DevelopmentSet.PubTator.txt", ["dev"], ["dev"]),
        ("latest.tsv", [], ["test"]),
        ("ori_pqal.json", [], []),
    ],
)
def test_splits_in_file_names(tmp_path, name, as_words, within):
    assert [split for split in ("train", "dev", "test") if has_split_word(name, split)] == as_words
    assert list(splits_within(name)) == within
    (tmp_path / name).touch()
    assert list(splits_named(tmp_path)) == (as_words or within)


def test_split_words_go_before_splits_within_words(tmp_path):
    for name in ("latest.tsv", "train.tsv"):
        (tmp_path / name).touch()
    assert splits_named(tmp_path) == ("train",)
    assert splits_named(tmp_path / "train.tsv") == splits_named(tmp_path / "gone") == ()
