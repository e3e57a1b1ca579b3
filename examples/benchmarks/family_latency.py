"""Latency of each family at equal size, at long inputs, and in training: the tables of the results page.

    python family_latency.py --out latency --parts prepare                          # may run beside other work
    python family_latency.py --out latency --parts short,long,training --threads 2

The encoders have random weights, 6 layers of 384, 6 heads of 64, a FFN of 1,536 (gated: 1,024, with as many weights),
8,192 pieces and a head that labels tokens.

prepare: builds the checkpoints, exports and quantizes them.
short: `biosqueeze bench` of all families on each backend, one sequence of 128 tokens and batches of 8.
long: one sequence of 1,024 tokens and more, for the families whose positions allow it.
training: steps of `biosqueeze finetune` with one document of 4,096 tokens, and the peak memory of the process.

Finished measurements are skipped. The tables go to standard output and to OUT/table.md.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import full_size
from stage_runs import StageRuns

HEADS, FFN, GATED_FFN, PIECES = 6, 1536, 1024, 8192
_BERT = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": HEADS, "intermediate_size": FFN}
_GATED = _BERT | {"intermediate_size": GATED_FFN}
_ROBERTA = _BERT | {"max_position_embeddings": 514, "type_vocab_size": 1}
_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 3}
# Values of the config beside the number of pieces.
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "bert": _BERT,
    "xlm-roberta": _ROBERTA,
    "mpnet": _BERT | {"max_position_embeddings": 514},
    "albert": _BERT | {"embedding_size": 384},
    "distilbert": {"n_layers": 6, "dim": 384, "n_heads": HEADS, "hidden_dim": FFN},
    "deberta-v2": {**full_size.CONFIGS["deberta-v3-base"][1], **_BERT},
    "modernbert": _GATED | _IDS | {"max_position_embeddings": 8192},
    "eurobert": _GATED | _IDS | {"num_key_value_heads": HEADS, "max_position_embeddings": 8192},
    "longformer": _ROBERTA | {"attention_window": 512, "max_position_embeddings": 4098},
}
LONGEST = {"modernbert": 8192, "eurobert": 8192, "longformer": 4096}
BACKENDS = ("torch", "torch:bf16", "onnxruntime", "onnxruntime:int8", "openvino:bf16")
LONG_BACKENDS = ("torch", "torch:bf16", "onnxruntime")
LENGTHS = (1024, 2048, 4096, 8192)
PARTS = ("prepare", "short", "long", "training")


class Workspace(StageRuns):
    """The checkpoints and measurements of one machine."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        super().__init__(arguments.out, arguments.threads, {"pieces": str(PIECES)})

    def checkpoint(self, name: str) -> Path:
        """Return a checkpoint with its float and int8 graphs, made where it is missing."""
        source = self.out / "checkpoints" / name
        if not (source / "model.safetensors").is_file():
            full_size.build(name, {**FAMILIES[name], "vocab_size": PIECES}, source, "TokenClassification")
        # Random weights have random classes, so there is no agreement to ask for.
        return self.make(f"{name}-quantize", "quantize", str(source), "--tolerance", "0")

    def short(self, backend: str) -> list[dict[str, Any]]:
        """Measure all families on a backend, in turns."""
        record = f"short-{backend.replace(':', '-')}"
        checkpoints = [str(self.checkpoint(name)) for name in self.arguments.families]
        return self.bench(record, checkpoints, "--backend", backend, "--batch-size", "1,8", "--length", "128")

    def long(self, name: str, length: int) -> list[dict[str, Any]]:
        """Measure a family at one length; a call of its own, so that the peak memory is that of the length."""
        backends = [word for backend in self.arguments.long_backends for word in ("--backend", backend)]
        checkpoint = [str(self.checkpoint(name))]
        return self.bench(f"long-{name}-{length}", checkpoint, *backends, "--batch-size", "1", "--length", str(length))

    def bench(self, record: str, checkpoints: Sequence[str], *words: str) -> list[dict[str, Any]]:
        """Return the rows of a measurement."""
        options = self.arguments
        settings = ("--rounds", options.rounds, "--seconds", options.seconds, "--warmup", 1, "--threads", self.threads)
        command = ["bench", *checkpoints, *words, *map(str, settings)]
        measured = self.measured(record, command, lambda: self.biosqueeze(record, command))
        rows: list[dict[str, Any]] = measured["rows"]
        return rows

    def training(self, name: str) -> dict[str, Any]:
        """Return the seconds of a training step with one long document, and the peak memory in GiB."""
        options, target = self.arguments, self.out / "trained"
        data = documents(self.out / "documents", options.training_length)
        length = ("--max-length", str(options.training_length), "--batch-size", "1", "--steps", str(options.steps))
        words = ("finetune", str(self.checkpoint(name)), "--data", str(data), "--task", "classification", *length)
        command = [sys.executable, "-m", "biosqueeze", *words, "--out", str(target), "--force", "--quiet"]

        def train() -> dict[str, Any]:
            cost = full_size.measure(command, self.threads)
            lines = (target / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            steps = [line for line in map(json.loads, lines) if "seconds" in line]
            seconds = (steps[-1]["seconds"] - steps[0]["seconds"]) / (len(steps) - 1)  # the first step allocates
            return {"seconds": seconds, "tokens": steps[-1]["tokens"], "gib": cost.gib}

        return self.measured(f"training-{name}", [*command, f"{self.threads} threads"], train)

    def measured(self, record: str, command: Sequence[str], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of a measurement; an earlier one is that of the same command only."""
        known = self.record(record)
        if known and known["command"] == list(command):
            return known
        return self.save_record(record, {"command": list(command), **measure()})


def documents(directory: Path, length: int) -> Path:
    """Write documents of at least `length` tokens, of invented words, and short ones to evaluate."""
    directory.mkdir(exist_ok=True)
    draw = random.Random(0)
    for split, words in (("train", length), ("dev", 8), ("test", 8)):
        texts = (" ".join(draw.choices("abcdefghij", k=words)) for _ in range(32))
        rows = (json.dumps({"text": text, "label": "ab"[number % 2]}) for number, text in enumerate(texts))
        (directory / f"{split}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return directory


def short_tables(workspace: Workspace) -> str:
    """Return milliseconds of one sequence and sequences per second in batches of 8."""
    backends = workspace.arguments.backends
    measured = {backend: workspace.short(backend) for backend in backends}
    tables = []
    for title, size, value in (
        ("ms, 1 x 128", 1, "p50_ms"),
        ("sequences per second, 8 x 128", 8, "sequences_per_second"),
    ):
        lines = [f"{title}\n", *_header("family", "parameters", *backends)]
        for index, name in enumerate(workspace.arguments.families):
            found = [[row for row in measured[each] if row["batch_size"] == size][index] for each in backends]
            parameters = f"{found[0]['parameters'] / 1e6:.1f}M"
            lines.append(_line(name, parameters, *(f"{row[value]:.1f}" for row in found)))
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def long_table(workspace: Workspace) -> str:
    """Return milliseconds of one sequence and the peak memory of the process, at each length."""
    backends = workspace.arguments.long_backends
    lines = _header("family", "tokens", *(f"{each}, {unit}" for each in backends for unit in ("ms", "GiB")))
    for name in (each for each in workspace.arguments.families if each in LONGEST):
        for length in (each for each in workspace.arguments.lengths if each <= LONGEST[name]):
            rows = workspace.long(name, length)
            cells = [cell for row in rows for cell in (f"{row['p50_ms']:,.0f}", f"{row['peak_rss_mb'] / 1024:.1f}")]
            lines.append(_line(name, f"{length:,}", *cells))
    return "\n".join(lines)


def training_table(workspace: Workspace) -> str:
    """Return the speed and the peak memory of training on long documents."""
    lines = _header("family", "steps per second", "tokens per second", "peak GiB")
    for name in (each for each in workspace.arguments.families if each in LONGEST):
        cost = workspace.training(name)
        speed = (f"{1 / cost['seconds']:.3f}", f"{cost['tokens'] / cost['seconds']:,.0f}")
        lines.append(_line(name, *speed, f"{cost['gib']:.1f}"))
    return "\n".join(lines)


def _header(*cells: str) -> list[str]:
    return [_line(*cells), _line(*("---" for _ in cells))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _list(text: str) -> list[str]:
    return text.split(",")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("family-latency"))
    parser.add_argument("--parts", type=_list, default=PARTS, help=",".join(PARTS))
    parser.add_argument("--families", type=_list, default=list(FAMILIES), help=",".join(FAMILIES))
    parser.add_argument("--backends", type=_list, default=list(BACKENDS), help="of the short inputs")
    parser.add_argument("--long-backends", type=_list, default=list(LONG_BACKENDS), help="of the long inputs")
    parser.add_argument("--lengths", type=lambda text: list(map(int, _list(text))), default=list(LENGTHS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one measurement")
    parser.add_argument("--training-length", type=int, default=4096, help="tokens of a document in training")
    parser.add_argument("--steps", type=int, default=5, help="of a training")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    """Make the checkpoints and measure."""
    workspace = Workspace(parse())
    parts = workspace.arguments.parts
    if "prepare" in parts:
        for name in workspace.arguments.families:
            workspace.checkpoint(name)
    tables = {"short": short_tables, "long": long_table, "training": training_table}
    text = "\n\n".join(make(workspace) for part, make in tables.items() if part in parts)
    if text:
        (workspace.out / "table.md").write_text(text + "\n", encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
