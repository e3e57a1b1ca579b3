"""Read BLURB's HoC: sentences with ten yes-or-no labels, merged into abstracts (PubMedBERT, sections 4.5 and 5)."""

import re
from collections.abc import Mapping, Sequence

from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks.encoding.sequences import TextExample

COLUMNS = ("labels", "sentence", "index")
_LABELS = re.compile(r"\d+_[01](,\d+_[01])*")
_INDEX = re.compile(r"(.+)_s(\d{1,9})")

# The labels of BLURB's columns 0 to 9: the ten hallmarks in alphabetical order. With these names all 1,852 abstracts
# have exactly the labels of the authors' own files (github.com/sb895/Hallmarks-of-Cancer).
HALLMARKS = (
    "activating invasion and metastasis",
    "avoiding immune destruction",
    "cellular energetics",
    "enabling replicative immortality",
    "evading growth suppressors",
    "genomic instability and mutation",
    "inducing angiogenesis",
    "resisting cell death",
    "sustaining proliferative signaling",
    "tumor promoting inflammation",
)


def is_hoc(records: Mapping[str, Sequence[DataRecord]]) -> bool:
    """Return whether records are rows of BLURB's HoC: labels 0_0,1_1,..., a sentence, and an index PMID_sNUMBER."""
    return all(
        set(COLUMNS) <= record.values.keys()
        and _LABELS.fullmatch(str(record.values["labels"]))
        and _INDEX.fullmatch(str(record.values["index"]))
        for items in records.values()
        for record in items[:1]
    )


def documents(records: Sequence[DataRecord]) -> list[TextExample]:
    """Merge sentences into abstracts, in the order of their first sentences: texts joined in order, labels united.

    Raises:
        SqueezeError: a row is malformed, or an index occurs twice.
    """
    sentences: dict[str, dict[int, tuple[DataRecord, frozenset[str]]]] = {}
    for record in records:
        document, number = _index(record)
        of_document = sentences.setdefault(document, {})
        if number in of_document:
            raise SqueezeError(
                f"{record.where}: the index {record.values['index']!r} is already used at "
                f"{of_document[number][0].where}; remove one of the two rows"
            )
        of_document[number] = record, _labels(record)
    return [_document(name, [rows[number] for number in sorted(rows)]) for name, rows in sentences.items()]


def _document(name: str, rows: Sequence[tuple[DataRecord, frozenset[str]]]) -> TextExample:
    text = " ".join(filter(None, (str(record.values["sentence"]).strip() for record, _ in rows)))
    where = rows[0][0].where
    if not text:
        raise SqueezeError(f"{where}: the abstract {name} has no text; fill in its sentences, or remove it")
    return TextExample((text,), frozenset().union(*(labels for _, labels in rows)), name, where)


def _index(record: DataRecord) -> tuple[str, int]:
    match = _INDEX.fullmatch(str(record.values["index"]))
    if not match:
        raise SqueezeError(
            f"{record.where}: the index {record.values['index']!r} does not have the form PMID_sNUMBER, which gives "
            "the abstract of a sentence; correct it"
        )
    return match[1], int(match[2])


def _labels(record: DataRecord) -> frozenset[str]:
    value = str(record.values["labels"])
    numbers = [item.split("_")[0] for item in value.split(",")]
    if not _LABELS.fullmatch(value) or numbers != [str(number) for number in range(len(HALLMARKS))]:
        raise SqueezeError(
            f"{record.where}: the labels {value!r} do not have the form 0_0,1_1,... up to {len(HALLMARKS) - 1}; "
            "correct them"
        )
    return frozenset(name for name, item in zip(HALLMARKS, value.split(","), strict=True) if item.endswith("_1"))
