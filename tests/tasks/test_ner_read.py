import gzip

import pytest

from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.tasks import Formulation, open_task
from biosqueeze.tasks.readers.tagged import count_entities
from tests.error_messages import explained
from tests.tasks.tagging import perfect

KIND = open_task("ner")
TRAIN = "BRCA1\tB-Gene\nin\tO\nbreast\tB-Disease\ncancer\tI-Disease\n\nNone\tO\n.\tO\n"


def _write(directory, **files: str | bytes):
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (directory / f"{name}.tsv").write_bytes(data)
    return str(directory)


def _assert_error(source: str, *fragments: str, splits=("train",)) -> None:
    explained(lambda: KIND.read(source, splits), *fragments)


def test_reads_and_logs_splits_labels_and_scheme(tmp_path, capsys):
    dataset = KIND.read(
        _write(tmp_path, train=TRAIN, devel="None\tO\n\n", test="TP53\tB-Gene\n"), ("train", "dev", "test")
    )
    assert dataset.labels == ("O", "B-Disease", "B-Gene", "I-Disease")
    assert dataset.scheme == "BIO"
    first, second = dataset.splits["train"]
    assert first.words == ("BRCA1", "in", "breast", "cancer")
    assert first.gold == first.tags == ("B-Gene", "O", "B-Disease", "I-Disease")
    assert second.words == ("None", ".")
    log = " ".join(capsys.readouterr().err.split())
    assert "(BIO): train 2 sentences, 6 words, 2 entities; dev 1 sentence, 1 word, 0 entities" in log


def test_crlf_byte_order_mark_and_document_lines(tmp_path):
    plain = KIND.read(_write(tmp_path, train=TRAIN), ("train",))
    odd = "\ufeff-DOCSTART- (77)\n\n\n" + TRAIN.replace("None", "-DOCSTART-\tO\n\nNone") + "\n \t\n\n"
    (tmp_path / "odd").mkdir()
    assert KIND.read(_write(tmp_path / "odd", train=odd.replace("\n", "\r\n")), ("train",)) == plain


@pytest.mark.parametrize("comment", ["# newdoc id = 7\n# text = Vitamin B", "###MEDLINE:95369245\n"])
@pytest.mark.parametrize("separator", ["\t", " "])
def test_comments_are_no_words(tmp_path, comment, separator):
    plain = KIND.read(_write(tmp_path, train=TRAIN), ("train",))
    (tmp_path / "odd").mkdir()
    odd = f"{comment}\n{TRAIN}\n{comment}\n#\tO\n#1\tO\n".replace("\t", separator)
    *sentences, last = KIND.read(_write(tmp_path / "odd", train=odd), ("train",)).splits["train"]
    assert tuple(sentences) == plain.splits["train"]
    assert last.words == ("#", "#1")


@pytest.mark.parametrize("name", ["dev.tsv", "devel.txt", "valid.conll", "validation.iob", "dev.iob2", "dev.bio.gz"])
def test_names_of_the_dev_file(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(TRAIN.encode()) if name.endswith(".gz") else TRAIN.encode())
    assert len(KIND.read(str(tmp_path), ("dev",)).splits["dev"]) == 2


def test_white_space_columns_with_the_tag_last(tmp_path):
    _write(tmp_path, train="Xylitol NN O I-INT\nfor  NN O O\n\nand CC O O\nsugar NN O I-OUT\nfree NN O I-INT\n")
    dataset = KIND.read(str(tmp_path), ("train",))
    assert dataset.scheme == "IO"
    assert dataset.labels == ("O", "I-INT", "I-OUT")
    assert dataset.splits["train"][1].words == ("and", "sugar", "free")


def test_a_tab_file_keeps_spaces_inside_a_word(tmp_path):
    dataset = KIND.read(_write(tmp_path, train="a b\tB-X\nc\u00a0d\tI-X\n"), ("train",))
    assert dataset.splits["train"][0].words == ("a b", "c\u00a0d")


