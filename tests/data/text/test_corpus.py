import gzip
import json
import os
import threading
from pathlib import Path

import pytest

from biosqueeze.corpora.sources import find_sources, open_source, read_source
from biosqueeze.data.demo import demo_text
from biosqueeze.data.text.corpus import check_field, corpus_files, held_out_files, read_lines, read_text_documents
from biosqueeze.errors import SqueezeError, UsageError
from tests.error_messages import explained


def _assert_error(source, *fragments: str) -> None:
    explained(lambda: list(read_lines(str(source))), *fragments)


def test_text_file_lines_are_stripped_and_blank_ones_skipped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("  One sentence. \n\n \t\nAnother é β.", encoding="utf-8")
    assert list(read_lines(str(path))) == ["One sentence.", "Another é β."]


def test_crlf_and_byte_order_mark_are_removed(tmp_path):
    path = tmp_path / "dos.txt"
    path.write_bytes("\ufeffOne.\r\n\r\nTwo.\r\n".encode())
    assert list(read_lines(str(path))) == ["One.", "Two."]


def test_gzip_reads_as_the_plain_file_does(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"One.\nTwo.\n"))
    assert list(read_lines(str(tmp_path / "a.txt.gz"))) == ["One.", "Two."]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_jsonl_gives_the_named_field_on_one_line(tmp_path, name):
    records = [{"abstract": "One.\nStill one.", "id": 1}, {"abstract": "Two."}]
    data = ("\n\n".join(json.dumps(r) for r in records) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert list(read_lines(str(tmp_path / name), "abstract")) == ["One. Still one.", "Two."]


def test_a_directory_is_read_in_order_and_logs_what_it_skips(tmp_path, capsys):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "sub" / "c.jsonl").write_text('{"text": "c"}')
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a"))
    for ignored in ("README.txt", "index.tsv.gz", "x.json", ".hidden.txt", "LICENSE"):
        (tmp_path / ignored).write_text("never")
    assert list(read_lines(str(tmp_path))) == ["a", "b", "c"]
    log = capsys.readouterr().err
    assert "3 files" in log
    assert "index.tsv.gz" in log and "and 1 more" in log and "hidden" not in log


def test_demo_text_is_the_generated_sample():
    assert list(read_lines("demo:text")) == demo_text()


def test_lines_are_streamed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n" * 5 + b"\xff\n")
    lines = read_lines(str(path))
    assert [next(lines) for _ in range(5)] == ["good"] * 5
    with pytest.raises(SqueezeError):
        next(lines)


def test_missing_path_is_reported_before_anything_is_read(tmp_path):
    with pytest.raises(SqueezeError, match=r"there is no corpus .*demo:text"):
        read_lines(str(tmp_path / "none.txt"))


def test_unknown_demo_is_a_usage_error():
    with pytest.raises(UsageError, match="demo:text"):
        read_lines("demo:prose")


@pytest.mark.parametrize("content", [b"", b"\n \r\n\t\n"])
def test_empty_corpus(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    _assert_error(tmp_path / "a.txt", "a.txt", "is empty")


def test_directory_without_text(tmp_path):
    (tmp_path / "a.tsv").write_text("x")
    _assert_error(tmp_path, str(tmp_path), "no .txt or .jsonl")


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.tsv.gz", "a.parquet"])
def test_other_files_are_refused(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(SqueezeError, match="not a corpus"):
        corpus_files(str(tmp_path / name))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"fine\nna\xefve\n", (":2:", "not UTF-8", "0xef", "column 3", "iconv -f LATIN1 -t UTF-8")),
        ("fine".encode("utf-16"), (":1:", "not UTF-8", "iconv -f UTF-16 -t UTF-8")),
        ("fine".encode("utf-16-le"), (":1:", "NUL", "iconv -f UTF-16 -t UTF-8")),
    ],
)
def test_not_utf8(tmp_path, content, words):
    (tmp_path / "a.txt").write_bytes(content)
    _assert_error(tmp_path / "a.txt", "a.txt", *words)


