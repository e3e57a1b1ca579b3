"""Encoding of a text or a pair of texts as one window, and decoding of its logits into classes and probabilities."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import INPUT_IDS, LABELS, TOKEN_TYPE_IDS
from biosqueeze.data.records.columns import SHOWN
from biosqueeze.data.records.splits import shortened
from biosqueeze.data.sequence_frame import SequenceFrame
from biosqueeze.data.text.blocks import Ids, room_within
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import CountedWarning, warn
from biosqueeze.tasks.encoding.entities import FIRST, SECOND

Floats = NDArray[np.float32]
TEXTS_AT_ONCE = 1024


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts, and its label."""

    texts: tuple[str, ...]  # one or two
    gold: Any  # None if unlabelled
    id: str = ""
    where: str = ""  # file and line

    @property
    def document(self) -> str:
        """The first text of a pair, such as a premise with several hypotheses: a split holds all of them or none."""
        return self.texts[0] if len(self.texts) > 1 else ""


@dataclass(frozen=True)
class SequenceWindow:
    """The input sequence of one example."""

    example: int
    features: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _TruncatedInput:
    """An input that fits into a window."""

    ids: Ids  # (length,) with special tokens
    types: Ids  # (length,) 0 and 1 for the texts of a pair, if the tokenizer distinguishes them
    removed: int  # sub-words that were cut off


def encode_sequences(inputs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int) -> list[dict[str, Ids]]:
    """Encode each input as one window; texts beyond max_length lose their end, with a warning.

    Of a pair only the longer text is truncated, down to the length of the shorter one; if that is not enough, both are
    truncated to half of the room.

    Args:
        inputs: all single texts, or all pairs.
        tokenizer: a fast tokenizer.
        max_length: tokens in a window, special ones included.

    Returns:
        for each input `input_ids` (length,), and for pairs `token_type_ids` (length,).

    Raises:
        SqueezeError: max_length leaves no room for text.
    """
    if not inputs:
        return []
    texts = len(inputs[0])
    frame = SequenceFrame.of(tokenizer, texts)
    room = room_within(max_length, frame, texts)
    cuts = [_framed(pieces, frame, room) for pieces in _pieces_of(inputs, tokenizer)]
    warn_of_truncation([len(cut.ids) + cut.removed for cut in cuts], max_length)
    return [{INPUT_IDS: cut.ids} | ({TOKEN_TYPE_IDS: cut.types} if texts > 1 else {}) for cut in cuts]


