import gzip
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biosqueeze.data.text import prepared
from biosqueeze.data.text.blocks import Frame
from biosqueeze.data.text.prepared import DocumentText, prepare_corpus
from biosqueeze.data.text.prepared_corpus import Packed, open_corpus
from biosqueeze.errors import SqueezeError
from tests import pico

pytestmark = pytest.mark.usefixtures("own_cache")

FAMILIES = ("bert", "roberta")


@pytest.fixture
def corpus(tmp_path) -> Path:
    return pico.write_sentences(tmp_path / "corpus.txt", 300)


def _prepare(*sources: Path, length: int = 64, pack: bool = True, tokenizer=None, field: str = "text"):
    return prepare_corpus([str(s) for s in sources], field, tokenizer or pico.shared_tokenizer(), length, pack=pack)


def _ids(blocks) -> list[list[int]]:
    """The ids of every sequence, taken out of the blocks."""
    found = []
    for block in map(blocks.features, range(len(blocks))):
        ids = block["input_ids"]
        numbers = block.get("segments", np.ones_like(ids))
        found += [ids[numbers == number].tolist() for number in range(1, int(numbers.max()) + 1)]
    return found


def _one_by_one(lines: list[str], tokenizer, length: int) -> list[list[int]]:
    """Each line by itself, cut where it is longer than a block, with special tokens around each part."""
    frame = Frame.of(tokenizer)
    room = length - len(frame)
    found = []
    for line in lines:
        ids = tokenizer(line, add_special_tokens=False)["input_ids"]
        found += [frame.around(np.array(ids[i : i + room])).tolist() for i in range(0, len(ids), room)]
    return sorted(found)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=15)
@given(
    lines=st.lists(st.text(alphabet="abc the.é\u200b", max_size=80), min_size=1, max_size=12),
    length=st.integers(3, 24),
)
def test_every_token_is_in_one_place(tmp_path_factory, family, pack, lines, length):
    path = tmp_path_factory.mktemp("texts") / "corpus.txt"
    lines = ["cells", *lines]
    path.write_text("\n".join(lines), encoding="utf-8")
    blocks = _prepare(path, length=length, pack=pack, tokenizer=pico.shared_tokenizer(family))
    stripped = [line.strip() for line in lines if line.strip()]
    assert sorted(_ids(blocks)) == _one_by_one(stripped, pico.shared_tokenizer(family), length)
    assert blocks.corpus.texts == len(stripped)


@pytest.mark.parametrize("pack", [True, False])
def test_several_shards_are_one_corpus(corpus, monkeypatch, pack):
    monkeypatch.setattr("biosqueeze.data.text.shards.SHARD_TOKENS", 500)
    monkeypatch.setattr("biosqueeze.data.text.blocks.LINES_AT_ONCE", 32)
    blocks = _prepare(corpus, pack=pack)
    assert len(blocks.corpus.entries) == 5
    lines = corpus.read_text(encoding="utf-8").splitlines()
    assert sorted(_ids(blocks)) == _one_by_one(lines, pico.shared_tokenizer(), 64)
    items = np.random.default_rng(0).permutation(len(blocks))
    lengths = [len(blocks.features(int(item))["input_ids"]) for item in items]
    assert blocks.lengths_of(items).tolist() == lengths
    for outside in (-1, len(blocks)):
        with pytest.raises(IndexError):
            blocks.features(outside)


def test_blocks_have_one_length_and_the_log_is_right(corpus, capsys):
    blocks = _prepare(corpus)
    features = [blocks.features(item) for item in range(len(blocks))]
    assert {len(values) for block in features for values in block.values()} == {64}
    padding = np.mean([block["segments"] == 0 for block in features])
    assert blocks.padding == pytest.approx(padding, abs=1e-6)
    assert blocks.corpus.tokens == sum(map(len, _ids(blocks)))
    log = " ".join(capsys.readouterr().err.split())
    assert f"300 texts, {blocks.corpus.tokens:,} tokens, packed into {len(blocks)} blocks of 64 (" in log
    assert "prepared and stored in" in log


def test_a_prepared_corpus_is_loaded(corpus, monkeypatch, capsys):
    first = _prepare(corpus)
    monkeypatch.setattr(prepared, "encode_lines", lambda *_: pytest.fail("tokenised again"))
    capsys.readouterr()
    for pack in (True, False):
        again = _prepare(corpus, pack=pack)
        assert again.corpus.folder == first.corpus.folder
        log = capsys.readouterr().err
        assert log.count("\n") == 1
        assert f"prepared earlier in {first.corpus.folder}" in log


def _folder(*sources: Path, **how) -> Path:
    return _prepare(*sources, **how).corpus.folder