def test_latin1_inside_gzip_is_named_with_its_line(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"fine\n\xe9\n"))
    _assert_error(tmp_path / "a.txt.gz", "a.txt.gz:2:", "not UTF-8", "gzip -dc", "iconv")


def test_damaged_gzip(tmp_path):
    whole = gzip.compress("\n".join(map(str, range(20000))).encode())
    for name, data in {
        "cut.txt.gz": whole[: len(whole) // 2],
        "false.txt.gz": b"no gzip at all",
        "bits.txt.gz": whole[:900] + bytes(200) + whole[1100:],
    }.items():
        (tmp_path / name).write_bytes(data)
        _assert_error(tmp_path / name, name, "gzip data is damaged", f"gzip -t {tmp_path / name}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": ', ("invalid JSON", "one JSON object on each line")),
        ('["a"]', ("list", '{"text": ...}')),
        ('{"title": "t", "abstract": "a"}', ("no field 'text'", "title, abstract")),
        ('{"text": 7, "body": "b"}', ("of type int, not text", "name another of: body")),
        ('{"text": null}', ("field 'text' is null, not text; leave such records out",)),
    ],
)
def test_bad_jsonl(tmp_path, line, words):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    _assert_error(path, "a.jsonl:2:", *words)


def test_unreadable_file(tmp_path):
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(SqueezeError, match="there is no corpus"):
        read_lines(str(tmp_path / "a.txt"))


def test_a_single_surrogate_is_reported_with_its_line(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "rash"}\n{"text": "rash \\ud83d"}\n')
    with pytest.raises(SqueezeError, match=r"c\.jsonl:2: invalid JSON .*surrogates"):
        list(read_lines(str(path)))


DOCUMENTS = [["The gene.", "A cell."], ["One line."], ["Two", "lines"]]


def _write_documents(path: Path) -> Path:
    path.write_text("\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n", encoding="utf-8")
    return path


def test_documents_lie_between_blank_lines(tmp_path):
    path = _write_documents(tmp_path / "a.txt")
    assert list(read_text_documents(str(path))) == DOCUMENTS
    (tmp_path / "b.txt").write_text("\n\nalone\n")
    (tmp_path / "c.jsonl").write_text('{"text": "x\\ny"}\n\n{"text": "z"}\n')
    (tmp_path / "d.txt").write_text("a document\non each line\n")
    last = [["alone"], ["x y"], ["z"], ["a document"], ["on each line"]]
    assert list(read_text_documents(str(tmp_path))) == DOCUMENTS + last


@pytest.mark.parametrize("around", [("", "\n\n"), ("\n\n\n", ""), ("\n", "\n \n\n")])
def test_blank_lines_around_the_text_divide_nothing(around, tmp_path):
    (tmp_path / "a.txt").write_text(f"{around[0]}One.\nTwo.{around[1]}")
    assert list(read_text_documents(str(tmp_path / "a.txt"))) == [["One."], ["Two."]]


def test_a_single_document_of_a_corpus_stays_one(tmp_path):
    (tmp_path / "corpus.json").write_text("{}")
    shard = tmp_path / "000000-000.txt.gz"
    shard.write_bytes(gzip.compress(b"One.\nTwo.\n\n"))
    assert list(read_text_documents(str(shard))) == [["One.", "Two."]]
    (tmp_path / "own.txt").write_text("One.\nTwo.\n")
    assert list(read_text_documents(str(tmp_path / "own.txt"))) == [["One."], ["Two."]]


def test_blank_lines_count_only_near_the_beginning(tmp_path, monkeypatch):
    path = _write_documents(tmp_path / "a.txt")
    monkeypatch.setattr("biosqueeze.data.text.corpus._BEGINNING", 5)
    assert list(read_text_documents(str(path))) == [[line] for document in DOCUMENTS for line in document]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no named pipes")
def test_documents_from_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = _write_documents(tmp_path / "a.txt").read_text()
    writer = threading.Thread(target=pipe.write_text, args=(content,))
    writer.start()
    assert list(read_text_documents(str(pipe))) == DOCUMENTS
    writer.join()


def test_documents_without_text(tmp_path):
    (tmp_path / "a.txt").write_text("\n \n")
    with pytest.raises(SqueezeError, match="is empty"):
        list(read_text_documents(str(tmp_path / "a.txt")))


