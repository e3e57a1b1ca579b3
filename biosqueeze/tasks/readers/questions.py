"""Questions about passages, from records with named fields; what SQuAD's and BioASQ's own files give too."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biosqueeze.data.tables import Columns, DataRecord, parse_column_options
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.metrics.answers import Answers

# BioBERT numbers the snippets of a BioASQ question: 56bf365eef6e394741000014_001, ..._002. Other data number their
# questions so (trial_001), and two of those may well be asked in the same words.
_SNIPPET = re.compile(r"([0-9a-f]{24})_\d{3}")
_SHOWN = 40
_NAMES = {
    "id": ("id", "qid", "question_id"),
    "question": ("question", "query"),
    "context": ("context", "passage", "abstract"),
    "answers": ("answers", "answer"),
}


@dataclass(frozen=True)
class Passage:
    """A text in which to look for the answer."""

    text: str
    answer: tuple[int, int] | None = None  # characters of the answer to learn, the end exclusive


@dataclass(frozen=True)
class Question:
    """A question, where to look, and what would answer it."""

    id: str
    text: str
    passages: tuple[Passage, ...]
    answers: tuple[str, ...] = ()  # every text that will do; none where there is no answer, or none is known

    @property
    def gold(self) -> Answers:
        """What will do."""
        return Answers(self.answers)


@dataclass(frozen=True)
class PassageQuestion:
    """One question about one passage, as it stands in a file."""

    where: str
    id: str
    question: str
    passage: Passage
    answers: tuple[str, ...] | None  # None where the file does not say


def columns_of(column: Sequence[str], *, labelled: bool) -> Columns:
    """The columns of questions, as --column says or by their usual names.

    What is not labelled needs no answers, even where --column names them: it may come from the fine-tuning.
    """
    asked = parse_column_options(column)
    if not labelled:
        asked.pop("answers", None)
    return Columns(_NAMES, asked, frozenset({"id"} if labelled else {"id", "answers"}))


def questions_from_records(records: Sequence[DataRecord], columns: Columns) -> tuple[Question, ...]:
    """Questions from records {"id", "question", "context", "answers": {"text": [...], "answer_start": [...]}}.

    Raises:
        SqueezeError: a field is missing or malformed, an answer is not at its offset, or an id comes twice.
    """
    chosen = columns.of(records)
    return grouped([_posed_of(record, chosen) for record in records])


def unlabelled_question(values: Mapping[str, Any], columns: Columns) -> Question:
    """An unlabelled question from {"question", "context"}.

    Raises:
        SqueezeError: a field is missing or no text.
    """
    record = DataRecord("the record", values)
    chosen = columns.of([record])
    text, context = (text_of(values[chosen[role]], role, record.where) for role in ("question", "context"))
    return Question(str(values.get(chosen.get("id", ""), "")), text, (Passage(context),))


def passage_question(
    where: str, values: Mapping[str, Any], answers: Sequence[tuple[str, Any]] | None
) -> PassageQuestion:
    """One question with its answers checked.

    Args:
        where: file, and place in it.
        values: id, question, context.
        answers: (text, character at which it starts) each; None where the file does not say.

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
    """A field that must be text.

    Raises:
        SqueezeError: it is missing, empty or something else.
    """
    if not isinstance(value, str):
        found = f'no "{name}"' if value is None else f'a "{name}" of type {type(value).__name__}'
        raise SqueezeError(f"{where} has {found}; give it as text")
    if not value.strip():
        raise SqueezeError(f'{where} has an empty "{name}"; fill it in, or remove the question')
    return value


def grouped(
    items: Sequence[PassageQuestion], golden: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[Question, ...]:
    """Questions with all of their passages: one text under BioASQ ids that differ only in _001, ... is one question.

    Args:
        items: in the order of the file.
        golden: question id -> what will do, for questions whose file does not say.

    Raises:
        SqueezeError: an id comes twice, or no answer is known.
    """
    _check_ids(items)
    groups: dict[tuple[str, str], list[PassageQuestion]] = {}
    for item in items:
        groups.setdefault((_stem(item.id), item.question), []).append(item)
    sharing = Counter(stem for stem, _ in groups)
    return tuple(
        Question(
            stem if sharing[stem] == 1 else members[0].id,
            question,
            tuple(member.passage for member in members),
            _answers(stem, members, golden or {}),
        )
        for (stem, question), members in groups.items()
    )


def _stem(name: str) -> str:
    numbered = _SNIPPET.fullmatch(name)
    return numbered[1] if numbered else name


def _check_ids(items: Sequence[PassageQuestion]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise SqueezeError(f"{item.where}: the id comes twice; give one of the two questions another, or remove it")
        seen.add(item.id)


def _answers(stem: str, members: Sequence[PassageQuestion], golden: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What will do, of all passages together."""
    known = [member.answers for member in members if member.answers is not None]
    if known:
        return _different(text for texts in known for text in texts)
    if stem in golden:
        return golden[stem]
    raise SqueezeError(
        f'{members[0].where} has no "answers", nor has a *golden*.json beside the file; '
        "put BioASQ's file of gold answers there, or add answers (none with is_impossible: true)"
    )


def _different(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _posed_of(record: DataRecord, chosen: Mapping[str, str]) -> PassageQuestion:
    values = {role: record.values[column] for role, column in chosen.items()}
    return passage_question(record.where, values, listed(values["answers"], record.where))


def listed(answers: Any, where: str) -> list[tuple[str, Any]]:
    """Pairs of text and start from {"text": [...], "answer_start": [...]} or [{"text": ..., "answer_start": ...}].

    Raises:
        SqueezeError: it is neither.
    """
    if isinstance(answers, Mapping) and {"text", "answer_start"} <= answers.keys():
        texts, starts = answers["text"], answers["answer_start"]
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
    if isinstance(answers, list) and all(isinstance(one, Mapping) and "text" in one for one in answers):
        return [(one["text"], one.get("answer_start")) for one in answers]
    raise SqueezeError(
        f'{where}: answers must read {{"text": ["..."], "answer_start": [0]}}, as many starts as texts (both empty '
        "where there is no answer); write the data as JSON lines so"
    )


def _span(text: Any, start: Any, context: str, where: str) -> tuple[int, int]:
    """The characters of an answer.

    Raises:
        SqueezeError: it does not stand there; the message says what does, and where the answer is.
    """
    answer = text_of(text, "text", f"{where}: an answer")
    if isinstance(start, bool) or not isinstance(start, int):
        raise SqueezeError(
            f"{where}: the answer {_short(answer)} has no answer_start; give the number of its character"
        )
    if start >= 0 and context.startswith(answer, start):
        return start, start + len(answer)
    there = _short(context[start : start + len(answer)]) if 0 <= start < len(context) else "nothing"
    found = [match.start() for match in re.finditer(re.escape(answer), context)]
    places = ", ".join(map(str, found[:3])) + (", ..." if len(found) > 3 else "")
    way_out = (
        f"it stands at {places}: correct answer_start" if found else "it stands nowhere in the context: correct it"
    )
    raise SqueezeError(
        f"{where}: the answer {_short(answer)} is not at character {start} of the context, there is {there}; {way_out}"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
