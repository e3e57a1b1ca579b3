"""Classification of texts: one label per text (single), or any number of labels (multi)."""

import ast
import io
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from biosqueeze.data.feature_keys import TARGETS
from biosqueeze.data.output_types import MULTI, SINGLE
from biosqueeze.data.records.columns import SHOWN
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.records.splits import shortened
from biosqueeze.data.records.tables import read_records
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files.parsing import parse_json
from biosqueeze.progress import note, warn
from biosqueeze.tasks import Dataset
from biosqueeze.tasks.encoding.sequences import Floats, TextExample, id_of, sigmoid
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE, is_tag
from biosqueeze.tasks.metrics.labels import score_label_sets
from biosqueeze.tasks.readers import hoc as _hoc
from biosqueeze.tasks.readers import rows as _rows
from biosqueeze.tasks.readers.split_overlap import with_test_of
from biosqueeze.tasks.readers.unnamed_columns import ID, are_classes
from biosqueeze.tasks.sequence_kind import SequenceKind

ROLES = _rows.Roles(
    {
        "text": ("text", "sentence", "abstract", "document", "content"),
        "title": ("title",),
        "label": ("label", "labels", "class", "category", "gold_label", "target", "topics"),
        "id": ID,
        "pmid": ("pmid",),
    },
    frozenset({"title", "id", "pmid"}),
    {2: ("text", "label"), 3: ("id", "text", "label")},
)
SEPARATORS = (";", "|")
_LONGEST_LIST = 10_000  # characters of labels in a string
_MOST = 0.9  # of the labels of a column file are tags; a header is none


@dataclass(frozen=True)
class Kind(SequenceKind):
    """Classification; without a scheme (single or multi) the data decide when they are read."""

    FORM: ClassVar[str] = "texts with labels"
    METRIC: ClassVar[str] = "macro_f1"

    scheme: str = ""

    def with_scheme(self, scheme: str) -> "Kind":
        """Return the kind for data of this scheme.

        Raises:
            UsageError: the scheme is neither single nor multi.
        """
        kinds = {SINGLE.name: Kind, MULTI.name: MultiLabel}
        if scheme not in kinds:
            raise UsageError(f"a classification is single or multi, not {scheme!r}; see the task in biosqueeze.json")
        return kinds[scheme](self.formulation, scheme)

    def sniff(self, sample: SourceSample) -> float:
        """Return 0.9 for BLURB's HoC, and 0.4 for texts with labels."""
        records = sample.records(ROLES.columns(self.formulation.column).header)
        if records and _hoc.is_hoc({"": records}):
            return 0.9
        rows = _rows.first_rows(sample, ROLES, self.formulation.column)
        style = _label_style(rows, self.scheme)
        golds = [_example(row, style).gold for row in rows]
        return 0.4 if are_classes(golds) else 0.0

    def read(self, source: str, splits: Sequence[str]) -> Dataset:
        """Read splits: records with a text (or title and abstract) and a label, or BLURB's HoC.

        Several labels are separated by ; or |, or are a list. Without a scheme, the data are multi-label if any
        record has several labels.

        Raises:
            SqueezeError: the data cannot be read, a text or a label is missing, an id is not unique, a split has a
                label that train lacks, or train or dev overlaps the test split.
        """
        columns = ROLES.columns(self.formulation.column)
        records = read_records(source, with_test_of(source, splits), header=columns.header)
        if _hoc.is_hoc(records):
            return self._read_hoc(source, splits, records)
        known = _rows.without_hidden_test(source, records, splits, ROLES, self.formulation.column)
        rows = _rows.rows_by_role(source, known, ROLES, columns)
        style = _label_style([row for items in rows.values() for row in items], self.scheme)
        examples = {split: [_example(row, style) for row in items] for split, items in rows.items()}
        _warn_of_tagged_words(source, examples)
        if style.scheme == SINGLE.name:
            _warn_of_commas(source, examples)
        labels = _rows.classes_of(examples) if style.scheme == SINGLE.name else _label_names(examples)
        names = shortened(labels, SHOWN)
        note(f"{source}: {style.description}; {len(labels)} labels ({names}); {_rows.counts(examples)}")
        return _rows.assemble(source, splits, examples, labels, style.scheme)

    def _read_hoc(self, source: str, splits: Sequence[str], records: Mapping[str, Sequence[DataRecord]]) -> Dataset:
        if self.formulation.column:
            raise UsageError(f"--column {self.formulation.column[0]} is not used for BLURB's HoC; leave it out")
        if self.scheme == SINGLE.name:
            raise SqueezeError(
                f"{source} is HoC, where an abstract has any number of labels, and the model was fine-tuned for one "
                "label; give the data that it was fine-tuned on, or fine-tune it on these"
            )
        examples = {split: _hoc.documents(items) for split, items in records.items()}
        note(
            f"{source}: BLURB's HoC: sentences are joined into abstracts with all labels of their sentences; "
            f"10 labels (0 to 9: {', '.join(_hoc.HALLMARKS)}); abstracts: {_rows.counts(examples)}"
        )
        return _rows.assemble(source, splits, examples, _hoc.HALLMARKS, MULTI.name)

    def example_from_record(self, record: Mapping[str, Any]) -> TextExample:
        """Return an unlabelled text from {"text": ...} or {"title": ..., "abstract": ...}.

        Raises:
            SqueezeError: there is no text.
        """
        row = _rows.unlabelled_row(record, ROLES, self.formulation.column)
        return TextExample((_text(row),), None, _id(row))