def test_the_held_out_shards_of_a_built_corpus(tmp_path):
    (tmp_path / "held-out").mkdir()
    names = {"a.txt": "train", "held-out/a.txt": "held-out"}
    for name in names:
        (tmp_path / name).write_text("text\n")
    (tmp_path / "corpus.json").write_text(json.dumps({"shards": [{"name": n, "split": s} for n, s in names.items()]}))
    assert corpus_files(str(tmp_path)) == (tmp_path / "a.txt",)
    assert held_out_files(str(tmp_path)) == (tmp_path / "held-out" / "a.txt",)
    (tmp_path / "held-out" / "a.txt").unlink()
    with pytest.raises(SqueezeError, match="build the corpus again"):
        held_out_files(str(tmp_path))
    (tmp_path / "corpus.json").unlink()
    assert held_out_files(str(tmp_path)) == held_out_files("demo:text") == ()


def test_a_field_is_of_use_where_a_corpus_has_records(tmp_path):
    plain, records = tmp_path / "a.txt", tmp_path / "b.jsonl.gz"
    plain.write_text("one\n")
    records.write_bytes(gzip.compress(b'{"abstract": "one"}\n'))
    with pytest.raises(UsageError, match=r"--field is for JSON lines \(\.jsonl, \.ndjson\), and no corpus is"):
        check_field("--field", [str(plain), "demo:text"])
    for source in (str(records), str(tmp_path), "hub:owner/name"):
        check_field("--field", ["demo:text", source])


def test_held_out_share_of_a_corpus_in_a_folder_is_not_read(tmp_path, capsys):
    built = tmp_path / "all" / "one"
    names = {"000000-000.txt.gz": "train", "held-out/000000-000.txt.gz": "held-out"}
    for name, split in names.items():
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        (built / name).write_bytes(gzip.compress(f"{split}\n\n".encode()))
    (built / "corpus.json").write_text(json.dumps({"shards": [{"name": n, "split": s} for n, s in names.items()]}))
    (tmp_path / "all" / "other").mkdir()
    (tmp_path / "all" / "other" / "corpus.json").write_text("[]")  # of somebody else
    (tmp_path / "all" / "other" / "a.txt").write_text("more\n")
    assert list(read_lines(str(tmp_path / "all"))) == ["train", "more"]
    assert "one is a built corpus: its held-out documents (1 file) are not read" in " ".join(
        capsys.readouterr().err.split()
    )
    (built / "000000-000.txt.gz").unlink()
    with pytest.raises(SqueezeError, match="build the corpus again"):
        read_lines(str(tmp_path / "all"))


@pytest.mark.parametrize("content", ['{"name": "mine"}', "[]", "{"])
def test_corpus_json_of_another_program(content, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "corpus.json").write_text(content)
    (tmp_path / "below" / "a.txt").write_text("text\n")
    for directory in (tmp_path, tmp_path / "below"):
        assert list(read_lines(str(directory))) == ["text"]
        assert held_out_files(str(directory)) == ()
    (tmp_path / "below" / "corpus.json").write_text('{"shards": [{"name": "000000-000.txt.gz", "split": "train"}]}')
    for directory in (tmp_path, tmp_path / "below"):
        with pytest.raises(SqueezeError, match=r"below lacks .*000000-000\.txt\.gz; build the corpus again"):
            corpus_files(str(directory))


def test_lists_of_files_are_no_text(tmp_path):
    for name in ("oa_file_list.txt", "oa.2024-06-17.filelist.txt", "profilelist.txt"):
        (tmp_path / name).write_text("text\n")
    assert corpus_files(str(tmp_path)) == (tmp_path / "profilelist.txt",)


def test_links_to_directories_are_named(tmp_path, capsys):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "b.txt").write_text("two\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").write_text("one\n")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    assert list(read_lines(str(tmp_path / "here"))) == ["one"]
    said = " ".join(capsys.readouterr().err.split())
    assert f"not followed: {tmp_path / 'here' / 'link'}; name such a directory itself" in said
    assert list(read_lines(str(tmp_path / "here" / "link"))) == ["two"]


