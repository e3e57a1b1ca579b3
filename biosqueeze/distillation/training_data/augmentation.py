"""Augment labelled examples: replace words by proposals of a masked language model.

TinyBERT's data augmentation (Jiao et al. 2020, section 3.2 and algorithm 1; p_t = 0.4, K = 15), with two differences. A
word of several tokens is replaced by a single mask, where TinyBERT takes its neighbours in GloVe. And words of entities
are never replaced, so that the tags stay valid.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.text.blocks import Ids
from biosqueeze.distillation.request import AugmentationSettings
from biosqueeze.distillation.training_data.word_proposer import CANDIDATES, MaskedWord, Proposer, open_proposer
from biosqueeze.errors import UsageError
from biosqueeze.progress import note
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE
from biosqueeze.tasks.readers.tagged import Sentence

# Returns new examples for labelled ones.
Augmentation = Callable[[Sequence[Any]], list[Any]]

KINDS = ("ner", "pico", "classification")
REPLACED = 0.4  # p_t: the probability that a word is replaced

# Words (a hyphenated word is one), numbers and punctuation.
_TOKENS = re.compile(r"\w+(?:[-'\u2019]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class ReplaceableText:
    """An example as words."""

    words: tuple[str, ...]
    free: Ids  # indices of the words that may be replaced: alphabetic, and in no entity
    spans: tuple[tuple[int, int], ...] = ()  # character range of each word, where there is a text


@dataclass(frozen=True)
class Draws:
    """The random choices for one example."""

    replaced: NDArray[np.bool_]  # (copies, free words)
    ranks: Ids  # (copies, free words) index of the candidate


def augment(examples: Sequence[Any], copies: int, proposer: Proposer, seed: int) -> list[Any]:
    """Return new examples with the labels of their originals, without duplicates of one original.

    Args:
        examples: sentences with tags, or labelled texts.
        copies: attempts for each.
        proposer: proposes words.
        seed: of all random choices; those of an example depend on its number alone.
    """
    texts = [text_of(example) for example in examples]
    draws = [_draw(len(text.free), copies, len(proposer), seed, number) for number, text in enumerate(texts)]
    masked = [
        MaskedWord(number, int(word))
        for number, (text, draw) in enumerate(zip(texts, draws, strict=True))
        for word in text.free[draw.replaced.any(axis=0)]
    ]
    proposals = proposer.propose([text.words for text in texts], masked)
    candidates = {(place.text, place.word): row for place, row in zip(masked, proposals, strict=True)}

    def proposed(number: int, word: int, rank: int) -> str:
        return proposer.words[int(candidates[number, word][rank])]

    return [
        with_words(example, text, words)
        for number, (example, text, draw) in enumerate(zip(examples, texts, draws, strict=True))
        for words in _copies(text, draw, partial(proposed, number))
    ]


def _copies(text: ReplaceableText, draw: Draws, proposed: Callable[[int, int], str]) -> Iterator[tuple[str, ...]]:
    """Yield the distinct results of the replacements, without the original."""
    known = {text.words}
    for replaced, ranks in zip(draw.replaced, draw.ranks, strict=True):
        words = list(text.words)
        for word, rank in zip(text.free[replaced].tolist(), ranks[replaced].tolist(), strict=True):
            words[word] = with_case_of(words[word], proposed(word, rank))
        if tuple(words) not in known:
            known.add(tuple(words))
            yield tuple(words)


def _draw(free: int, copies: int, words: int, seed: int, number: int) -> Draws:
    rng = np.random.default_rng([seed, number])
    replaced = rng.random((copies, free)) < REPLACED
    return Draws(replaced, rng.integers(min(CANDIDATES, words), size=(copies, free)))


def text_of(example: Sentence | TextExample) -> ReplaceableText:
    """Split an example into words, and select those that may be replaced."""
    if isinstance(example, Sentence):
        free = [w.isalpha() and tag == OUTSIDE for w, tag in zip(example.words, example.tags, strict=True)]
        return ReplaceableText(example.words, np.flatnonzero(free))
    matches = list(_TOKENS.finditer(example.texts[0]))
    words = tuple(match[0] for match in matches)
    spans = tuple(match.span() for match in matches)
    return ReplaceableText(words, np.flatnonzero([word.isalpha() for word in words]), spans)


def with_words(example: Any, text: ReplaceableText, words: Sequence[str]) -> Any:
    """Return the example with other words and the same labels."""
    if isinstance(example, Sentence):
        return replace(example, words=tuple(words), text="", offsets=())
    original, parts, end = example.texts[0], [], 0
    for (start, stop), word in zip(text.spans, words, strict=True):
        parts += [original[end:start], word]
        end = stop
    return replace(example, texts=("".join([*parts, original[end:]]),))


def with_case_of(word: str, candidate: str) -> str:
    """Capitalize the candidate where the word is capitalized: an uncased model proposes lower case only."""
    return candidate.capitalize() if word.istitle() and candidate.islower() else candidate


def build_augmentation(
    settings: AugmentationSettings | None, kind: str | None, teacher: Checkpoint, precision: str
) -> Augmentation | None:
    """Build the function that augments labelled examples; None without --augment.

    Args:
        settings: of --augment.
        kind: of the teacher's task.
        teacher: the checkpoint that it was fine-tuned from proposes words, where no other model is named.
        precision: "fp32" or "bf16".

    Raises:
        UsageError: the kind has no replaceable words, or no model can propose any.
    """
    if settings is None:
        return None
    check_kind(str(kind))
    proposer = open_proposer(settings, teacher, precision)

    def augmentation(examples: Sequence[Any]) -> list[Any]:
        added = augment(examples, settings.copies, proposer, settings.seed)
        note(f"augmented: {len(added):,} examples added to {len(examples):,}")
        return added

    return augmentation


def check_kind(kind: str) -> None:
    """Check that replacing words keeps the labels of a kind valid.

    Raises:
        UsageError: it does not.
    """
    if kind not in KINDS:
        raise UsageError(f"--augment works for {', '.join(KINDS)}, and this teacher's task is {kind}; leave it out")
