"""Latency of encoder families at equal size: PyTorch in fp32 and bf16, ONNX Runtime in fp32 and int8.

    python family_latency.py --out latency                    # 128 tokens, all families
    python family_latency.py --out latency --long             # 1,024 to 8,192 tokens, families with so many positions

Each model has six layers of 384 with heads of 64, random weights, 8,192 pieces and a token classifier. Layers with a
gated FFN have two thirds of the neurons of the others, which are as many weights. Each runtime is one `biosqueeze
bench` of all families, in turns. The tables go to standard output and to OUT.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import full_size
from stage_runs import StageRuns

HEADS, FFN, GATED_FFN = 6, 1536, 1024
_BERT = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": HEADS, "intermediate_size": FFN}
_GATED = _BERT | {"intermediate_size": GATED_FFN}
_ROBERTA = _BERT | {"max_position_embeddings": 514, "type_vocab_size": 1}
_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 3}
_DEBERTA = {name: value for name, value in full_size.CONFIGS["deberta-v3-base"][1].items() if name != "vocab_size"}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "bert": _BERT,
    "xlm-roberta": _ROBERTA,
    "mpnet": _BERT | {"max_position_embeddings": 514},
    "albert": _BERT | {"embedding_size": 384},
    "distilbert": {"n_layers": 6, "dim": 384, "n_heads": HEADS, "hidden_dim": FFN},
    "deberta-v2": _DEBERTA | _BERT,
    "modernbert": _GATED | _IDS | {"max_position_embeddings": 8192},
    "eurobert": _GATED | _IDS | {"num_key_value_heads": HEADS, "max_position_embeddings": 8192},
    "longformer": _ROBERTA | {"attention_window": 512, "max_position_embeddings": 4098},
}
# Backend, and the stage that writes its file.
BACKENDS = {"torch": "export", "torch:bf16": "export", "onnxruntime": "export", "onnxruntime:int8": "quantize"}
LONG = {"modernbert": (1024, 2048, 4096, 8192), "eurobert": (1024, 2048, 4096, 8192), "longformer": (1024, 2048, 4096)}
LONG_BACKENDS = ("torch", "torch:bf16")


class Workspace(StageRuns):
    """The models of the families."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        super().__init__(arguments.out, arguments.threads, {"pieces": str(arguments.pieces)})

    def source(self, family: str) -> str:
        """Return a family's checkpoint, built where it is missing."""
        path: Path = self.out / "checkpoints" / family
        if not (path / "model.safetensors").exists():
            values = {"vocab_size": self.arguments.pieces, **FAMILIES[family]}
            full_size.build(family, values, path, "TokenClassification")
        return str(path)

    def written(self, family: str, stage: str) -> str:
        """Return what a stage made of a family."""
        tolerance = ("--tolerance", "0") if stage == "quantize" else ()  # random weights have random classes
        return str(self.make(f"{family}-{stage}", stage, self.source(family), *tolerance))

    def rows(self, checkpoints: Sequence[str], backend: str, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """Measure checkpoints on a backend in turns."""
        options, sizes = self.arguments, ("--length", ",".join(map(str, lengths)))
        batches = ("--batch-size", options.batch_size if len(lengths) == 1 else "1")
        threads = ("--threads", str(options.threads), "--rounds", str(options.rounds))
        words = ["bench", *checkpoints, "--backend", backend, *sizes, *batches, *threads]
        rows: list[dict[str, Any]] = self.biosqueeze("bench", words)["rows"]
        return rows


def short_inputs(workspace: Workspace) -> str:
    """Measure 128 tokens on all backends."""
    families = workspace.arguments.families
    models = {stage: [workspace.written(family, stage) for family in families] for stage in set(BACKENDS.values())}
    cells: dict[str, list[str]] = {family: [] for family in families}
    heads: list[str] = []
    for backend, stage in BACKENDS.items():
        rows = workspace.rows(models[stage], backend, (128,))
        shapes = list(dict.fromkeys(row["batch_size"] for row in rows))
        heads += [f"{backend}, {size} x 128" for size in shapes]
        for family, checkpoint in zip(families, models[stage], strict=True):
            own = [row for row in rows if row["checkpoint"] == checkpoint]
            cells[family] += [f"{row['p50_ms']:.1f}" for row in own]
    return _table(("family", *heads), [(family, *values) for family, values in cells.items()])


def long_inputs(workspace: Workspace) -> str:
    """Measure long inputs on PyTorch."""
    lines = []
    for family, lengths in LONG.items():
        if family in workspace.arguments.families:
            for backend in LONG_BACKENDS:
                rows = workspace.rows([workspace.source(family)], backend, lengths)
                times = [f"{row['p50_ms']:,.0f}" for row in rows]
                blank = [""] * (len(LONG["modernbert"]) - len(times))
                lines.append((family, backend, *times, *blank, f"{rows[-1]['peak_rss_mb']:,.0f}"))
    return _table(("family", "backend", "1,024", "2,048", "4,096", "8,192", "peak MB"), lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    """Build the models, measure them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("family-latency"))
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(FAMILIES))
    parser.add_argument("--pieces", type=int, default=8192)
    parser.add_argument("--batch-size", default="1,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--long", action="store_true", help="inputs of 1,024 to 8,192 tokens")
    parser.add_argument("--build-only", action="store_true", help="write the models, and measure nothing")
    workspace = Workspace(parser.parse_args())
    if workspace.arguments.build_only:
        for family in workspace.arguments.families:
            for stage in ("export", "quantize"):
                print(workspace.written(family, stage))
        return
    text = long_inputs(workspace) if workspace.arguments.long else short_inputs(workspace)
    (workspace.out / ("long.md" if workspace.arguments.long else "short.md")).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
