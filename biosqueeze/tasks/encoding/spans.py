"""Windows over passages beside their question, and the spans in them that score best."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.blocks import Ids
from biosqueeze.data.feature_keys import ENDS, STARTS
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import CountedWarning, warn
from biosqueeze.tasks.encoding.sequences import SequenceFrame
from biosqueeze.tasks.readers.questions import Question

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STRIDE = 128  # tokens that neighbouring windows share
QUESTION_TOKENS = 64  # of a question, as in BERT's script
ANSWER_TOKENS = 30
BEST = 20
QUESTIONS_AT_ONCE = 256


@dataclass(frozen=True)
class SpanWindow:
    """A question and a stretch of one of its passages."""

    example: int
    passage: int  # which one of the question's
    input_ids: Ids  # (length,) with special tokens
    token_type_ids: Ids  # (length,)
    span: tuple[int, int]  # positions of the answer's first and last token; (0, 0), that is [CLS], if it is not here
    first: int  # position of the passage's first token
    offsets: Ids  # (passage tokens, 2) the characters of the passage that each stands for, the end exclusive
    asked: bool = True  # False: only there to be learnt from, placed around an answer that the others cut

    @property
    def features(self) -> dict[str, Ids]:
        """What `data.collate.pad` takes; starts and ends are ()."""
        start, end = self.span
        return {
            "input_ids": self.input_ids,
            "token_type_ids": self.token_type_ids,
            STARTS: np.array(start, dtype=np.int64),
            ENDS: np.array(end, dtype=np.int64),
        }


@dataclass(frozen=True)
class Candidate:
    """A span that may be the answer."""

    score: float  # start logit + end logit
    passage: int
    start: int  # characters, the end exclusive
    end: int
    text: str


@dataclass(frozen=True)
class _Pieces:
    ids: Ids  # (pieces,)
    offsets: Ids  # (pieces, 2) characters


@dataclass(frozen=True)
class _Layout:
    """How windows are cut, and what had to give way."""

    frame: SequenceFrame
    room: int  # for question and passage together
    questions: int  # how many there are
    stride: int | None  # None: STRIDE, or half of the passage's room where that is less
    counts: "Counter[tuple[str, int | None]]" = field(default_factory=Counter)  # of (what, total): see CountedWarning

    def count(self, what: str, total: int | None = None) -> None:
        """Add one to the count of a warning that is given at the end."""
        self.counts[what, total] += 1

    def question(self, ids: Ids) -> Ids:
        """The question's pieces, cut to QUESTION_TOKENS and to half of the room."""
        most = min(QUESTION_TOKENS, self.room // 2)
        if len(ids) > most:
            self.count(f"questions are longer than {most} tokens and lose their end", self.questions)
        return ids[:most]

    def shared(self, room: int) -> int:
        """How many pieces neighbouring windows share, of `room`: always fewer, so that they get on."""
        if self.stride is None:
            return min(STRIDE, room // 2)
        if self.stride >= room:
            self.count(f"passages have less room than --stride {self.stride}: their windows share half of it")
            return room // 2
        return self.stride


def encode_spans(
    examples: Sequence[Question], tokenizer: "PreTrainedTokenizerBase", max_length: int, stride: int | None
) -> list[SpanWindow]:
    """Cut every passage into windows beside its question, in order.

    Args:
        examples: questions.
        tokenizer: a fast tokenizer.
        max_length: tokens in a window, special ones included.
        stride: tokens that neighbouring windows of a passage share; None for 128, or half of the room if less.

    Raises:
        SqueezeError: max_length leaves no room for text.
        UsageError: stride is negative.
    """
    if stride is not None and stride < 0:
        raise UsageError(f"--stride {stride} is negative; give how many tokens neighbouring windows share, such as 128")
    frame = SequenceFrame.of(tokenizer, 2)
    room = max_length - len(frame)
    if room < 2:
        raise SqueezeError(
            f"a maximum length of {max_length} leaves no room beside {len(frame)} special tokens; "
            f"give --max-length {len(frame) + 2} or more"
        )
    layout = _Layout(frame, room, len(examples), stride)
    windows = [
        window
        for number, (question, (asked, passages)) in enumerate(
            zip(examples, _tokenised(examples, tokenizer), strict=True)
        )
        for window in _windows_of(number, question, layout.question(asked), passages, layout)
    ]
    for (what, total), count in layout.counts.items():
        warn(CountedWarning(count, what, total))
    return windows


def best_spans(
    windows: Iterable[SpanWindow], logits: Iterable[NDArray[np.float32]], examples: Sequence[Question]
) -> tuple[list[list[Candidate]], list[float]]:
    """The best spans of every example over all of its windows, and its score of having no answer.

    Args:
        windows: as `encode_spans` gave them.
        logits: for each window (length or more, 2), start and end.
        examples: the questions that were encoded.

    Returns:
        for each example at most BEST candidates with different texts, the best first; and the least that [CLS]
        scores as start and end in any of its windows (BERT's null score; 0 without windows).
    """
    found: list[list[Candidate]] = [[] for _ in examples]
    nulls: list[list[float]] = [[] for _ in examples]
    for window, scores in zip(windows, logits, strict=True):
        if window.asked:
            found[window.example] += _candidates(window, scores, examples[window.example])
            nulls[window.example].append(float(scores[0, 0]) + float(scores[0, 1]))
    return [_ranked(candidates) for candidates in found], [min(null, default=0.0) for null in nulls]


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best, each text once."""
    different: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (-c.score, c.passage, c.start, c.end)):
        different.setdefault(candidate.text, candidate)
    return list(different.values())[:BEST]


def _candidates(window: SpanWindow, logits: NDArray[np.float32], question: Question) -> Iterator[Candidate]:
    text = question.passages[window.passage].text
    for score, first, last in _top_pairs(logits[window.first : window.first + len(window.offsets)]):
        start, end = int(window.offsets[first, 0]), int(window.offsets[last, 1])
        answer = text[start:end]
        if answer.strip():  # a tokenizer may count the space before a word to it
            start += len(answer) - len(answer.lstrip())
            yield Candidate(score, window.passage, start, start + len(answer.strip()), answer.strip())


def _top_pairs(logits: NDArray[np.float32]) -> list[tuple[float, int, int]]:
    """The BEST highest sums of a start and an end not before it nor ANSWER_TOKENS or more after it.

    Args:
        logits: (pieces, 2).

    Returns:
        (sum, first piece, last piece), in no order.
    """
    starts, ends = logits.astype(np.float64).T
    width = min(ANSWER_TOKENS, len(starts))
    behind = np.pad(ends, (0, width - 1), constant_values=-np.inf)
    sums = starts[:, None] + np.lib.stride_tricks.sliding_window_view(behind, width)  # (pieces, width)
    flat = sums.ravel()
    chosen = np.argpartition(-flat, BEST)[:BEST] if len(flat) > BEST else np.arange(len(flat))
    chosen = chosen[np.isfinite(flat[chosen])]
    return [(float(flat[at]), int(at // width), int(at // width + at % width)) for at in chosen]


def _tokenised(
    examples: Sequence[Question], tokenizer: "PreTrainedTokenizerBase"
) -> Iterator[tuple[Ids, list[_Pieces]]]:
    """The pieces of each question and of its passages."""
    for begin in range(0, len(examples), QUESTIONS_AT_ONCE):
        batch = examples[begin : begin + QUESTIONS_AT_ONCE]
        asked = _pieces_of([question.text for question in batch], tokenizer)
        texts = dict.fromkeys(passage.text for question in batch for passage in question.passages)
        pieces = dict(zip(texts, _pieces_of(list(texts), tokenizer), strict=True))
        for question, own in zip(batch, asked, strict=True):
            yield own.ids, [pieces[passage.text] for passage in question.passages]


def _pieces_of(texts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[_Pieces]:
    if not texts:
        return []
    encoded = tokenizer(
        texts,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        return_offsets_mapping=True,
        verbose=False,
    )
    return [
        _Pieces(np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64).reshape(-1, 2))
        for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]


def _windows_of(
    number: int, question: Question, asked: Ids, passages: Sequence[_Pieces], layout: _Layout
) -> Iterator[SpanWindow]:
    room = layout.room - len(asked)
    for index, (passage, pieces) in enumerate(zip(question.passages, passages, strict=True)):
        if not len(pieces.ids):
            layout.count("passages hold nothing that the tokenizer reads")
            continue
        shared = layout.shared(room) if len(pieces.ids) > room else 0
        answer = _pieces_in(passage.answer, pieces.offsets) if passage.answer else None
        if passage.answer and answer is None:
            layout.count("answers hold nothing that the tokenizer reads, and are not learnt")
        for start, end, counts in _stretches(len(pieces.ids), room, shared, answer, layout):
            ids, types = layout.frame.around([asked, pieces.ids[start:end]])
            first = len(ids) - len(layout.frame.parts[2]) - (end - start)
            inside = answer is not None and start <= answer[0] and answer[1] < end
            span = (first + answer[0] - start, first + answer[1] - start) if answer and inside else (0, 0)
            yield SpanWindow(number, index, ids, types, span, first, pieces.offsets[start:end], counts)


def _pieces_in(answer: tuple[int, int], offsets: Ids) -> tuple[int, int] | None:
    """The first and the last piece that stand for a character of the answer."""
    within = (offsets[:, 1] > answer[0]) & (offsets[:, 0] < answer[1]) & (offsets[:, 1] > offsets[:, 0])
    places = np.flatnonzero(within)
    return (int(places[0]), int(places[-1])) if len(places) else None


def _stretches(
    length: int, room: int, shared: int, answer: tuple[int, int] | None, layout: _Layout
) -> list[tuple[int, int, bool]]:
    """Where windows begin and end in a passage, and whether they count when it is asked about.

    Those that count depend on the passage alone. Where all of them cut the answer, one more is placed around it,
    so that it can be learnt.
    """
    starts = range(0, max(1, length - shared), room - shared)
    spans = [(start, min(start + room, length), True) for start in starts]
    if answer is None or any(start <= answer[0] and answer[1] < end for start, end, _ in spans):
        return spans
    size = answer[1] + 1 - answer[0]
    if size > room:
        layout.count("answers are longer than a window, and are not learnt; --max-length sets how long that is")
        return spans
    start = min(max(0, answer[0] - (room - size) // 2), length - room)
    return [*spans, (start, start + room, False)]