def test_tags_without_a_type(tmp_path):
    dataset = KIND.read(_write(tmp_path, train="a\tB\nb\tI\nc\tO\nd\tB\n"), ("train",))
    assert dataset.labels == ("O", "B", "I")
    assert count_entities(dataset.splits["train"][0].tags) == 2
    (tmp_path / "bad").mkdir()
    _assert_error(_write(tmp_path / "bad", train="a\tB\nc\tO\nd\tI\n"), "train.tsv:3:", "write B here")


def test_without_train_the_labels_are_those_of_the_split(tmp_path):
    assert KIND.read(_write(tmp_path, test="a\tB-X\n"), ("test",)).labels == ("O", "B-X")


def test_demo():
    dataset = KIND.read("demo:ner", ("test",))
    assert dataset.labels == ("O", "B-Disease", "B-Drug", "B-Gene", "I-Disease", "I-Drug", "I-Gene")
    assert len(dataset.splits["test"]) == 400
    with pytest.raises(UsageError, match="demo:ner"):
        KIND.read("demo:nre", ("test",))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("alone", ("no tag beside 'alone'", "2 columns")),
        ("a\tb\tO", ("3 columns at 'a'", "2 columns were expected")),
        ("a O", ("no tag beside 'a O'",)),
        ("\tO", ("no word before the tag 'O'",)),
        ("a\tX-Gene", ("'X-Gene'", "B-TYPE", "--column tag=NUMBER")),
        ("a\tGene", ("'Gene'", "B-TYPE")),
        ("a\tB-", ("'B-'",)),
        ("a\t", ("the tag ''",)),
        ("a\tI-Gene", ("'I-Gene' at 'a' follows 'O'", "write B-Gene here")),
    ],
)
def test_malformed_rows_are_reported_with_file_and_line(tmp_path, row, words):
    _assert_error(_write(tmp_path, train=f"x\tB-Gene\ny\tO\n{row}\n"), f"{tmp_path / 'train.tsv'}:3:", *words)


@pytest.mark.parametrize("before", ["", "x\tO\n", "x\tB-Gene\n\n", "x\tB-Disease\n", "x\tB-Disease\ny\tI-Disease\n"])
def test_an_inside_tag_without_its_beginning(tmp_path, before):
    text = "q\tB-Gene\nr\tI-Gene\n\n" + before + "z\tI-Gene\n"
    _assert_error(_write(tmp_path, train=text), f":{text.count(chr(10))}:", "write B-Gene here")


def test_an_inside_tag_without_beginning_in_test(tmp_path):
    _write(tmp_path, train="a\tB-X\nb\tI-X\n", test="a\tO\nb\tI-X\n")
    _assert_error(str(tmp_path), "test.tsv:2:", "write B-X here", splits=("train", "test"))


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_label_that_train_lacks(tmp_path, split):
    _write(tmp_path, train=TRAIN, **{split: "a\tO\n\nb\tB-Drug\n"})
    places = (f"{split}.tsv:3:", "'B-Drug' is none of train's (O, B-Disease", "others as O: --types Disease")
    _assert_error(str(tmp_path), *places, splits=("train", split))
    kept = open_task("ner", Formulation(types=("Disease",))).read(str(tmp_path), ("train", split))
    assert kept.splits[split][1].tags == ("O",)


@pytest.mark.parametrize("mark", ["-DOCSTART- O", "###MEDLINE:91073263", "# newdoc id = 7"])
def test_documents_of_columns(tmp_path, mark):
    for count, documents in ((9, 1), (10, 10)):  # few marks may be of parts of a corpus
        sentences = KIND.read(_write(tmp_path, train=f"{mark}\n\n{TRAIN}\n" * count), ("train",)).splits["train"]
        assert len({sentence.document for sentence in sentences}) == documents


def test_missing_files_and_directories(tmp_path):
    _assert_error(str(tmp_path / "none"), "there is no directory", "demo:ner")
    _write(tmp_path, train=TRAIN)
    _assert_error(str(tmp_path), "no dev split", "dev, devel, valid, validation", ".conll", splits=("train", "dev"))


