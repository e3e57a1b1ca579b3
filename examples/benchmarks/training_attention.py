"""How long attention takes in a training on a CPU, in bf16: torch's fused one, and the one that biosqueeze trains by.

    python training_attention.py --threads 2

Forward and backward of one layer, 2,048 tokens as rows of several lengths, a quarter of each row padding, without and
with dropout; both in turns, the median of --rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from biosqueeze.models.attention import attend

TOKENS = 2048
WAYS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {"SDPA": sdpa_attention_forward, "ours": attend}


def milliseconds(way: str, length: int, heads: int, size: int, dropout: float) -> float:
    """One layer, forward and backward."""
    rows, module = TOKENS // length, nn.Module()
    query, key, value = (
        torch.randn(rows, length, heads, size, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3)
    )
    mask = (torch.arange(length) < length * 3 // 4).expand(rows, 1, length, length)
    back = torch.randn(rows, length, heads, size, dtype=torch.bfloat16)
    started = time.perf_counter()
    WAYS[way](module, query, key, value, mask, dropout=dropout)[0].backward(back)
    return 1000 * (time.perf_counter() - started)


def rows(arguments: argparse.Namespace) -> Iterator[str]:
    """The table, line by line."""
    yield "| heads x size | length | dropout | SDPA, ms | ours, ms | ratio |"
    yield "|---|---|---|---|---|---|"
    for heads, size in ((12, 32), (12, 64)):
        for length in (32, 64, 128, 512):
            for dropout in (0.0, 0.1):
                taken: dict[str, list[float]] = {way: [] for way in WAYS}
                for _ in range(arguments.rounds + 1):
                    for way, times in taken.items():
                        times.append(milliseconds(way, length, heads, size, dropout))
                fused, ours = (statistics.median(times[1:]) for times in taken.values())
                yield f"| {heads} x {size} | {length} | {dropout:g} | {fused:.1f} | {ours:.1f} | {fused / ours:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads\n")
    for row in rows(arguments):
        print(row, flush=True)


if __name__ == "__main__":
    main()
