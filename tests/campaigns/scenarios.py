"""The commands that are killed, run on a full disk and started twice, and the files that they read.

All of them run in the directory that `write_inputs` fills, with models of a few thousand weights.
"""

import gzip
import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file

from biosqueeze.corpora import build
from tests import pico
from tests.campaigns.sandbox import HUB, Command, Folder, import_all
from tests.corpora import sources
from tests.ports import free_port
from tests.tasks.sources import DATA

# Imported here at once: otherwise the first command that needs one imports it in its fork, and this process after it.
_LIBRARIES = ("accelerate", "onnxscript", "onnxruntime", "pyarrow", "scipy.stats", "seqeval.metrics", "torch.onnx")
_TRAINING = "--precision fp32 --batch-size 4 --max-length 24"
_SAVING = f"{_TRAINING} --save-every 1 --eval-every 2"
_RECIPE = """
[teacher]
stage = "finetune"
checkpoint = "bert"
data = "ner"
steps = 3
save_every = 1
precision = "fp32"
out = "made/teacher"

[smaller]
stage = "shrink"
layers = "2"

[student]
stage = "distill"
teacher = "@teacher"
data = "ner"
steps = 3
save_every = 1
precision = "fp32"

[score]
stage = "evaluate"
data = "ner"

[int8]
stage = "quantize"
checkpoint = "exported"
out = "made/int8"
"""
_BRIEF_RECIPE = """
[teacher]
stage = "finetune"
checkpoint = "bert"
data = "ner"
steps = 1
precision = "fp32"

[smaller]
stage = "shrink"
layers = "2"

[score]
stage = "evaluate"
data = "ner"
"""
_PUBTATOR = """{0}|t|Aspirin in patients {1}
{0}|a|Twelve patients {1} with sepsis took aspirin.
{0}\t0\t7\tAspirin\tChemical\tD001241

"""
_BIOC = """<?xml version="1.0" encoding="UTF-8"?>
<collection><source>s</source><date>d</date><key>k</key>
<document><id>{0}</id><passage><offset>0</offset><text>{1}</text>
<annotation id="1"><infon key="type">Chemical</infon><location offset="0" length="7"/><text>Aspirin</text></annotation>
</passage></document></collection>
"""


@dataclass(frozen=True)
class Scenario:
    """A command, and the final names that it writes: checkpoints, files, or files in a checkpoint that it was given."""

    name: str
    line: str
    outputs: tuple[str, ...] = ("out",)
    processes: int = 1
    slow: bool = False  # left out of the share that runs with the tests
    has_hub: bool = False  # outputs are on the Hub

    def commands(self, *more: str) -> list[Command]:
        """Return the command, or one for each process that trains."""
        words = [*shlex.split(self.line), *more]
        if self.processes == 1:
            return [Command(words)]
        port = str(free_port())
        return [Command(words, environment=_launched(rank, self.processes, port)) for rank in range(self.processes)]


