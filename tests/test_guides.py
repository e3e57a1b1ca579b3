"""Every command of the README files and the guides runs, on very small models and generated data."""

import gzip
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import transformers

from biosqueeze.data.demo import demo_ner, demo_text
from biosqueeze.models.named.presets import PRESETS
from biosqueeze.models.named.shapes import SHAPES
from tests import pico
from tests.corpora.sources import citation, pubmed
from tests.guides import SmallShell, code_blocks, pipelines

ROOT = Path(__file__).parents[1]
GUIDES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples" / "guides").glob("*.md"))]
SLOW_GUIDES = [pytest.param(page, marks=pytest.mark.slow) for page in GUIDES]
PAGES = ["README.md", "recipes/README.md", *GUIDES]
NOT_RUN = ("pip install", "eval ")

# The checkpoints that a page expects from the pages before it.
EXPECTED = {
    "choose_losses": ("teacher", "start"),
    "predict": ("teacher", "student"),
    "int8_and_deployment": ("teacher", "shallow student"),
    "several_gpus": ("teacher", "start"),
    "suites": ("teacher", "student"),
}
COMMANDS = {
    "teacher": "biosqueeze finetune demo:minilm --data NCBI-disease --out teacher",
    "start": "biosqueeze shrink teacher --layers every-other --out start",
    "student": "biosqueeze shrink teacher --layers every-other --out student",
    "shallow student": "biosqueeze shrink teacher --layers 1 --out student",  # tracing takes its time per layer
}


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_tagged(folder: Path) -> None:
    for split, name, count in (("train", "train", 40), ("dev", "devel", 15), ("test", "test", 15)):
        lines: list[str] = []
        for words, tags in demo_ner(split)[:count]:
            lines += [*(f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)), ""]
        write_lines(folder / f"{name}.tsv", lines)


def write_labelled(folder: Path, texts: list[str], labels: tuple[str, ...], text_column: str = "text") -> None:
    shuffled = random.Random(0).sample(texts, len(texts))
    third = len(texts) // 3
    for number, split in enumerate(("train", "dev", "test")):
        part = shuffled[number * third : (number + 1) * third]
        rows = [f"{text}\t{labels[index % len(labels)]}" for index, text in enumerate(part)]
        write_lines(folder / f"{split}.tsv", [f"{text_column}\tlabel", *rows])


def write_data(folder: Path) -> None:
    """Write the data sets that the guides name, in small."""
    write_tagged(folder / "NCBI-disease")
    write_tagged(folder / "benchmarks" / "ncbi-disease")
    prose = demo_text(60)
    write_labelled(folder / "HoC", prose, ("growth", "immune"))
    pairs = [f"<< aspirin >> acts on [[ COX-{number} ]] in mice" for number in range(60)]
    write_labelled(folder / "ChemProt", pairs, ("CPR:3", "false"))
    for fold in ("1", "2"):
        pairs = [f"@GENE$ and @DISEASE$: {text}" for text in prose]
        write_labelled(folder / "GAD" / fold, pairs, ("0", "1"), "sentence")
    write_lines(folder / "pubmed.txt.gz", prose)
    sentences = demo_text(200)
    long_enough = [" ".join(sentences[start : start + 5]) for start in range(0, 200, 5)]
    pubmed(folder / "pubmed-xml" / "baseline.xml.gz", [citation(n + 1, text) for n, text in enumerate(long_enough)])
    records = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(prose[:12])]
    write_lines(folder / "abstracts.jsonl.gz", records)


def save_small_minilm(path: Path) -> Path:
    """Save a lower-casing BERT of six small layers without a head, in place of all-MiniLM-L6-v2."""
    tokenizer = pico.tokenizer_of("bert", cased=False)
    config = pico.config_of("bert", len(tokenizer), ("LABEL_0", "LABEL_1"))
    config.num_hidden_layers = 6
    transformers.BertModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, biobert_v11: Path, capfd: pytest.CaptureFixture[str]
) -> SmallShell:
    """A shell in a reader's directory: the data sets of the guides, small models, trainings of two steps."""
    del biobert_v11  # it fills the Hub cache; with four heads, where the original and `tiny` have twelve
    monkeypatch.setitem(PRESETS, "tiny", replace(PRESETS["tiny"], shape=replace(SHAPES["tiny"], heads=4)))
    folder = tmp_path / "reader"
    write_data(folder)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    minilm = save_small_minilm(tmp_path / "minilm")
    monkeypatch.setattr("biosqueeze.checkpoint._locate_demo", lambda _name: minilm)
    for command in ("FINETUNE", "DISTILL"):
        monkeypatch.setenv(f"BIOSQUEEZE_{command}_STEPS", "2")
    monkeypatch.chdir(folder)
    return SmallShell(capfd, monkeypatch)


@pytest.mark.parametrize("page", ["README.md", "recipes/README.md", *SLOW_GUIDES])
def test_every_command_of_a_page_runs(page: str, reader: SmallShell) -> None:
    for name in EXPECTED.get(Path(page).stem, ()):
        assert reader(COMMANDS[name]).code == 0
    commands = [line for block in code_blocks(ROOT / page, "bash") for line in pipelines(block)]
    for command in commands:
        if not command.startswith(NOT_RUN):
            ran = reader(command)
            assert ran.code == 0, f"{ran.command}\n{ran.err}"


@pytest.mark.parametrize("page", ["README.md", pytest.param("examples/guides/python.md", marks=pytest.mark.slow)])
def test_the_python_examples_run(page: str, reader: SmallShell) -> None:
    assert reader(COMMANDS["teacher"]).code == 0
    for block in code_blocks(ROOT / page, "python"):
        short = re.sub(r"steps=\d+", "steps=2", block)
        shortened = re.sub(r"(distill\((?![^\n]*steps=)[^\n]*)\)\n", r"\1, steps=2)\n", short)
        exec(compile(shortened, page, "exec"), {})