class MultiLabel(Kind):
    """Classification with any number of labels, each decided independently at a probability of 0.5."""

    METRIC: ClassVar[str] = "f1"

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
        """Return the scores of label sets: see `score_label_sets`."""
        return score_label_sets(gold, predicted)

    def label_features(self, examples: Sequence[TextExample], labels: Sequence[str]) -> list[dict[str, NDArray[Any]]]:
        """Return the label features of each example: `targets` (labels,) float32 is 1 for each of its labels."""
        ids = {label: number for number, label in enumerate(labels)}
        return [_targets(example, ids) for example in examples]

    def predictions(self, rows: Floats, labels: Sequence[str]) -> list[Any]:
        """Return for each row of logits the labels with a logit above 0, which is a probability above 0.5."""
        return [frozenset(labels[number] for number in np.flatnonzero(row > 0).tolist()) for row in rows]

    def descriptions(self, rows: Floats, labels: Sequence[str]) -> list[dict[str, Any]]:
        """Return for each row the predicted labels, the likeliest first, and the probability of every label."""
        described = []
        for names, row in zip(self.predictions(rows, labels), sigmoid(rows), strict=True):
            scores = dict(zip(labels, map(float, row), strict=True))
            described.append({"labels": sorted(names, key=scores.__getitem__, reverse=True), "scores": scores})
        return described


@dataclass(frozen=True)
class _LabelStyle:
    """How the labels of a data set are written."""

    scheme: str
    description: str
    separator: str | None = None


def _label_style(rows: Sequence[_rows.RoleValues], scheme: str) -> _LabelStyle:
    """Return the style of all labels; a scheme that is not empty decides between single and multi."""
    if scheme == SINGLE.name:
        return _LabelStyle(SINGLE.name, "one label each")
    lists = [items for row in rows if (items := _listed(row)) is not None]
    if lists:
        _check_names(lists, rows[0].where)
        _check_all_listed(rows)
        return _LabelStyle(MULTI.name, "multi-label, as lists")
    texts = [str(row.values["label"]) for row in rows if row.values["label"] is not None]
    separator = next((mark for mark in SEPARATORS if any(mark in text for text in texts)), None)
    if separator:
        return _LabelStyle(MULTI.name, f"multi-label, separated by {separator!r}", separator)
    if scheme:
        return _LabelStyle(MULTI.name, "multi-label, no record with more than one")
    return _LabelStyle(SINGLE.name, "one label each")


def _check_names(lists: Sequence[Sequence[Any]], where: str) -> None:
    """Check that lists of labels have their names: not a 0 or 1 for every label, and no objects or lists.

    Raises:
        SqueezeError: they have not.
    """
    items = [item for each in lists for item in each]
    if any(isinstance(item, Mapping | list | tuple) for item in items):
        raise SqueezeError(
            f"{where}: the labels are objects or lists, and names were expected; spans of a text are read with "
            "--task ner"
        )
    are_places = all(item in (0, 1) for item in items) and len(set(map(len, lists))) == 1
    if are_places and any(len(set(each)) < len(each) for each in lists):
        raise SqueezeError(
            f"{where}: the labels are lists of 0 and 1, a place for each label; write the names of those that hold, "
            'such as ["treatment", "diagnosis"]'
        )