def _scenarios() -> Iterator[Scenario]:
    yield Scenario("shrink", "shrink bert --layers 2 --out out")
    yield Scenario("relabel", "relabel teacher --labels O,B-Chemical --out out")
    yield Scenario(
        "distill text",
        f"distill small --teacher bert --corpus corpus.txt --steps 3 --out out {_TRAINING} --save-every 1",
    )
    on_task = "distill start --teacher teacher --data ner"
    yield Scenario("distill task", f"{on_task} --corpus corpus.txt --steps 3 --out out {_SAVING}")
    yield Scenario(
        "distill warm", f"{on_task} --warm-start finetune --warm-epochs 1 --steps 3 --out out {_SAVING}", slow=True
    )
    yield Scenario("distill cache", f"{on_task} --loss kl --cache-teacher answers --steps 3 --out out {_SAVING}")
    for kind in DATA:
        line = f"finetune bert --data {kind} --task {kind} --steps 3 --out out {_SAVING}"
        yield Scenario(f"finetune {kind}", line, slow=kind != "ner")
    grid = "--grid lr=1e-4,3e-4 --seeds 2 --steps 2"
    yield Scenario("finetune grid", f"finetune bert --data ner {grid} --out out {_SAVING}", slow=True)
    yield Scenario("two processes", f"finetune bert --data ner --steps 3 --out out {_SAVING}", processes=2)
    yield Scenario("evaluate", "evaluate teacher --data ner", ("teacher/results/evaluate-torch.json",))
    yield Scenario("predict", "predict teacher records.jsonl --out out.jsonl", ("out.jsonl",))
    yield Scenario("predict gz", "predict exported records.jsonl --out out.jsonl.gz", ("out.jsonl.gz",), slow=True)
    yield Scenario("export", "export shallow --out out", slow=True)
    yield Scenario("quantize", "quantize exported --out out")
    static = "--method inc-static --calibration corpus.txt --calibration-samples 4 --max-length 16"
    yield Scenario("quantize static", f"quantize shallow {static} --out out", slow=True)
    short = "--batch-size 1 --length 8 --rounds 1 --seconds 0 --warmup 1 --threads 1"
    tables = tuple(f"{name}/results/bench.json" for name in ("start", "exported"))
    yield Scenario("bench", f"bench start exported {short}", tables)
    suite = "--suite blurb --only ncbi-disease --seeds 2 --set steps=2 --set save_every=1 --set precision=fp32"
    pages = tuple(f"out/blurb.{ending}" for ending in ("json", "md", "tex"))
    yield Scenario("benchmark", f"benchmark start --data benchmarks {suite} --out out", pages, slow=True)
    yield Scenario("report", "report teacher --html out.html", ("out.html",))
    articles = "corpus articles --against seen --near-duplicates 0.8 --held-out 0.3"
    yield Scenario("corpus", f"{articles} --workers 1 --out out")
    yield Scenario("corpus workers", f"{articles} --workers 2 --out out")
    yield Scenario("vocab", "vocab corpus.txt records.jsonl --size 150 --sample-mb 0.0015 --out out")
    pretraining = f"--steps 3 --out out {_TRAINING} --save-every 1"
    yield Scenario("pretrain", f"pretrain bert --corpus articles.txt --held-out 0.3 --eval-every 2 {pretraining}")
    pairs = "--objective mlm+nsp --mask-rate 0.1:0.3:3"
    yield Scenario("pretrain pairs", f"pretrain bert --corpus articles.txt {pairs} {pretraining}", slow=True)
    phases = "--long-length 32 --long-share 0.4"
    replaced = f"pretrain electra --corpus articles.txt --objective rtd {phases}"
    yield Scenario("pretrain replaced", f"{replaced} {pretraining}", slow=True)
    shape = "--shape bert-base --layers 1 --hidden 16 --heads 2 --ffn 16 --tokenizer bert"
    yield Scenario("pretrain shape", f"pretrain {shape} --corpus articles.txt {pretraining}", slow=True)
    yield Scenario("push", "push teacher me/tagger", (f"../{HUB}",), has_hub=True)
    yield Scenario("run", "run recipe.toml --out out", ("made/teacher", "out/smaller", "out/student", "made/int8"))


SCENARIOS = {scenario.name: scenario for scenario in _scenarios()}


def write_inputs(folder: Folder) -> None:
    """Write models, data and a recipe to a folder's work directory.

    Raises:
        RuntimeError: a command failed.
    """
    work = folder.work
    import_all(_LIBRARIES)
    pico.save("bert", work / "bert")
    pico.save("electra", work / "electra", head="discriminator")
    for kind in DATA:
        _write_data(work / kind, kind)
    _write_data(work / "benchmarks" / "ncbi-disease", "ner")
    (work / "recipe.toml").write_text(_RECIPE, encoding="utf-8")
    (work / "brief.toml").write_text(_BRIEF_RECIPE, encoding="utf-8")
    _write_records(work)
    _write_articles(work / "articles", work / "seen" / "test.tsv")
    for line in (
        "shrink bert --layers 2 --out small",
        f"finetune bert --data ner --steps 3 --lr 1e-2 --out teacher {_TRAINING}",
        "shrink teacher --layers 2 --out start",
        "shrink teacher --layers 1 --out shallow",
        "export shallow --out exported",
        "quantize exported --out int8",
        "evaluate teacher --data ner",
        "run brief.toml --out done",
    ):
        folder.run_input(Command(shlex.split(line)))
    _interrupt_training(folder)
    shard(work / "teacher", work / "sharded")


