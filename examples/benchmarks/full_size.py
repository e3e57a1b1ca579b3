"""Shrink, export and quantize an encoder of full size with random weights: processor time and peak memory.

    python full_size.py xlm-roberta-base --out full

The checkpoint is built from the config of the published model, with its masked-language-model head (or another one by
--head) and a Unigram tokenizer of invented pieces with as many ids. Every command is a process of its own; the table
goes to standard output.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
_DEBERTA = {
    "vocab_size": 128_100,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_SHALLOW = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
# model_type, and the values of the published config that differ from transformers' defaults.
CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bert-large": ("bert", _LARGE | {"vocab_size": 28_996}),
    "xlm-roberta-base": ("xlm-roberta", _ROBERTA | {"vocab_size": 250_002}),
    "xlm-roberta-large": ("xlm-roberta", _ROBERTA | _LARGE | {"vocab_size": 250_002}),
    "mpnet-base": ("mpnet", {"max_position_embeddings": 514}),
    "deberta-v3-base": ("deberta-v2", _DEBERTA),
    "modernbert-base": ("modernbert", {}),
    "eurobert-210m": ("eurobert", {}),
    "bert-shallow": ("bert", _SHALLOW | {"vocab_size": 28_996}),
    "xlm-roberta-shallow": ("xlm-roberta", _ROBERTA | _SHALLOW | {"vocab_size": 250_002}),
}
# Options of `shrink`, and the config keys of which they keep half.
HALVED = {
    "--layers": "num_hidden_layers",
    "--heads": "num_attention_heads",
    "--ffn": "intermediate_size",
}


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    wall: float
    cpu: float
    gib: float


def build(family: str, values: Mapping[str, Any], out: Path, head: str = "MaskedLM") -> None:
    """Write a checkpoint with random weights and a tokenizer.

    Args:
        family: its `model_type`.
        values: of its config, where they differ from transformers' defaults.
        out: the directory.
        head: ending of a class of transformers.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    config = transformers.CONFIG_MAPPING[family](**values)
    torch.manual_seed(0)
    model = getattr(transformers, f"AutoModelFor{head}").from_config(config, dtype=torch.float32)
    pieces = _pieces(config.vocab_size, config.pad_token_id or 0)
    core = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=pieces.index("<unk>")))
    core.pre_tokenizer, core.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    frame = [(token, pieces.index(token)) for token in ("<s>", "</s>")]
    core.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", frame)
    tokens = {
        "bos": "<s>",
        "eos": "</s>",
        "cls": "<s>",
        "sep": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=10**9, **{f"{role}_token": token for role, token in tokens.items()}
    )
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)


def _pieces(count: int, padding: int) -> list[str]:
    """Return special tokens, <pad> at its id, and all words of one to four letters until there are enough."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGH"
    words = ("".join(word) for size in itertools.count(1) for word in itertools.product(letters, repeat=size))
    marked = (piece for word in words for piece in (word, "\u2581" + word))
    pieces = ["<s>", "</s>", "<unk>", "<mask>", "\u2581", *itertools.islice(marked, count - 6)]
    pieces.insert(padding, "<pad>")
    return pieces


def measure(words: Sequence[str], threads: int = 1) -> Cost:
    """Run a command, and return its wall time and processor time in seconds, and its peak memory.

    Raises:
        SystemExit: it failed.
    """
    start = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit status {process.returncode}")
    return Cost(time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def _size(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e9


def main() -> None:
    """Print a row for every command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", choices=CONFIGS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head", choices=("MaskedLM", "TokenClassification"), default="MaskedLM")
    parser.add_argument("--only", choices=("shrink", "export", "quantize"), help="run one command")
    parser.add_argument("--keep", action="store_true", help="keep the checkpoints")
    arguments = parser.parse_args()
    source = arguments.out / f"{arguments.config}-{arguments.head}"
    if not (source / "model.safetensors").is_file():
        build(*CONFIGS[arguments.config], source, arguments.head)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    halves = [word for option, key in HALVED.items() for word in (option, str(config[key] // 2))]
    commands = {
        "shrink": ("shrink", str(source), *halves),
        "export": ("export", str(source)),
        "quantize": ("quantize", str(source), "--embeddings", "--tolerance", "0"),
    }
    for name, words in commands.items():
        if arguments.only not in (None, name):
            continue
        target = arguments.out / f"{arguments.config}-{name}"
        shutil.rmtree(target, ignore_errors=True)
        cost = measure([sys.executable, "-m", "biosqueeze", *words, "--out", str(target)])
        row = (
            arguments.config,
            arguments.head,
            " ".join(words).replace(str(source), "T"),
            f"{cost.cpu:.0f}",
            f"{cost.wall:.0f}",
        )
        print("| " + " | ".join((*row, f"{cost.gib:.1f}", f"{_size(target):.2f}")) + " |", flush=True)
        if not arguments.keep:
            shutil.rmtree(target)


if __name__ == "__main__":
    main()