def test_every_input_is_part_of_the_key(corpus, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("gene therapy\n")
    folders = [
        _folder(corpus),
        _folder(corpus, length=65),
        _folder(corpus, field="abstract"),
        _folder(corpus, tokenizer=pico.shared_tokenizer("roberta")),
        _folder(corpus, tokenizer=pico.tokenizer_of("bert", cased=False)),
        _folder(other),
        _folder(corpus, other),
        _folder(other, corpus),
        _folder("demo:text"),
    ]
    os.utime(corpus, ns=(1, 1))
    folders.append(_folder(corpus))
    with corpus.open("a") as file:
        file.write("\none more")
    os.utime(corpus, ns=(1, 1))
    folders.append(_folder(corpus))
    assert len(set(folders)) == len(folders)


def test_an_added_token_changes_the_key(corpus):
    tokenizer = pico.tokenizer_of("bert")
    before = _folder(corpus, tokenizer=tokenizer)
    tokenizer.add_tokens(["hypercholesterolemia"])
    assert _folder(corpus, tokenizer=tokenizer) != before


def test_other_special_tokens_change_the_key(corpus):
    from tokenizers.processors import TemplateProcessing

    tokenizer = pico.tokenizer_of("bert")
    before = _folder(corpus, tokenizer=tokenizer)
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP] [SEP]", special_tokens=ids)
    blocks = _prepare(corpus, tokenizer=tokenizer)
    assert blocks.corpus.folder != before
    assert all(ids[-2:] == [tokenizer.sep_token_id] * 2 for ids in _ids(blocks))


def test_an_earlier_call_with_truncation_changes_nothing(corpus):
    tokenizer = pico.tokenizer_of("bert")
    before = _folder(corpus, tokenizer=tokenizer)
    tokenizer(["cells of patients"], truncation=True, max_length=3, padding="max_length")
    assert _folder(corpus, tokenizer=tokenizer) == before


def test_another_path_of_the_same_file_has_the_same_key(corpus, monkeypatch):
    before = _folder(corpus)
    monkeypatch.chdir(corpus.parent)
    assert _folder(Path(corpus.name)) == before


def test_directories_jsonl_and_gzip(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    lines = list(pico.sentences(40))
    (folder / "a.txt.gz").write_bytes(gzip.compress("\n".join(lines[:20]).encode()))
    (folder / "b.jsonl").write_text("\n".join(json.dumps({"abstract": line}) for line in lines[20:]))
    assert sorted(_ids(_prepare(folder, field="abstract"))) == _one_by_one(lines, pico.shared_tokenizer(), 64)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "tokens-00000.arrow").unlink(),
        lambda folder: (folder / "tokens-00000.arrow").write_bytes(b"ARROW1"),
        lambda folder: (folder / "corpus.json").write_text("{"),
        lambda folder: (folder / "corpus.json").write_text("{}"),
        lambda folder: (folder / "corpus.json").unlink(),
    ],
)
def test_a_damaged_corpus_is_prepared_again(corpus, capsys, damage):
    first = _prepare(corpus)
    expected = _ids(first)
    damage(first.corpus.folder)
    capsys.readouterr()
    assert _ids(_prepare(corpus)) == expected
    log = capsys.readouterr().err
    assert "damaged" in log and "prepared and stored" in log


@pytest.mark.parametrize("damage", [b"", b"x"])
def test_a_damaged_index_of_documents_is_written_again(corpus, capsys, damage):
    text = DocumentText(((str(corpus), (corpus,)),))
    first = text.whole(pico.shared_tokenizer())
    expected, file = first.edges.tolist(), first.corpus.folder / "sentences.npy"
    file.write_bytes(damage)
    assert text.whole(pico.shared_tokenizer()).edges.tolist() == expected
    assert "damaged" in capsys.readouterr().err


def test_an_index_is_not_written_through_a_map(corpus, monkeypatch):
    def open_memmap(file, mode="r+", **options):
        assert mode == "r", "on a full disk, the process would be killed"
        return original(file, mode=mode, **options)

    original = np.lib.format.open_memmap
    monkeypatch.setattr(np.lib.format, "open_memmap", open_memmap)
    documents = DocumentText(((str(corpus), (corpus,)),)).whole(pico.shared_tokenizer())
    assert documents.starts.tolist() == list(range(301))