def _write_records(work: Path) -> None:
    """Write records, a corpus, and documents with entities, in every format that is read."""
    texts = list(pico.sentences(12, seed=1))
    lines = "".join(f"{text}\n" for text in texts)
    records = "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts))
    documents = ["\n".join(texts[first : first + 4]) for first in range(0, len(texts), 4)]
    (work / "articles.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (work / "records.pubtator").write_text(_documents("abc"), encoding="utf-8")
    for stem in ("records", "corpus"):
        for ending, content in (("jsonl", records), ("txt", lines)):
            (work / f"{stem}.{ending}").write_text(content, encoding="utf-8")
            (work / f"{stem}.{ending}.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
    for split in ("train", "dev", "test"):
        passage = f"Aspirin helps patients of the {split} group with sepsis."
        document = {"id": split, "infons": {}, "passages": [_passage(passage)], "relations": []}
        collection = {"source": "s", "date": "d", "key": "k", "infons": {}, "documents": [document]}
        for folder, ending, content in (
            ("pubtator", "pubtator", _documents(f"{split[0]}{split[1]}")),
            ("bioc", "xml", _BIOC.format(split, passage)),
            ("biocjson", "json", json.dumps(collection)),
        ):
            (work / folder).mkdir(exist_ok=True)
            (work / folder / f"{split}.{ending}").write_text(content, encoding="utf-8")


def _write_articles(folder: Path, seen: Path) -> None:
    """Write a small PubMed baseline with an update, JSON lines, and a test sentence of one of the articles.

    Each file is a part of a corpus.
    """
    build.PART_BYTES = 1
    sources.packed(seen, f"id\ttext\n1\t{sources.sentence(300)}\n".encode())
    for number in range(2):
        pmids = range(8 * number, 8 * number + 8)
        citations = [sources.citation(pmid + 1, sources.abstract(pmid)) for pmid in pmids]
        sources.pubmed(folder / f"pubmed{number}.xml.gz", citations)
    update = [sources.citation(1, "The new version."), sources.citation(900, sources.abstract(5))]
    sources.pubmed(folder / "pubmed9.xml", update, deleted=[3])
    records = ({"id": f"x{number}", "text": sources.abstract(number)} for number in range(40, 46))
    sources.packed(folder / "records.jsonl", "".join(f"{json.dumps(one)}\n" for one in records).encode())


def _documents(names: str) -> str:
    """Return PubTator documents, one for each letter."""
    return "".join(_PUBTATOR.format(ord(name), name) for name in names)


def _passage(text: str) -> dict[str, object]:
    """Return a passage of BioC JSON whose first word is an entity."""
    word = text.split()[0]
    location = {"offset": 0, "length": len(word)}
    annotation = {"id": "1", "infons": {"type": "Chemical"}, "text": word, "locations": [location]}
    return {"offset": 0, "infons": {}, "text": text, "sentences": [], "annotations": [annotation], "relations": []}


def _interrupt_training(folder: Folder) -> None:
    """Leave a training that was killed after its second step, in begun.partial."""
    line = f"finetune bert --data ner --steps 3 --out begun {_TRAINING} --save-every 1"

    def fault(_number: int, event: str, pid: int) -> None:
        if event == "os.rename" and (folder.work / "begun.partial" / "state-00000002").exists():
            os.kill(pid, signal.SIGKILL)

    folder.run(Command(shlex.split(line)), fault)


def shard(source: Path, out: Path) -> None:
    """Copy a checkpoint and split its weights into two files with an index."""
    shutil.copytree(source, out)
    tensors = load_file(out / "model.safetensors")
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, out / file, {"format": "pt"})
    (out / "model.safetensors").unlink()
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {
        "metadata": {"total_size": size},
        "weight_map": {name: file for file, held in files.items() for name in held},
    }
    (out / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _write_data(folder: Path, kind: str) -> None:
    """Write splits of a task kind; its own pieces are repeated where they can be."""
    folder.mkdir(parents=True)
    suffix, text = DATA[kind]
    for number, split in enumerate(("train", "dev", "test")):
        parts = [text(10 * number + n) for n in range(1 if suffix == ".json" else 4)]
        if kind in ("similarity", "classification"):  # a header, once
            parts = [parts[0], *(part.partition("\n")[2] for part in parts[1:])]
        separator = "\n" if kind in ("ner", "pico") else ""
        (folder / f"{split}{suffix}").write_text(separator.join(parts), encoding="utf-8")


def _launched(rank: int, count: int, port: str) -> dict[str, str]:
    """Return the environment variables that `accelerate launch` gives to a process."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    return {**{name: str(value) for name, value in ranks.items()}, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