def test_unknown_split(tmp_path):
    with pytest.raises(UsageError, match=r"no split 'tets'.*Did you mean 'test'"):
        KIND.read("demo:ner", ("tets",))


@pytest.mark.parametrize("content", ["", "\n \n", "-DOCSTART-\n\n"])
def test_an_empty_split(tmp_path, content):
    _assert_error(_write(tmp_path, train=content), "train.tsv is empty")


def test_data_without_entities(tmp_path):
    _assert_error(_write(tmp_path, train="a\tO\n"), "no tag but O")


def test_a_longer_entity_of_dev_completes_the_labels(tmp_path):
    long = "a\tB-Gene\nb\tI-Gene\n"
    dataset = KIND.read(_write(tmp_path, train="a\tB-Gene\nb\tO\n", dev=long), ("train", "dev"))
    assert dataset.labels == ("O", "B-Gene", "I-Gene")
    strange = _write(tmp_path, train="a\tB-Gene\nb\tO\n", dev=long.replace("Gene", "Drug"))
    with pytest.raises(SqueezeError, match="'B-Drug' is none of train's"):
        KIND.read(strange, ("train", "dev"))


def test_a_test_split_without_entities_is_no_error(tmp_path):
    dataset = KIND.read(_write(tmp_path, train=TRAIN, test="a\tO\n"), ("train", "test"))
    assert len(dataset.splits["test"]) == 1


def test_not_utf8(tmp_path):
    _assert_error(_write(tmp_path, train=b"a\tB-X\nna\xefve\tO\n"), "train.tsv:2:", "not UTF-8", "iconv")


# The counts in the README of the benchmark: sentences, tokens, entities.
NCBI = {"train": (5424, 135701, 5134), "dev": (923, 23969, 787), "test": (940, 24497, 960)}


@pytest.mark.real
def test_ncbi_disease_counts_as_published(real_data):
    dataset = KIND.read(str(real_data / "ncbi-disease"), tuple(NCBI))
    counts = {
        split: (len(s), sum(len(x.words) for x in s), sum(count_entities(x.tags) for x in s))
        for split, s in dataset.splits.items()
    }
    assert counts == NCBI
    assert dataset.labels == ("O", "B-Disease", "I-Disease")


@pytest.mark.real
@pytest.mark.parametrize("max_length", [16, 128])
def test_ncbi_disease_windows_lose_nothing(real_data, pico_bert, max_length):
    from transformers import AutoTokenizer

    dataset = KIND.read(str(real_data / "ncbi-disease"), ("test",))
    sentences = dataset.splits["test"]
    windows = KIND.encode(sentences, dataset.labels, AutoTokenizer.from_pretrained(pico_bert), max_length)
    predicted = KIND.decode(windows, perfect(windows, 3), sentences, dataset.labels)
    scores = KIND.score([s.gold for s in sentences], predicted)
    assert (scores["f1"], scores["support"]) == (1.0, 960)


def test_types_are_merged_as_in_blurb(tmp_path):
    source = _write(tmp_path, train=TRAIN, dev="a\tB-Gene\nb\tB-Disease\nc\tI-Disease\nd\tO\n")
    merged = open_task("ner", Formulation(merge_types=True)).read(source, ("train", "dev"))
    assert merged.labels == ("O", "B", "I")
    assert merged.splits["dev"][0].gold == ("B", "B", "I", "O")
    only = open_task("ner", Formulation(merge_types=True, types=("Disease",))).read(source, ("train", "dev"))
    assert only.splits["dev"][0].gold == ("O", "B", "I", "O")


def test_merged_neighbours_of_two_types_stay_two(tmp_path):
    source = _write(tmp_path, train="a\tI-Gene\nb\tI-Disease\nc\tO\n")
    merged = open_task("ner", Formulation(merge_types=True)).read(source, ("train",))
    assert merged.splits["train"][0].gold == ("B", "B", "O")
