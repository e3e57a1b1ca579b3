"""A few examples of many, drawn with a seed, for few-shot training and learning curves."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from biosqueeze.errors import UsageError

Item = TypeVar("Item")


def draw_examples(examples: Sequence[Item], size: int, seed: int) -> tuple[Item, ...]:
    """Draw `size` examples without replacement, in their order; labels that are classes keep their proportions.

    Args:
        examples: each with a `gold`; where that is a class (a string), every class gets its share, and at least
            one example where `size` allows. Sets of labels, tags and numbers are drawn freely.
        size: how many.
        seed: equal seeds draw equal examples.

    Raises:
        UsageError: there are fewer.
    """
    if size > len(examples):
        raise UsageError(
            f"--train-size {size} is more than the {len(examples):,} training examples; leave it out to train on all"
        )
    strata = [class_of(example) for example in examples]
    members: dict[Hashable, list[int]] = {}
    for number, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(number)
    shares = apportion({stratum: len(found) for stratum, found in members.items()}, size)
    rng = np.random.default_rng(seed)
    chosen = [n for s in sorted(members, key=str) for n in rng.permutation(members[s])[: shares[s]].tolist()]
    return tuple(examples[number] for number in sorted(chosen))


def hold_out(examples: Sequence[Item], share: float, seed: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Part the examples in two, the second with about `share` of them, drawn as by `draw_examples`; at least one each.

    Raises:
        UsageError: there are not two examples.
    """
    if len(examples) < 2:
        raise UsageError("one training example cannot be parted into train and dev; give more")
    size = min(max(1, round(share * len(examples))), len(examples) - 1)
    # What is the only one of its class is learned from.
    counts = Counter(map(class_of, examples))
    several = [example for example in examples if counts[class_of(example)] > 1] or examples
    held = {id(example) for example in draw_examples(several, min(size, len(several)), seed)}
    return tuple(e for e in examples if id(e) not in held), tuple(e for e in examples if id(e) in held)


def class_of(example: Any) -> str | None:
    """The class of an example where its truth is one, else None."""
    return example.gold if isinstance(example.gold, str) else None


def apportion(counts: dict[Hashable, int], size: int) -> dict[Hashable, int]:
    """Split `size` in proportion to the counts: one for every kind first, then the next to whom most is owed.

    Args:
        counts: how many there are of each.
        size: at most their sum. Below the number of kinds, the largest kinds come first.
    """
    total = sum(counts.values())
    order = sorted(counts, key=lambda kind: (-counts[kind], str(kind)))
    shares = {kind: int(rank < size) for rank, kind in enumerate(order)}
    for _ in range(size - sum(shares.values())):
        open_kinds = [kind for kind in order if shares[kind] < counts[kind]]
        shares[max(open_kinds, key=lambda kind: size * counts[kind] / total - shares[kind])] += 1
    return shares


def describe_draw(drawn: Sequence[Any], total: int) -> str:
    """What was drawn, for people: 32 of 500 training examples (no 12, yes 20)."""
    classes = Counter(name for name in map(class_of, drawn) if name is not None)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(classes.items()))
    return f"{len(drawn):,} of {total:,} training examples" + (f" ({counts})" if counts else "")
