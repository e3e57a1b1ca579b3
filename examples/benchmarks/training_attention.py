"""Time of attention and of the divergence of attention maps in bf16 training on a CPU.

    python training_attention.py --threads 2

Forward and backward of one layer, by torch's fused kernel and by the implementation of biosqueeze: 2,048 tokens as rows
of several lengths, a quarter of each row padding, without and with dropout. Then the loss `attention-kl` of one layer
with its gradient, over the whole batch and a few texts at a time: 32 texts of half to all of a length. Both of a pair
alternate, and the median of --rounds is printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from biosqueeze.models.fast_training.attention import attention_forward
from biosqueeze.objectives._divergence import Sides, divergence, scores
from biosqueeze.system.memory import keep_freed_memory

TOKENS, TEXTS = 2048, 32
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
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = IMPLEMENTATIONS[implementation](module, query, key, value, mask, dropout=dropout)
    output.backward(back)
    return 1000 * (time.perf_counter() - started)


def whole_divergence(first: Sides, second: Sides, allowed: Tensor) -> Tensor:
    """Compute the divergence of all texts at once, and leave the gradient to autograd."""
    lowest = torch.finfo(torch.float32).min
    masked = (scores(sides).masked_fill(~allowed.unsqueeze(1), lowest) for sides in (first, second))
    p, q = (each.log_softmax(dim=-1) for each in masked)
    return (p.exp() * (p - q)).sum() / p.shape[1]


DIVERGENCES = {"whole": whole_divergence, "parts": divergence}


def divergence_milliseconds(implementation: str, length: int, heads: int, size: int) -> float:
    """Measure the loss and its gradient with respect to the student's queries and keys."""
    vectors = [torch.randn(TEXTS, length, heads, size, dtype=torch.bfloat16).transpose(1, 2) for _ in range(4)]
    teacher, student = Sides(*vectors[:2]), Sides(*(vector.requires_grad_() for vector in vectors[2:]))
    real = torch.arange(length) < torch.randint(length // 2, length + 1, (TEXTS, 1))
    started = time.perf_counter()
    DIVERGENCES[implementation](teacher, student, real.unsqueeze(2) & real.unsqueeze(1)).backward()
    return 1000 * (time.perf_counter() - started)


def medians(names: Iterable[str], measure: Callable[[str], float], rounds: int) -> list[float]:
    """Return the median of each implementation, which take turns, after a round that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds + 1):
        for name, times in taken.items():
            times.append(measure(name))
    return [statistics.median(times[1:]) for times in taken.values()]


def rows(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the tables."""
    yield "| heads x size | length | dropout | SDPA, ms | ours, ms | ratio |"
    yield "|---|---|---|---|---|---|"
    for heads, size in ((12, 32), (12, 64)):
        for length in (32, 64, 128, 512):
            for dropout in (0.0, 0.1):
                measure = partial(milliseconds, length=length, heads=heads, size=size, dropout=dropout)
                fused, ours = medians(IMPLEMENTATIONS, measure, arguments.rounds)
                yield f"| {heads} x {size} | {length} | {dropout:g} | {fused:.1f} | {ours:.1f} | {fused / ours:.1f} |"
    yield ""
    yield "| heads x size | length | whole batch, ms | in parts, ms | ratio |"
    yield "|---|---|---|---|---|"
    for length in (32, 64, 128, 256, 512):
        measure = partial(divergence_milliseconds, length=length, heads=12, size=32)
        whole, parts = medians(DIVERGENCES, measure, arguments.rounds)
        yield f"| 12 x 32 | {length} | {whole:.1f} | {parts:.1f} | {whole / parts:.1f} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()  # as in a training
    print(f"torch {torch.__version__}, {arguments.threads} threads\n")
    for row in rows(arguments):
        print(row, flush=True)


if __name__ == "__main__":
    main()