def test_an_interrupted_preparation_leaves_nothing(corpus, own_cache, monkeypatch):
    monkeypatch.setattr("biosqueeze.data.text.shards.SHARD_TOKENS", 500)
    monkeypatch.setattr("biosqueeze.data.text.blocks.LINES_AT_ONCE", 32)
    encode = prepared.encode_lines

    def interrupted(*given):
        for number, part in enumerate(encode(*given)):
            if number == 6:
                raise KeyboardInterrupt
            yield part

    with monkeypatch.context() as patch:
        patch.setattr(prepared, "encode_lines", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _prepare(corpus)
    assert not [path for path in own_cache.rglob("*") if path.suffix != ".lock" and path.name != "tokens"]
    assert sorted(_ids(_prepare(corpus))) == _one_by_one(corpus.read_text().splitlines(), pico.shared_tokenizer(), 64)


def test_a_file_that_changes_during_the_preparation(corpus, own_cache, monkeypatch):
    encode = prepared.encode_lines

    def appended(*given):
        yield from encode(*given)
        with corpus.open("a") as file:
            file.write("\nmore")

    monkeypatch.setattr(prepared, "encode_lines", appended)
    with pytest.raises(SqueezeError, match=r"corpus\.txt changed while it was read"):
        _prepare(corpus)
    assert not list(own_cache.rglob("*.arrow"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no named pipes")
def test_every_pipe_has_another_key(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    for line in ("the gene", "the protein"):
        writer = threading.Thread(target=pipe.write_text, args=(line,))
        writer.start()
        found.append(_ids(_prepare(pipe)))
        writer.join()
    assert found == [[pico.shared_tokenizer()(line)["input_ids"]] for line in ("the gene", "the protein")]


@pytest.mark.parametrize("pack", [True, False])
def test_pickled_as_a_path(corpus, pack):
    blocks = _prepare(corpus, pack=pack)
    assert blocks.corpus.shards
    pickled = pickle.dumps(blocks)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert len(again) == len(blocks)
    for item in (0, len(blocks) - 1):
        expected, actual = blocks.features(item), again.features(item)
        assert expected.keys() == actual.keys()
        assert all(np.array_equal(expected[name], actual[name]) for name in expected)


_READ_ONE = "import pickle, sys; print(pickle.load(sys.stdin.buffer).features(1)['input_ids'].tolist())"


def test_another_process_opens_the_corpus(corpus):
    blocks = _prepare(corpus)
    expected = blocks.features(1)["input_ids"].tolist()
    done = subprocess.run(
        [sys.executable, "-c", _READ_ONE], input=pickle.dumps(blocks), capture_output=True, check=True
    )
    assert json.loads(done.stdout) == expected
    if hasattr(os, "fork"):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(blocks.features, (1,))["input_ids"].tolist() == expected


def test_a_missing_corpus_is_reported(corpus):
    folder = _folder(corpus)
    (folder / "corpus.json").unlink()
    with pytest.raises(SqueezeError, match="run the command again"):
        open_corpus(folder)


def test_two_corpora_in_one_and_one_source_twice(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"gene {name}\n")
    twice = _prepare(tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "a.txt", pack=False)
    assert twice.corpus.texts == 3


@pytest.mark.parametrize(
    ("content", "length", "message"),
    [("\u200b\n\ufeff", 64, "single token"), ("", 64, "is empty"), ("cells", 2, "--max-length 3 or more")],
)
def test_invalid_corpora_are_reported(tmp_path, own_cache, content, length, message):
    path = tmp_path / "bad.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SqueezeError, match=message):
        _prepare(path, length=length)
    assert not list(own_cache.rglob("*.json"))


def test_a_cache_that_cannot_be_written(corpus, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BIOSQUEEZE_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(SqueezeError, match="BIOSQUEEZE_CACHE"):
        _prepare(corpus)


@pytest.mark.parametrize("former", [None, "false", "true"])
def test_the_threads_of_the_tokenizer_are_restored(corpus, monkeypatch, former):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if former is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", former)
    seen = []
    encode = prepared.encode_lines
    monkeypatch.setattr(
        prepared, "encode_lines", lambda *given: seen.append(os.environ["TOKENIZERS_PARALLELISM"]) or encode(*given)
    )
    _prepare(corpus)
    assert seen == ["true"]
    assert os.environ["TOKENIZERS_PARALLELISM"] == (former or "true")


def test_progress_counts_bytes_on_disk(tmp_path, monkeypatch):
    """Bytes on disk give the right remaining time for a .gz too."""
    path = tmp_path / "big.txt.gz"
    path.write_bytes(gzip.compress(b"\n".join(b"cells %d" % i for i in range(20_000)), compresslevel=0))
    amounts = []
    monkeypatch.setattr("biosqueeze.data.text.prepared.Megabytes.advance", lambda self, amount: amounts.append(amount))
    _prepare(path)
    assert sum(amounts) == path.stat().st_size


def test_megabytes():
    from biosqueeze.progress import ProgressBar

    tracker = ProgressBar("x", 3)
    progress = prepared.Megabytes(tracker)
    seen = []
    for _ in range(10):
        progress.advance(300_000)
        seen.append(tracker.done)
    assert seen == [0, 1, 1, 1, 2, 2, 2, 2, 3, 3]


def test_packed_blocks_are_filled_with_the_pad_token(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("the gene\n")
    blocks = _prepare(path, length=8)
    assert isinstance(blocks, Packed)
    block = blocks.features(0)
    ids = pico.shared_tokenizer()("the gene")["input_ids"]
    assert block["input_ids"].tolist() == ids + [pico.shared_tokenizer().pad_token_id] * (8 - len(ids))
    assert block["segments"].tolist() == [1] * len(ids) + [0] * (8 - len(ids))
