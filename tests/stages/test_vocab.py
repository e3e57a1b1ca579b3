"""`biosqueeze vocab` and `vocab compare`: files, families, repeatability, and what users may get wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from biosqueeze.manifest import read_manifest
from biosqueeze.vocabularies import build
from tests import pico
from tests.cli.run import Shell

SIZES = {"wordpiece": 300, "bpe": 400, "unigram": 200}
KIND_OF = {
    "bert": "wordpiece",
    "electra": "wordpiece",
    "distilbert": "wordpiece",
    "roberta": "bpe",
    "albert": "unigram",
}
SPECIAL = {
    "[": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4},
    "bpe": {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 399},
    "unigram": {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4},
}
TEXTS = ["The gene of BRCA1, a Protein.", "caro\u00e9n (no)  thyma-lin <mask> x", "\u03b2-carotis \u2603"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    rare = "".join(chr(0x4E00 + number) for number in range(40))
    lines = [*pico.sentences(400), "BRCA1 (TNF-alpha) caro\u00e9n, thymalin."] * 2
    path.write_text("\n".join([*lines, *rare]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def trained(shell: Shell, text: Path, tmp_path: Path) -> Callable[..., Path]:
    def train(family: str, *options: str, name: str = "vocabulary") -> Path:
        size = str(SIZES[KIND_OF[family]])
        result = shell("vocab", text, "--family", family, "--size", size, "--out", tmp_path / name, *options)
        assert result.code == 0, result.err
        return Path(result.path)

    return train


@pytest.mark.parametrize("family", list(KIND_OF))
def test_stock_tokenizer_of_each_family(family: str, trained: Callable[..., Path]) -> None:
    limit = [] if family == "roberta" else ["--limit-alphabet", "60"]
    path = trained(family, "--max-length", "128", *limit)
    loaded = transformers.AutoTokenizer.from_pretrained(path)
    special = SPECIAL["["] if KIND_OF[family] == "wordpiece" else SPECIAL[KIND_OF[family]]
    assert {token: loaded.get_vocab()[token] for token in special} == special
    assert loaded.model_max_length == 128
    assert ("token_type_ids" in loaded("a")) == (family in ("bert", "electra", "albert"))
    assert len(loaded) == SIZES[KIND_OF[family]]
    for stock in (from_vocabulary_files(family, path), transformers.PreTrainedTokenizerFast.from_pretrained(path)):
        for one in TEXTS:
            assert stock(one)["input_ids"] == loaded(one)["input_ids"]
            assert stock(one, "gene")["input_ids"] == loaded(one, "gene")["input_ids"]
            assert stock.decode(stock(one)["input_ids"]) == loaded.decode(loaded(one)["input_ids"])


def from_vocabulary_files(family: str, path: Path) -> Any:
    """Build the family's tokenizer as transformers does without a tokenizer.json."""
    # As in the published tokenizers, whose mask includes the space before it.
    mask = transformers.AddedToken("<mask>" if family == "roberta" else "[MASK]", lstrip=True, special=True)
    if family == "roberta":
        merges = [tuple(line.split()) for line in (path / "merges.txt").read_text().splitlines()[1:]]
        return transformers.RobertaTokenizer(
            vocab=json.loads((path / "vocab.json").read_text()), merges=merges, mask_token=mask
        )
    if family == "albert":
        pieces = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
        return transformers.AlbertTokenizer(
            vocab=[tuple(p) for p in pieces], do_lower_case=False, keep_accents=True, mask_token=mask
        )
    vocabulary = {line: row for row, line in enumerate((path / "vocab.txt").read_text().split("\n")[:-1])}
    return transformers.BertTokenizer(vocab=vocabulary, do_lower_case=False)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_equal_texts_give_equal_files(family: str, trained: Callable[..., Path]) -> None:
    folders = [trained(family, name=name) for name in ("one", "two")]
    one, two = ({p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".md"} for folder in folders)
    manifests = [json.loads(files.pop("biosqueeze.json")) for files in (one, two)]
    assert one == two
    assert manifests[0]["model"] == manifests[1]["model"]


def test_words_come_back_from_their_pieces(trained: Callable[..., Path]) -> None:
    for family in ("bert", "roberta", "albert"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(trained(family, name=family))
        for line in pico.sentences(30, seed=5):
            ids = tokenizer(line)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids, skip_special_tokens=True).strip() == line


def test_uncased_text_is_folded(trained: Callable[..., Path]) -> None:
    for family in ("bert", "albert"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(trained(family, "--uncased", name=family))
        assert tokenizer("CARO\u00c9N brca1")["input_ids"] == tokenizer("caroen BRCA1")["input_ids"]
        assert not any(piece != piece.lower() for piece in tokenizer.get_vocab() if not piece.startswith(("[", "<")))


def test_rare_characters_stay_out(trained: Callable[..., Path]) -> None:
    path = trained("bert", "--limit-alphabet", "60")
    assert "\u4e27" not in (path / "vocab.txt").read_text()
    manifest = read_manifest(path)
    assert manifest is not None
    assert manifest.notes["characters"] == 60
    assert manifest.notes["dropped_characters"] > 10
    assert manifest.notes["corpora"][0]["lines"] == 842
    assert manifest.history[0].options["limit_alphabet"] == 60


def test_pretrain_takes_the_vocabulary(trained: Callable[..., Path], shell: Shell, text: Path, tmp_path: Path) -> None:
    shape = "--layers 1 --hidden 16 --heads 2 --ffn 16 --positions 32 --max-length 16 --steps 1 --batch-size 2"
    result = shell(
        f"pretrain --shape bert-base {shape}", "--tokenizer", trained("bert"), "--corpus", text, "-o", tmp_path / "new"
    )
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--size 20", 1, "no room"),
        ("--size 200 --kind bpe", 1, "leaves no room"),
        ("--size 90 --limit-alphabet 50", 1, "--limit-alphabet"),
        ("--size 2", 2, "--size must be at least 10"),
        ("--kind words", 2, "wordpiece"),
        ("--kind bpe --uncased", 2, "keep case"),
        ("--kind bpe --family bert", 2, "--family roberta"),
        ("--kind bpe --limit-alphabet 9", 2, "--limit-alphabet has no effect"),
        ("--kind unigram --min-frequency 3", 2, "--min-frequency has no effect"),
        ("--corpus x.txt", 2, "vocab compare"),
    ],
)
def test_wrong_options_are_explained(
    options: str, code: int, words: str, shell: Shell, text: Path, tmp_path: Path
) -> None:
    result = shell(f"vocab {text} --out {tmp_path / 'out'} {options}")
    assert result.code == code
    assert words in result.err
    assert not list(tmp_path.iterdir())