def _listed(row: _rows.RoleValues) -> list[Any] | None:
    """Return the labels of a list, or of a list in a string as JSON or Python writes it; None for anything else.

    Raises:
        SqueezeError: the list is in a string, and no comma is between two of its strings: Python would join them.
    """
    value = row.values["label"]
    if isinstance(value, list | tuple):
        return list(value)
    if not (isinstance(value, str) and value.lstrip().startswith("[") and len(value) <= _LONGEST_LIST):
        return None
    for parse in (parse_json, ast.literal_eval):
        try:
            items = parse(value.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if parse is ast.literal_eval and _has_joined_strings(value.strip()):
            raise _without_commas(row)
        return items if isinstance(items, list) else None
    return None


def _has_joined_strings(text: str) -> bool:
    """Return whether a Python expression has strings with nothing but white space between them."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = [token.type for token in tokens if token.type not in (tokenize.NL, tokenize.COMMENT)]
    return (tokenize.STRING, tokenize.STRING) in pairwise(kinds)


def _check_all_listed(rows: Sequence[_rows.RoleValues]) -> None:
    """Check that no value is a list in a string that cannot be read, beside others that can.

    Raises:
        SqueezeError: one is, such as [1 3].
    """
    for row in rows:
        text = str(row.values["label"]).strip()
        if text[:1] + text[-1:] == "[]" and _listed(row) is None:
            raise _without_commas(row)


def _without_commas(row: _rows.RoleValues) -> SqueezeError:
    text = " ".join(str(row.values["label"]).split())
    return SqueezeError(
        f"{row.where}: the labels {text[:60]} are not a list of JSON or Python, as where numpy wrote it; separate the "
        'items with commas, as in ["treatment", "diagnosis"]'
    )


def _example(row: _rows.RoleValues, style: _LabelStyle) -> TextExample:
    gold = _rows.label_of(row) if style.scheme == SINGLE.name else _label_set(row, style)
    return TextExample((_text(row),), gold, _id(row), row.where)


def _label_set(row: _rows.RoleValues, style: _LabelStyle) -> frozenset[str]:
    value, items = row.values["label"], _listed(row)
    if items is None:
        text = "" if value is None else str(value)
        items = text.split(style.separator) if style.separator else [text]
    return frozenset(filter(None, (str(item).strip() for item in items)))


def _text(row: _rows.RoleValues) -> str:
    return _rows.text_of(row, *(role for role in ("title", "text") if role in row.values))


def _id(row: _rows.RoleValues) -> str:
    """Return the id of a row; a PubMed id identifies a record only if that is a whole document."""
    return _rows.id_of_row(row, "id", *(("pmid",) if "title" in row.values else ()))


def _warn_of_tagged_words(source: str, examples: _rows.Splits) -> None:
    """Warn of column files for entity recognition, whose rows are words with tags."""
    rows = [example for items in examples.values() for example in items]
    tags = [str(example.gold) for example in rows]
    if any(" " in example.texts[0] for example in rows):
        return
    if OUTSIDE in tags and sum(map(is_tag, tags)) > _MOST * len(tags):
        warn(f"{source}: every text is a single word, and the labels are tags (O, B-TYPE, ...): give --task ner")
    elif 2 * sum(tag.upper() == OUTSIDE for tag in tags) > len(tags):
        warn(
            f"{source}: every text is a single word, and most labels are O: for entities, write the tags as O, B-TYPE "
            "and I-TYPE, and give --task ner"
        )


def _warn_of_commas(source: str, examples: _rows.Splits) -> None:
    """Warn of several labels in one that are separated by commas, each of which is a label of its own elsewhere."""
    labels = {example.gold for items in examples.values() for example in items if example.gold}
    joined = sorted(label for label in labels if "," in label and {part.strip() for part in label.split(",")} <= labels)
    if joined:
        warn(
            f"{source}: {joined[0]!r} is one label, although each part is a label too; if they are several, separate "
            f"them by {' or '.join(SEPARATORS)}"
        )


def _label_names(examples: _rows.Splits) -> tuple[str, ...]:
    labels = _rows.ordered(label for example in _rows.labelled_examples(examples) for label in example.gold)
    if not labels:
        raise SqueezeError(
            "no example has a label, so nothing can be trained or scored; check the label column, or name another "
            "with --column label=NAME"
        )
    _rows.check_labels(examples, labels, sorted)
    return labels


def _targets(example: TextExample, ids: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    if example.gold is None:
        return {}
    targets = np.zeros(len(ids), dtype=np.float32)
    targets[[id_of(label, ids, example.where) for label in sorted(example.gold)]] = 1.0
    return {TARGETS: targets}
