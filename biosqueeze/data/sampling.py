"""Draw a few of many examples with a seed, for few-shot training and learning curves."""

from collections import Counter
from collections.abc import Hashable, Sequence, Set
from typing import Any, TypeVar

import numpy as np

from biosqueeze.errors import UsageError

Item = TypeVar("Item")


def draw_examples(examples: Sequence[Item], size: int, seed: int) -> tuple[Item, ...]:
    """Draw `size` examples without replacement, in their order, stratified by class.

    Args:
        examples: each with a `gold`. If it is a class (a string), every class is drawn in its proportion, with at
            least one example if `size` allows. Examples with sets of labels, tags or numbers form one stratum.
        size: how many to draw.
        seed: equal seeds draw equal examples.

    Raises:
        UsageError: there are fewer examples.
    """
    check_train_size(size, len(examples))
    members: dict[Hashable, list[int]] = {}
    for index, example in enumerate(examples):
        members.setdefault(class_of(example), []).append(index)
    shares = apportion({stratum: len(indices) for stratum, indices in members.items()}, size)
    rng = np.random.default_rng(seed)
    chosen = [i for s in sorted(members, key=str) for i in rng.permutation(members[s])[: shares[s]].tolist()]
    return tuple(examples[index] for index in sorted(chosen))


def check_train_size(size: int | None, total: int) -> None:
    """Check --train-size against the number of training examples.

    Raises:
        UsageError: there are fewer.
    """
    if size and size > total:
        raise UsageError(
            f"--train-size {size} is more than the {total:,} training examples; leave it out to train on all"
        )


def hold_out(examples: Sequence[Item], share: float, seed: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Divide examples in two, the second with about `share` of them, drawn as by `draw_examples`; at least one each.

    Examples of one document (sentences, or hypotheses of a premise) are not divided, unless it is the only one.

    Raises:
        UsageError: there are fewer than two examples.
    """
    if len(examples) < 2:
        raise UsageError("one training example cannot be divided into train and dev; give more")
    size = min(max(1, round(share * len(examples))), len(examples) - 1)
    documents = _documents(examples)
    if 1 < len(documents) < len(examples):
        held = {id(example) for document in _draw_documents(documents, size, seed) for example in document}
        return _divided(examples, held)
    # The only example of a class stays in train.
    counts = Counter(map(class_of, examples))
    candidates = [example for example in examples if counts[class_of(example)] > 1] or examples
    held = {id(example) for example in draw_examples(candidates, min(size, len(candidates)), seed)}
    return _divided(examples, held)


def _divided(examples: Sequence[Item], held: Set[int]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    return tuple(e for e in examples if id(e) not in held), tuple(e for e in examples if id(e) in held)


def _documents(examples: Sequence[Item]) -> list[list[Item]]:
    """Group examples by their document; one without, as a line of a table has none, is a group of its own."""
    groups: dict[Hashable, list[Item]] = {}
    for example in examples:
        groups.setdefault(getattr(example, "document", "") or id(example), []).append(example)
    return list(groups.values())


def _draw_documents(documents: Sequence[Sequence[Item]], size: int, seed: int) -> list[Sequence[Item]]:
    """Draw documents with about `size` examples together, and no class as a whole; at least one document."""
    left = Counter(class_of(example) for document in documents for example in document)
    drawn: list[Sequence[Item]] = []
    count = 0  # of their examples
    for index in np.random.default_rng(seed).permutation(len(documents)).tolist():
        document, classes = documents[index], Counter(map(class_of, documents[index]))
        is_near = count + len(document) / 2 <= size  # no further from `size` with this document than without it
        if is_near and all(left[name] > number for name, number in classes.items()):
            drawn.append(document)
            count += len(document)
            left -= classes
    return drawn or [min(documents, key=len)]


def class_of(example: Any) -> str | None:
    """Return the class of an example, or None if its gold is not a class."""
    return example.gold if isinstance(example.gold, str) else None


def apportion(counts: dict[Hashable, int], size: int) -> dict[Hashable, int]:
    """Divide `size` in proportion to counts: one for each key first, then each to the key furthest below its share.

    Args:
        counts: how many there are of each.
        size: at most their sum. If it is below the number of keys, those with the largest counts come first.
    """
    total = sum(counts.values())
    order = sorted(counts, key=lambda key: (-counts[key], str(key)))
    shares = {key: int(rank < size) for rank, key in enumerate(order)}
    for _ in range(size - sum(shares.values())):
        candidates = [key for key in order if shares[key] < counts[key]]
        shares[max(candidates, key=lambda key: size * counts[key] / total - shares[key])] += 1
    return shares


def describe_draw(drawn: Sequence[Any], total: int) -> str:
    """Describe the drawn examples for messages: 32 of 500 training examples (no 12, yes 20)."""
    classes = Counter(name for name in map(class_of, drawn) if name is not None)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(classes.items()))
    return f"{len(drawn):,} of {total:,} training examples" + (f" ({counts})" if counts else "")
