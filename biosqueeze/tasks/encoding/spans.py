"""Windows of a question and a part of a passage, and the best scoring spans in them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import ENDS, INPUT_IDS, STARTS, TOKEN_TYPE_IDS
from biosqueeze.data.sequence_frame import SequenceFrame
from biosqueeze.data.text.blocks import Ids, room_within
from biosqueeze.data.tokenizer import Tokenizer
from biosqueeze.errors import UsageError
from biosqueeze.progress import CountedWarning, warn
from biosqueeze.tasks.readers.questions import Question

STRIDE = 128  # tokens that neighbouring windows share
QUESTION_TOKENS = 64  # the most tokens of a question, as in BERT's script
ANSWER_TOKENS = 30  # the most tokens of an answer
BEST = 20  # the most candidates per question
QUESTIONS_AT_ONCE = 256


@dataclass(frozen=True)
class SpanWindow:
    """A question and a part of one of its passages."""

    example: int
    passage: int  # index among the question's passages
    input_ids: Ids  # (length,) with special tokens
    token_type_ids: Ids  # (length,)
    span: tuple[int, int]  # positions of the answer's first and last token; (0, 0), which is [CLS], without one
    first: int  # position of the passage's first token
    offsets: Ids  # (passage tokens, 2) characters of the passage, the end exclusive
    scored: bool = True  # False: for training only, placed around an answer that all other windows cut

    @property
    def features(self) -> dict[str, Ids]:
        """The features for `data.collate.pad`; starts and ends are ()."""
        start, end = self.span
        return {
            INPUT_IDS: self.input_ids,
            TOKEN_TYPE_IDS: self.token_type_ids,
            STARTS: np.array(start, dtype=np.int64),
            ENDS: np.array(end, dtype=np.int64),
        }


@dataclass(frozen=True)
class SpanCandidate:
    """A span of a passage with its score."""

    score: float  # start logit + end logit
    passage: int
    start: int  # characters, the end exclusive
    end: int
    text: str


@dataclass(frozen=True)
class _PassagePieces:
    ids: Ids  # (pieces,)
    offsets: Ids  # (pieces, 2) characters


@dataclass(frozen=True)
class _WindowPlan:
    """The room of windows, and the counts of what does not fit."""

    frame: SequenceFrame
    room: int  # for question and passage together
    questions: int  # number of questions
    stride: int | None  # None: STRIDE, or half of the passage's room where that is less
    counts: "Counter[tuple[str, int | None]]" = field(
        default_factory=Counter
    )  # by (warning, total): see CountedWarning

    def count(self, warning: str, total: int | None = None) -> None:
        """Add one to the count of a warning that is printed at the end."""
        self.counts[warning, total] += 1

    def truncated_question(self, ids: Ids) -> Ids:
        """Return the question's sub-words, truncated to QUESTION_TOKENS and to half of the room."""
        most = min(QUESTION_TOKENS, self.room // 2)
        if len(ids) > most:
            self.count(f"questions are longer than {most} tokens and are truncated", self.questions)
        return ids[:most]

    def overlap(self, room: int) -> int:
        """Return how many sub-words neighbouring windows of a passage share: fewer than `room`, which each holds."""
        if self.stride is None:
            return min(STRIDE, room // 2)
        if self.stride >= room:
            self.count(f"passages have less room than --stride {self.stride}, so their windows share half of the room")
            return room // 2
        return self.stride


def encode_spans(
    examples: Sequence[Question], tokenizer: Tokenizer, max_length: int, stride: int | None
) -> list[SpanWindow]:
    """Cut every passage into windows, each after its question, in order.

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
    room = room_within(max_length, frame, 2)
    layout = _WindowPlan(frame, room, len(examples), stride)
    windows = [
        window
        for number, (question, (ids, passages)) in enumerate(
            zip(examples, _tokenised(examples, tokenizer), strict=True)
        )
        for window in _windows_of(number, question, layout.truncated_question(ids), passages, layout)
    ]
    for (warning, total), count in layout.counts.items():
        warn(CountedWarning(count, warning, total))
    return windows


def best_spans(
    windows: Iterable[SpanWindow], logits: Iterable[NDArray[np.float32]], examples: Sequence[Question]
) -> tuple[list[list[SpanCandidate]], list[float]]:
    """Return the best spans of every example over all of its windows, and its score of no answer.

    Args:
        windows: as returned by `encode_spans`.
        logits: for each window (length or more, 2), start and end.
        examples: the encoded questions.

    Returns:
        for each example at most BEST candidates with different texts, the best first; and the lowest sum of [CLS]'s
        start and end logits in its windows (BERT's null score; 0 without windows).
    """
    candidates: list[list[SpanCandidate]] = [[] for _ in examples]
    nulls: list[list[float]] = [[] for _ in examples]
    for window, scores in zip(windows, logits, strict=True):
        if window.scored:
            candidates[window.example] += _candidates(window, scores, examples[window.example])
            nulls[window.example].append(float(scores[0, 0]) + float(scores[0, 1]))
    return [_ranked(spans) for spans in candidates], [min(null, default=0.0) for null in nulls]


def _ranked(candidates: Sequence[SpanCandidate]) -> list[SpanCandidate]:
    """Return the best candidates, each text once."""
    different: dict[str, SpanCandidate] = {}
    for candidate in sorted(candidates, key=lambda c: (-c.score, c.passage, c.start, c.end)):
        different.setdefault(candidate.text, candidate)
    return list(different.values())[:BEST]


def _candidates(window: SpanWindow, logits: NDArray[np.float32], question: Question) -> Iterator[SpanCandidate]:
    text = question.passages[window.passage].text
    for score, first, last in _top_pairs(logits[window.first : window.first + len(window.offsets)]):
        start, end = int(window.offsets[first, 0]), int(window.offsets[last, 1])
        answer = text[start:end]
        if answer.strip():  # a tokenizer may include the space before a word
            start += len(answer) - len(answer.lstrip())
            yield SpanCandidate(score, window.passage, start, start + len(answer.strip()), answer.strip())


def _top_pairs(logits: NDArray[np.float32]) -> list[tuple[float, int, int]]:
    """Return the BEST highest sums of start and end logits, over spans of at most ANSWER_TOKENS tokens.

    Args:
        logits: (pieces, 2).

    Returns:
        (sum, first piece, last piece), unordered.
    """
    starts, ends = logits.astype(np.float64).T
    width = min(ANSWER_TOKENS, len(starts))
    padded = np.pad(ends, (0, width - 1), constant_values=-np.inf)
    sums = starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)  # (pieces, width)
    flat = sums.ravel()
    chosen = np.argpartition(-flat, BEST)[:BEST] if len(flat) > BEST else np.arange(len(flat))
    chosen = chosen[np.isfinite(flat[chosen])]
    return [(float(flat[i]), int(i // width), int(i // width + i % width)) for i in chosen]


def _tokenised(examples: Sequence[Question], tokenizer: Tokenizer) -> Iterator[tuple[Ids, list[_PassagePieces]]]:
    """Yield the sub-words of each question and of its passages."""
    for begin in range(0, len(examples), QUESTIONS_AT_ONCE):
        batch = examples[begin : begin + QUESTIONS_AT_ONCE]
        questions = _pieces_of([question.text for question in batch], tokenizer)
        texts = dict.fromkeys(passage.text for question in batch for passage in question.passages)
        pieces = dict(zip(texts, _pieces_of(list(texts), tokenizer), strict=True))
        for question, tokenized in zip(batch, questions, strict=True):
            yield tokenized.ids, [pieces[passage.text] for passage in question.passages]


def _pieces_of(texts: list[str], tokenizer: Tokenizer) -> list[_PassagePieces]:
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
        _PassagePieces(np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64).reshape(-1, 2))
        for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]


def _windows_of(
    number: int, question: Question, question_ids: Ids, passages: Sequence[_PassagePieces], layout: _WindowPlan
) -> Iterator[SpanWindow]:
    room = layout.room - len(question_ids)
    for index, (passage, pieces) in enumerate(zip(question.passages, passages, strict=True)):
        if not len(pieces.ids):
            layout.count("passages have no token and are left out")
            continue
        overlap = layout.overlap(room) if len(pieces.ids) > room else 0
        answer = _pieces_in(passage.answer, pieces.offsets) if passage.answer else None
        if passage.answer and answer is None:
            layout.count("answers have no token and are not trained on")
        for start, end, scored in _ranges(len(pieces.ids), room, overlap, answer, layout):
            ids, types = layout.frame.framed([question_ids, pieces.ids[start:end]])
            first = len(ids) - len(layout.frame.parts[2]) - (end - start)
            inside = answer is not None and start <= answer[0] and answer[1] < end
            span = (first + answer[0] - start, first + answer[1] - start) if answer and inside else (0, 0)
            yield SpanWindow(number, index, ids, types, span, first, pieces.offsets[start:end], scored)


def _pieces_in(answer: tuple[int, int], offsets: Ids) -> tuple[int, int] | None:
    """Return the first and the last sub-word with a character of the answer; None without any."""
    inside = (offsets[:, 1] > answer[0]) & (offsets[:, 0] < answer[1]) & (offsets[:, 1] > offsets[:, 0])
    indices = np.flatnonzero(inside)
    return (int(indices[0]), int(indices[-1])) if len(indices) else None


def _ranges(
    length: int, room: int, overlap: int, answer: tuple[int, int] | None, layout: _WindowPlan
) -> list[tuple[int, int, bool]]:
    """Return where the windows of a passage begin and end, and whether predictions are read from them.

    The windows for predictions depend on the passage alone. If all of them cut the answer, another window around it is
    added for training.
    """
    starts = range(0, max(1, length - overlap), room - overlap)
    spans = [(start, min(start + room, length), True) for start in starts]
    if answer is None or any(start <= answer[0] and answer[1] < end for start, end, _ in spans):
        return spans
    size = answer[1] + 1 - answer[0]
    if size > room:
        layout.count("answers are longer than a window and are not trained on; --max-length sets its length")
        return spans
    start = min(max(0, answer[0] - (room - size) // 2), length - room)
    return [*spans, (start, start + room, False)]