def test_wrong_inputs_are_explained(shell: Shell, text: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    out = tmp_path / "out"
    assert "is empty" in shell("vocab", tmp_path / "empty.txt", "-o", out).err
    assert "there is no corpus" in shell("vocab", tmp_path / "none.txt", "-o", out).err
    assert "--out is missing" in shell("vocab", text).err
    assert not out.exists()
    assert shell("vocab", text, "-o", out, "--size", "300").code == 0
    again = shell("vocab", text, "-o", out, "--size", "300")
    assert again.code == 1
    assert "--force" in again.err
    assert shell("vocab", text, "-o", out, "--size", "310", "--force").code == 0
    assert len((out / "vocab.txt").read_text().splitlines()) == 310
    assert "contains it" in shell("vocab", text, "-o", text.parent, "--force").err


def test_interrupted_run_leaves_nothing(shell: Shell, text: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def interrupt(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "save_tokenizer", interrupt)
    assert shell("vocab", text, "-o", tmp_path / "out", "--size", "300").code == 130
    assert not list(tmp_path.iterdir())


def test_too_little_text_is_a_warning(shell: Shell, text: Path, tmp_path: Path) -> None:
    result = shell("vocab", text, "-o", tmp_path / "out", "--size", "30000", "--json")
    assert result.code == 0
    assert "fewer than --size 30,000" in result.err
    assert json.loads(result.out)["pieces"] == len((tmp_path / "out" / "vocab.txt").read_text().splitlines())


def test_compare_prints_tables_and_rows(trained: Callable[..., Path], shell: Shell, text: Path, tmp_path: Path) -> None:
    one, two = trained("bert", name="one"), trained("roberta", name="two")
    (tmp_path / "terms.txt").write_text("gene\n\nthymalin\n")
    command = ["vocab", "compare", one, two, "--corpus", text, "--terms", tmp_path / "terms.txt"]
    shown = shell(*command)
    assert shown.code == 0, shown.err
    for words in ("pieces per word", "words kept whole", "unknown pieces", "thymalin", "pieces that two", "of 2"):
        assert words in shown.out
    facts = json.loads(shell(*command, "--json").out)
    rows = json.loads(shell(*command, "--table", "json").out)
    assert [row["vocabulary"] for row in rows] == [str(one), str(two)]
    assert facts["vocabularies"][0]["pieces_per_word"] == rows[0]["pieces_per_word"] >= 1
    assert facts["vocabularies"][0]["shared_pieces"][str(one)] == 295
    assert "".join(facts["terms"]["gene"][str(one)]).replace("##", "") == "gene"
    assert facts["text"]["lines"] == 842


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("compare", 2, "compare takes tokenizers"),
        ("compare {good}", 2, "--corpus"),
        ("compare {good} --corpus {text} --out x", 2, "--out is for training"),
        ("compare {folder} --corpus {text}", 1, "has no tokenizer"),
        ("compare {broken} --corpus {text}", 1, "not a valid tokenizer"),
        ("compare {good} --corpus none.txt", 1, "there is no corpus"),
        ("compare {good} {folder} --corpus {text} --dry-run", 1, "has no tokenizer"),
        ("compare none {good} --corpus {text} --dry-run", 1, "none"),
        ("compare {good} --corpus {text} --terms none.txt", 1, "one term a line"),
    ],
)
def test_wrong_comparisons_are_explained(
    words: str, code: int, expected: str, shell: Shell, text: Path, tmp_path: Path
) -> None:
    places = {name: tmp_path / name for name in ("good", "folder", "broken")}
    places["folder"].mkdir()
    for name in ("good", "broken"):
        pico.tokenizer_of("bert").save_pretrained(places[name])
    (places["broken"] / "tokenizer.json").write_text('{"version": "1.0", "model": {}}')
    result = shell("vocab " + words.format(text=text, **places))
    assert result.code == code
    assert expected in result.err


def test_text_without_a_piece_is_compared(trained: Callable[..., Path], shell: Shell, tmp_path: Path) -> None:
    (text := tmp_path / "control.txt").write_text("\x01\x02\n")
    result = shell("vocab", "compare", trained("bert"), trained("roberta", name="two"), "--corpus", text)
    assert result.code == 0, result.err


def test_next_command_reads_the_same_text(shell: Shell, tmp_path: Path) -> None:
    texts = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for text in texts:
        text.write_text('{"title": "a gene of patients"}\n' * 3)
    result = shell("vocab", *texts, "--field", "title", "--out", tmp_path / "out")
    command = f"--corpus {texts[0]} --corpus {texts[1]} --field title"
    assert result.code == 0 and result.err.strip().endswith(command), result.err
