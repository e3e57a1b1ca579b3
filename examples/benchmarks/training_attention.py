"""Time of attention in bf16 training on a CPU: torch's fused kernel, and the implementation of biosqueeze.

    python training_attention.py --threads 2

Forward and backward of one layer, 2,048 tokens as rows of several lengths, a quarter of each row padding, without and
with dropout; both alternate, and the median of --rounds is printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from biosqueeze.models.attention import attention_forward

TOKENS = 2048
IMPLEMENTATIONS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    "SDPA": sdpa_attention_forward,
    "ours": attention_forward,
}


def milliseconds(implementation: str, length: int, heads: int, size: int, dropout: float) -> float:
    """Measure one layer, forward and backward."""
    rows, module = TOKENS // length, nn.Module()
    query, key, value = (
        torch.randn(rows, length, heads, size, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3)
    )
    mask = (torch.arange(length) < length * 3 // 4).expand(rows, 1, length, length)
    back = torch.randn(rows, length, heads, size, dtype=torch.bfloat16)
    started = time.perf_counter()
    IMPLEMENTATIONS[implementation](module, query, key, value, mask, dropout=dropout)[0].backward(back)
    return 1000 * (time.perf_counter() - started)


def rows(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| heads x size | length | dropout | SDPA, ms | ours, ms | ratio |"
    yield "|---|---|---|---|---|---|"
    for heads, size in ((12, 32), (12, 64)):
        for length in (32, 64, 128, 512):
            for dropout in (0.0, 0.1):
                taken: dict[str, list[float]] = {name: [] for name in IMPLEMENTATIONS}
                for _ in range(arguments.rounds + 1):
                    for name, times in taken.items():
                        times.append(milliseconds(name, length, heads, size, dropout))
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
