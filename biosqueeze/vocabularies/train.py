"""Compute the pieces of a vocabulary from a sample of text, with the trainers of the `tokenizers` library.

Equal samples give equal vocabularies. The trainers alone do not see to that: WordPiece numbers the characters within
words in the order of a hash table, and breaks ties by these numbers; unigram adds up its counts in such an order.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from biosqueeze.data.text.prepared import all_cores, megabyte_progress
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import track
from biosqueeze.vocabularies.alphabet import Alphabet, choose_alphabet
from biosqueeze.vocabularies.families import WITHIN_WORD, VocabularyFamily
from biosqueeze.vocabularies.sample import TextSample

_POLL_SECONDS = 0.1
_SCORE_DIGITS = 6
_STEP = 1e-4  # of the trainer of unigram vocabularies


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a vocabulary is trained.

    Args:
        family: the encoder family that it is for.
        size: number of pieces, special tokens included.
        min_frequency: how often a pair of pieces occurs at least to be merged; not for unigram.
        limit_alphabet: most characters that are pieces of their own; not for byte-level BPE.
        uncased: whether text is lower-cased, and accents are removed.
    """

    family: VocabularyFamily
    size: int
    min_frequency: int
    limit_alphabet: int
    uncased: bool


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The trained pieces in the order of their ids, and what else the model of the kind needs."""

    pieces: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = ()  # of byte-level BPE, the first learned first
    scores: tuple[float, ...] = ()  # of unigram: logarithms of probabilities, one for each piece
    characters: int = 0  # of the alphabet
    dropped_characters: int = 0


def train_vocabulary(sample: TextSample, settings: TrainingSettings) -> Vocabulary:
    """Train a vocabulary on a sample; special tokens get the first ids, and those in `family.last` the highest.

    Raises:
        SqueezeError: the size is too small for the special tokens and the alphabet.
    """
    train = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram}
    return train[settings.family.kind](sample, settings)


def _train_wordpiece(sample: TextSample, settings: TrainingSettings) -> Vocabulary:
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=settings.uncased)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    alphabet = choose_alphabet(sample.characters(), core.normalizer.normalize_str, settings.limit_alphabet)
    pieces = [*alphabet.characters, *(WITHIN_WORD + character for character in alphabet.characters)]
    _check_size(settings, len(pieces))
    # Characters that are given as special tokens are numbered in the given order, not in that of a hash table.
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=[*settings.family.first, *pieces],
        initial_alphabet=list(alphabet.characters),
        limit_alphabet=len(alphabet.characters),
        show_progress=False,
    )
    model = _train(core, trainer, sample, alphabet)
    return _described(alphabet, pieces=_by_id(model["vocab"]))


def _train_bpe(sample: TextSample, settings: TrainingSettings) -> Vocabulary:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = Alphabet(tuple(sorted(pre_tokenizers.ByteLevel.alphabet())), 0, {})
    _check_size(settings, len(alphabet.characters))
    trainer = trainers.BpeTrainer(
        vocab_size=settings.size - len(settings.family.last),
        min_frequency=settings.min_frequency,
        special_tokens=list(settings.family.first),
        initial_alphabet=list(alphabet.characters),
        show_progress=False,
    )
    model = _train(core, trainer, sample, alphabet)
    merges = tuple((left, right) for left, right in model["merges"])
    return _described(alphabet, pieces=(*_by_id(model["vocab"]), *settings.family.last), merges=merges)


def _train_unigram(sample: TextSample, settings: TrainingSettings) -> Vocabulary:
    core = Tokenizer(models.Unigram())
    core.normalizer = _unigram_normalizer(uncased=settings.uncased)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    alphabet = choose_alphabet(sample.characters(), core.normalizer.normalize_str, settings.limit_alphabet)
    _check_size(settings, len(alphabet.characters) + 1)  # the mark of a space too
    trainer = trainers.UnigramTrainer(
        vocab_size=settings.size,
        special_tokens=list(settings.family.first),
        unk_token="<unk>",
        show_progress=False,
    )
    scored = _train(core, trainer, sample, alphabet)["vocab"]
    count = len(settings.family.first)
    learned = _reproducible((piece, score) for piece, score in scored[count:])
    return _described(
        alphabet,
        pieces=(*settings.family.first, *(piece for piece, _ in learned)),
        scores=(*(0.0 for _ in range(count)), *(score for _, score in learned)),
    )


def _reproducible(scored: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return pieces and scores, the likeliest first, without the traces of the order of a hash table.

    The trainer puts characters that it had dropped at the end again, each with a score 0.0001 lower than the one
    before: here they are in the order of their code points. The sums behind the other scores are rounded.
    """
    ordered = sorted(((round(score, _SCORE_DIGITS), piece) for piece, score in scored), key=lambda x: (-x[0], x[1]))
    start = len(ordered)
    while start > 0 and len(ordered[start - 1][1]) == 1 and _follows(ordered, start):
        start -= 1
    added = sorted(piece for _, piece in ordered[start:])
    pieces = [piece for _, piece in ordered[:start]] + added
    return [(piece, score) for piece, (score, _) in zip(pieces, ordered, strict=True)]