def test_files_that_are_not_read_are_named(tmp_path, capsys):
    for name in ("a.txt", "b.jsonl", "c.csv", "d.md", "e.pdf", "f.zip", "README.txt"):
        (tmp_path / name).write_text("x\n")
    assert [path.name for path in corpus_files(str(tmp_path))] == ["a.txt", "b.jsonl"]
    said = " ".join(capsys.readouterr().err.split())
    assert f"corpus {tmp_path}: 2 files read; skipped README.txt, c.csv, d.md and 2 more" in said


def test_a_vocabulary_below_the_text_is_not_read(tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("a text of this name\n")
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    for name in ("vocab.txt", "merges.txt", "tokenizer.json"):
        (folder / name).write_text("{}")
    assert list(read_lines(str(tmp_path))) == ["a text of this name"]
    assert "1 file read; skipped merges.txt, tokenizer.json, vocab.txt" in capsys.readouterr().err


def test_many_files_of_a_directory_are_not_compared_in_pairs(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.txt" for number in range(1000)]
    for path in paths:
        path.touch()
    compared = []
    monkeypatch.setattr(type(tmp_path), "__eq__", lambda *pair: compared.append(pair) or NotImplemented)
    assert len(corpus_files(str(tmp_path))) == 1000
    assert len(compared) < 10_000


@pytest.mark.parametrize("name", ["train.txt", "train.conll.gz", "."])
@pytest.mark.parametrize("tags", ["O B-Disease I-Disease O O O", "O U-Gene B-Gene L-Gene O S-Gene"])
def test_words_with_tags_are_no_text(tmp_path, name, tags):
    lines = [f"word\tNN {tag}" for tag in tags.split()]
    content = "\n".join(["-DOCSTART- O", "", *lines[:3], "", "# sent_id = 2", *lines[3:]]).encode()
    path = tmp_path / ("train.txt" if name == "." else name)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    with pytest.raises(SqueezeError, match="a word and its tag on each line, so it is labelled data and no text"):
        corpus_files(str(tmp_path / name))
    with pytest.raises(SqueezeError, match="labelled data and no text"):
        find_sources((str(path),))


@pytest.mark.parametrize("beginning", ["<!DOCTYPE html>\n<html>", '\n<html lang="en">'])
def test_a_web_page_is_no_text(tmp_path, beginning):
    path = tmp_path / "text.txt"
    path.write_text(f"{beginning}\n<title>404 Not Found</title>\n", encoding="utf-8")
    for find in (corpus_files, lambda source: find_sources((source,))):
        with pytest.raises(SqueezeError, match=r"text\.txt is a web page \(HTML\) and no text, perhaps of a failed"):
            find(str(path))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"id": 1, "text": "A study."}', r"it is JSON and no text; .* end in \.jsonl"),
        ("1|t|Zinc in gout", "it is PubTator and no text"),
        ("PMID- 1\nTI  - Zinc", "in PubMed's MEDLINE format"),
    ],
)
def test_other_formats_are_no_text(tmp_path, content, problem):
    path = tmp_path / "text.txt"
    path.write_text(f"\n{content}\n", encoding="utf-8")
    with pytest.raises(SqueezeError, match=rf"text\.txt:2: .*{problem}"):
        list(read_lines(str(path)))
    (source,) = find_sources((str(path),))
    with open_source(source, lambda _: None) as file, pytest.raises(SqueezeError, match=problem):
        list(read_source(file, path, "text"))


def test_sentences_that_end_like_tags_are_text(tmp_path):
    sentences = [*["Blood of group O"] * 9, "Blood of group A", "A line that is not whole " * 999]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(sentences), encoding="utf-8")
    assert corpus_files(str(path)) == (path,)
    assert corpus_files(str(tmp_path)) == (path,)


def test_the_word_that_is_cut_off_does_not_count(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("word\tO\n" * 600 + "long" * 1000 + "\tO\n", encoding="utf-8")
    with pytest.raises(SqueezeError, match="labelled data and no text"):
        corpus_files(str(path))