def side_by_side(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return two separately encoded texts as one window, one after the other.

    Args:
        first: with `input_ids` (length,).
        second: the same.

    Returns:
        `input_ids`, and `entities`: FIRST or SECOND, the text that each token belongs to; (both lengths,) each.
    """
    ids = [first[INPUT_IDS], second[INPUT_IDS]]
    owners = [np.full(len(own), bit, dtype=np.int64) for own, bit in zip(ids, (FIRST, SECOND), strict=True)]
    return {INPUT_IDS: np.concatenate(ids), "entities": np.concatenate(owners)}


def sequence_windows(
    examples: Sequence[TextExample],
    label_features: Sequence[Mapping[str, NDArray[Any]]],
    tokenizer: Tokenizer,
    max_length: int,
) -> list[SequenceWindow]:
    """Return one window per example, with its label features (such as `labels` ()) among the features."""
    encoded = encode_sequences([example.texts for example in examples], tokenizer, max_length)
    return [
        SequenceWindow(number, {**features, **labels})
        for number, (features, labels) in enumerate(zip(encoded, label_features, strict=True))
    ]


def class_features(examples: Sequence[TextExample], labels: Sequence[str]) -> list[dict[str, NDArray[Any]]]:
    """Return the label features of single-label examples: `labels` () each; none for unlabelled examples.

    Raises:
        SqueezeError: an example has an unknown label.
    """
    ids = {label: number for number, label in enumerate(labels)}
    return [
        {} if example.gold is None else {LABELS: np.array(id_of(example.gold, ids, example.where), dtype=np.int64)}
        for example in examples
    ]


def id_of(label: str, ids: Mapping[str, int], where: str) -> int:
    """Return the id of a label.

    Raises:
        SqueezeError: the label is unknown.
    """
    try:
        return ids[label]
    except KeyError as error:
        raise SqueezeError(
            f"{where or 'the data'}: the label {label!r} is not a label of the model ({shortened(list(ids), SHOWN)}); "
            "give the data that it was fine-tuned on, or fine-tune it on these"
        ) from error


def kept_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many sub-words of each text of a pair are kept: the longer text is cut first, to the other's length.

    BERT's own scripts do the same one sub-word at a time. An odd sub-word is left to the longer text.
    """
    short, long = sorted((first, second))
    if short + long > room:
        short = min(short, room // 2)
        long = room - short
    return (long, short) if first > second else (short, long)


def warn_of_truncation(lengths: Sequence[int], max_length: int) -> None:
    """Warn if inputs were truncated.

    Args:
        lengths: of all inputs before truncation, in tokens with special ones.
        max_length: of the windows.
    """
    cut = sum(length > max_length for length in lengths)
    if cut:
        detail = (
            f" (the longest has {max(lengths):,}) and are truncated; --max-length sets this, up to the model's limit"
        )
        warn(CountedWarning(cut, f"inputs are longer than {max_length} tokens", len(lengths), detail))


def logits_by_example(windows: Sequence[SequenceWindow], logits: Sequence[Floats], examples: int) -> Floats:
    """Return the logits in the order of the examples, (examples, labels).

    Raises:
        ValueError: an example does not have exactly one window.
    """
    if sorted(window.example for window in windows) != list(range(examples)):
        raise ValueError("every example must have exactly one window")
    if not examples:
        return np.zeros((0, 1), dtype=np.float32)
    order = np.argsort([window.example for window in windows])
    return np.stack(logits)[order]


def likeliest_labels(rows: Floats, labels: Sequence[str]) -> list[str]:
    """Return the label with the highest logit in each row of (examples, labels)."""
    return [labels[index] for index in rows.argmax(axis=-1)]


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the probabilities of exclusive classes, (..., classes), in float64 so that they add up to 1."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    probabilities: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(rows: Floats) -> NDArray[np.float64]:
    """Return the probabilities of independent classes, (examples, labels)."""
    # exp(-|x|) cannot overflow.
    small = np.exp(-np.abs(rows.astype(np.float64)))
    return np.where(rows >= 0, 1.0, small) / (1.0 + small)


def describe_classes(rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the likeliest label of each row of logits, and the probability of every label."""
    return [
        {"label": label, "score": float(scores.max()), "scores": dict(zip(labels, map(float, scores), strict=True))}
        for label, scores in zip(likeliest_labels(rows, labels), softmax(rows), strict=True)
    ]


def _framed(pieces: Sequence[Ids], frame: SequenceFrame, room: int) -> _TruncatedInput:
    lengths = [len(text) for text in pieces]
    kept = kept_lengths(lengths[0], lengths[1], room) if len(lengths) > 1 else (min(lengths[0], room),)
    ids, types = frame.framed([text[:length] for text, length in zip(pieces, kept, strict=True)])
    return _TruncatedInput(ids, types, sum(lengths) - sum(kept))


def _pieces_of(inputs: Sequence[tuple[str, ...]], tokenizer: Tokenizer) -> Iterator[tuple[Ids, ...]]:
    """Yield the sub-words of each input's texts, without special tokens."""
    for start in range(0, len(inputs), TEXTS_AT_ONCE):
        batch = inputs[start : start + TEXTS_AT_ONCE]
        sides = [_ids(list(side), tokenizer) for side in zip(*batch, strict=True)]
        yield from zip(*sides, strict=True)


def _ids(texts: list[str], tokenizer: Tokenizer) -> list[Ids]:
    encoded = tokenizer(
        texts, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
    )
    return [np.asarray(ids, dtype=np.int64) for ids in encoded["input_ids"]]