def _follows(ordered: Sequence[tuple[float, str]], start: int) -> bool:
    """Return whether a piece's score is a step above that of the next one, or the piece is the last."""
    return start == len(ordered) or ordered[start - 1][0] - ordered[start][0] < 1.5 * _STEP


def _unigram_normalizer(*, uncased: bool) -> normalizers.Normalizer:
    """Return the normalizer of transformers' AlbertTokenizer; a vocabulary that keeps case keeps accents."""
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    folding = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()] if uncased else []
    return normalizers.Sequence([*quotes, *folding])


def _check_size(settings: TrainingSettings, alphabet: int) -> None:
    least = len(settings.family.special_tokens) + alphabet
    if settings.size > least:
        return
    fewer = "" if settings.family.kind == "bpe" else ", or fewer characters with --limit-alphabet"
    raise SqueezeError(
        f"--size {settings.size:,} leaves no room for pieces of several characters: the special tokens "
        f"({len(settings.family.special_tokens)}) and the pieces of single characters ({alphabet:,}) take {least:,}; "
        f"give a larger --size, such as 30522{fewer}"
    )


def _by_id(vocabulary: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(vocabulary, key=vocabulary.__getitem__))


def _described(alphabet: Alphabet, **fields: Any) -> Vocabulary:
    return Vocabulary(characters=len(alphabet.characters), dropped_characters=alphabet.dropped, **fields)


def _train(core: Tokenizer, trainer: Any, sample: TextSample, alphabet: Alphabet) -> dict[str, Any]:
    """Train the tokenizer's model, and return it as tokenizer.json has it."""
    finished_reading = threading.Event()

    def texts() -> Iterator[list[str]]:
        with megabyte_progress("counting words", sample.bytes / 1e6) as progress:
            for batch in sample.batches():
                yield [alphabet.clean(line) for line in batch]
                progress.advance(sum(map(len, batch)) + len(batch))
        finished_reading.set()

    with all_cores():
        _in_background(lambda: core.train_from_iterator(texts(), trainer), finished_reading)
    model: dict[str, Any] = json.loads(core.to_str())["model"]
    return model


def _in_background(work: Callable[[], object], finished_reading: threading.Event) -> None:
    """Run the trainer in a thread, so that Ctrl-C ends the command: the library itself returns only at its end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive() and not finished_reading.is_set():
        thread.join(_POLL_SECONDS)
    with track("computing the pieces (s)") as bar:
        waited = 0.0
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            waited += _POLL_SECONDS
            if waited >= bar.done + 1:
                bar.advance()
    if failures:
        raise failures[0]
