"""Questions about passages: from records with named fields, and the checks shared with SQuAD's and BioASQ's files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biosqueeze.data.records.columns import Columns, parse_column_options
from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.metrics.answers import Answers

# BioBERT numbers the snippets of a BioASQ question: 56bf365eef6e394741000014_001, ..._002. Other data sets number
# their questions in this way (trial_001), and two of those may have the same text.
_SNIPPET_ID = re.compile(r"([0-9a-f]{24})_\d{3}")
_SHOWN = 40
_NAMES = {
    "id": ("id", "qid", "question_id"),
    "question": ("question", "query"),
    "context": ("context", "passage", "abstract"),
    "answers": ("answers", "answer"),
}


@dataclass(frozen=True)
class Passage:
    """A text that may contain the answer."""

    text: str
    answer: tuple[int, int] | None = None  # characters of the answer for training, the end exclusive


@dataclass(frozen=True)
class Question:
    """A question, its passages and its gold answers."""

    id: str
    text: str
    passages: tuple[Passage, ...]
    answers: tuple[str, ...] = ()  # every accepted text; none if there is no answer, or none is known

    @property
    def gold(self) -> Answers:
        """The gold answers."""
        return Answers(self.answers)

    @property
    def document(self) -> str:
        """The first passage, about which there may be other questions."""
        return self.passages[0].text if self.passages else ""


@dataclass(frozen=True)
class PassageQuestion:
    """One question about one passage, as a file has it."""

    where: str
    id: str
    question: str
    passage: Passage
    answers: tuple[str, ...] | None  # None if the file does not give them


def columns_of(column: Sequence[str], *, labelled: bool) -> Columns:
    """Return the columns of questions, from --column or their usual names.

    Unlabelled data need no answers, even if --column names their column: the option may be from the fine-tuning.
    """
    requested = parse_column_options(column)
    if not labelled:
        requested.pop("answers", None)
    return Columns(_NAMES, requested, frozenset({"id"} if labelled else {"id", "answers"}))


def questions_from_records(records: Sequence[DataRecord], columns: Columns) -> tuple[Question, ...]:
    """Build questions of records {"id", "question", "context", "answers": {"text": [...], "answer_start": [...]}}.

    Raises:
        SqueezeError: a field is missing or malformed, an answer is not at its offset, or an id occurs twice.
    """
    chosen = columns.of(records)
    return grouped([_from_record(record, chosen) for record in records])


def have_answers(records: Sequence[DataRecord], column: Sequence[str]) -> bool:
    """Return whether any record has answers.

    Raises:
        SqueezeError: they lack more than the column of the answers.
    """
    try:
        answers = columns_of(column, labelled=True).of(records)["answers"]
    except SqueezeError:
        columns_of(column, labelled=False).of(records)
        return False
    return any(record.values[answers] is not None for record in records)


def unlabelled_question(values: Mapping[str, Any], columns: Columns) -> Question:
    """Build an unlabelled question of {"question", "context"}.

    Raises:
        SqueezeError: a field is missing or not text.
    """
    record = DataRecord("the record", values)
    chosen = columns.of([record])
    text, context = (text_of(values[chosen[role]], role, record.where) for role in ("question", "context"))
    return Question(str(values.get(chosen.get("id", ""), "")), text, (Passage(context),))


def passage_question(
    where: str, values: Mapping[str, Any], answers: Sequence[tuple[str, Any]] | None
) -> PassageQuestion:
    """Check one question with its answers.

    Args:
        where: file, and place in it.
        values: id, question, context.
        answers: (text, first character) each; None if the file does not give them.

    Raises:
        SqueezeError: question or context is empty, or an answer is not at its offset.
    """
    name = str(values.get("id", ""))
    where = f"{where}: question {name}" if name else where
    question, context = (text_of(values.get(key), key, where) for key in ("question", "context"))
    spans = [_span(text, start, context, where) for text, start in answers or ()]
    texts = None if answers is None else tuple(text for text, _ in answers)
    return PassageQuestion(where, name or where, question, Passage(context, spans[0] if spans else None), texts)


def text_of(value: Any, name: str, where: str) -> str:
    """Return the text of a field.

    Raises:
        SqueezeError: it is missing, empty or not text.
    """
    if not isinstance(value, str):
        problem = f'no "{name}"' if value is None else f'a "{name}" of type {type(value).__name__}'
        raise SqueezeError(f"{where} has {problem}; give it as text")
    if not value.strip():
        raise SqueezeError(f'{where} has an empty "{name}"; fill it in, or remove the question')
    return value


def grouped(
    items: Sequence[PassageQuestion], golden: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[Question, ...]:
    """Group passages by question: one text with BioASQ ids that differ only in _001, ... is one question.

    Args:
        items: in the order of the file.
        golden: question id -> accepted answers, for questions whose file has none.

    Raises:
        SqueezeError: an id occurs twice, or no answer is known.
    """
    _check_ids(items)
    groups: dict[tuple[str, str], list[PassageQuestion]] = {}
    for item in items:
        groups.setdefault((_question_id(item.id), item.question), []).append(item)
    sharing = Counter(name for name, _ in groups)
    return tuple(
        Question(
            name if sharing[name] == 1 else members[0].id,
            question,
            tuple(member.passage for member in members),
            _answers(name, members, golden or {}),
        )
        for (name, question), members in groups.items()
    )


def _question_id(name: str) -> str:
    numbered = _SNIPPET_ID.fullmatch(name)
    return numbered[1] if numbered else name


def _check_ids(items: Sequence[PassageQuestion]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise SqueezeError(
                f"{item.where}: the id occurs twice; change one of the two ids, or remove one of the questions"
            )
        seen.add(item.id)


def _answers(name: str, members: Sequence[PassageQuestion], golden: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the accepted answers of all passages of a question."""
    known = [member.answers for member in members if member.answers is not None]
    if known:
        return _distinct(text for texts in known for text in texts)
    if name in golden:
        return golden[name]
    raise SqueezeError(
        f'{members[0].where} has no "answers", and there is no *golden*.json beside the file; '
        "put BioASQ's file of gold answers there, or add answers (none with is_impossible: true)"
    )


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _from_record(record: DataRecord, chosen: Mapping[str, str]) -> PassageQuestion:
    values = {role: record.values[column] for role, column in chosen.items()}
    return passage_question(record.where, values, answer_pairs(values["answers"], record.where))


def answer_pairs(answers: Any, where: str) -> list[tuple[str, Any]]:
    """Return (text, start) pairs of {"text": [...], "answer_start": [...]} or [{"text": ..., "answer_start": ...}].

    Raises:
        SqueezeError: it has neither form.
    """
    if isinstance(answers, Mapping) and {"text", "answer_start"} <= answers.keys():
        texts, starts = answers["text"], answers["answer_start"]
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
    if isinstance(answers, list) and all(isinstance(item, Mapping) and "text" in item for item in answers):
        return [(item["text"], item.get("answer_start")) for item in answers]
    raise SqueezeError(
        f'{where}: answers must have the form {{"text": ["..."], "answer_start": [0]}}, with one start per text (both '
        "empty for no answer); convert the data to JSON lines of this form"
    )


def _span(text: Any, start: Any, context: str, where: str) -> tuple[int, int]:
    """Return the characters of an answer.

    Raises:
        SqueezeError: it is not at its offset; the message has the text at the offset, and where the answer is.
    """
    answer = text_of(text, "text", f"{where}: an answer")
    if isinstance(start, bool) or not isinstance(start, int):
        raise SqueezeError(
            f"{where}: the answer {_short(answer)} has no answer_start; add the index of its first character"
        )
    if start >= 0 and context.startswith(answer, start):
        return start, start + len(answer)
    at_offset = _short(context[start : start + len(answer)]) if 0 <= start < len(context) else "nothing"
    starts = [match.start() for match in re.finditer(re.escape(answer), context)]
    places = ", ".join(map(str, starts[:3])) + (", ..." if len(starts) > 3 else "")
    way_out = f"it is at {places}: correct answer_start" if starts else "it is nowhere in the context: correct it"
    raise SqueezeError(
        f"{where}: the answer {_short(answer)} is not at character {start} of the context, which has {at_offset} "
        f"there; {way_out}"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
