"""Make examples of relations from annotated documents: the pairs of entities in each of their sentences."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from biosqueeze.data.annotations.annotated import AnnotatedRelation, Annotation, Document
from biosqueeze.data.annotations.tagging import sentences_with
from biosqueeze.data.records.hub import is_hub, is_saved
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.splits import SPLITS, SUFFIXES, require_split
from biosqueeze.data.records.tables import read_records, splits_of
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import CountedWarning, note, warn
from biosqueeze.tasks.encoding.entities import Mention, PairKind, Passage, Relation
from biosqueeze.tasks.readers.annotated_records import note_readings, with_entities
from biosqueeze.tasks.readers.answers import accepted_records
from biosqueeze.tasks.readers.document_files import document_format, documents_in, find_source
from biosqueeze.tasks.readers.record_documents import related_document
from biosqueeze.tasks.readers.split_overlap import with_test

NO_RELATION = "no-relation"
_SUFFIXES = (*SUFFIXES, ".pubtator", ".pubtator.txt", ".xml")


class _Place(NamedTuple):
    """Where an entity is, and its type: annotations of one place are one entity."""

    start: int
    end: int
    type: str


@dataclass(frozen=True)
class SentencePairs:
    """The pairs of entities in the sentences of documents, and the kinds of pairs that may be related."""

    records: dict[str, list[DataRecord]]  # by split
    kinds: frozenset[PairKind]


Documents = Mapping[str, Sequence[Document]]  # by split


def documents_of_files(source: str, splits: Sequence[str]) -> Documents | None:
    """Return the annotated documents of splits of a directory; None for any other source.

    Args:
        source: a directory.
        splits: of train, dev and test. The train split is read in any case, if there is one, and test with train.

    Raises:
        SqueezeError: they are damaged, or a split is missing or no annotated documents.
    """
    directory = Path(source).expanduser()
    if is_hub(source) or not directory.is_dir() or is_saved(directory):
        return None
    found = {split: path for split in SPLITS if (path := find_source(directory, split, _SUFFIXES))}
    wanted = {*with_test(splits, found), "train"}
    formats = {split: document_format(path) for split, path in found.items() if split in wanted}
    if not any(formats.get(split) for split in splits):
        return None
    for missing in set(splits) - found.keys():
        require_split(directory, missing, _SUFFIXES)
    described = (f"{split} is {found[split].name} ({kind or 'other'})" for split, kind in formats.items())
    note(f"{source}: {', '.join(described)}")
    return {split: list(documents_in(found[split])) for split in formats}


def documents_of_records(source: str, records: Mapping[str, Sequence[DataRecord]]) -> Documents | None:
    """Return the documents of records with a text, entities and relations; None for records of another layout.

    Args:
        source: of the records, from which those of train are read where they are missing.
        records: of each split, as of doccano, Label Studio or BigBio.

    Raises:
        SqueezeError: an entity or a relation is malformed.
    """
    converted = {split: with_entities(rows) for split, rows in records.items()}
    if not any(_has_relations(record) for rows in converted.values() for record in rows):
        return None
    if "train" not in records and "train" in splits_of(source):
        records = {**records, "train": accepted_records(read_records(source, ("train",))["train"])}
        converted["train"] = with_entities(records["train"])
    for rows in records.values():
        note_readings(rows)
    counts: Counter[str] = Counter()
    documents = {split: [related_document(record, counts) for record in rows] for split, rows in converted.items()}
    if counts:
        note(f"{source}: {'; '.join(f'{count:,} {what}' for what, count in counts.items())}")
    return documents


def _has_relations(record: DataRecord) -> bool:
    lists = (record.values.get(name) for name in ("entities", "relations"))
    return isinstance(record.values.get("text"), str) and all(isinstance(value, list) for value in lists)


def pairs_of(
    documents: Documents, splits: Sequence[str], negative: str, recorded: Collection[PairKind] = ()
) -> SentencePairs:
    """Return records (text, label, head, tail, document) of the pairs of entities in a sentence that may be related.

    Those are the pairs with a relation (one record for each), and with the label `negative` all others of the recorded
    kinds of pairs; where none are recorded, or none of these is related, of the kinds that are related in the train
    split, or without one in any. Where the head of every relation comes first in the text, two types are such a kind in
    this order; otherwise from the type of the head to that of the tail, and if the two are equal, in the order of the
    text that a relation has. If there are relations of the type `negative`, the data have all pairs, and none is added.

    Args:
        documents: by split.
        splits: of them, those whose examples are returned.
        negative: the label for no relation.
        recorded: kinds of pairs that a model was trained on.

    Raises:
        SqueezeError: a split has no relation between two entities of a sentence.
    """
    known = [documents["train"]] if "train" in documents else list(documents.values())
    relations = [relation for each in known for document in each for relation in document.relations]
    are_all_given = any(relation.type == negative for relation in relations)
    found = _kinds(relations)
    kinds = frozenset(recorded) if found.intersection(recorded) else found
    if kinds is found and "train" not in documents and not are_all_given:
        note(
            "there is no train split, so the pairs without a relation are those of types that are related in "
            f"{' or '.join(documents)}; pairs of other types, which may lower precision and F1, are left out"
        )
    _note_directions(kinds)
    added = frozenset[PairKind]() if are_all_given else kinds
    return SentencePairs({split: _examples(split, documents[split], added, negative) for split in splits}, kinds)


def passage_of(document: Document, kinds: Collection[PairKind]) -> Passage:
    """Return the pairs of these kinds in each sentence of a document, unlabelled."""
    pairs, starts = [], []
    for start, text, head, tail in _all_pairs(document):
        if _kind(head, tail) in kinds:
            mentions = (Mention(**_entity(head, start)), Mention(**_entity(tail, start)))
            pairs.append(Relation(text, mentions, where=document.where))
            starts.append(start)
    return Passage(document.text, tuple(pairs), tuple(starts))


def types_of_relations(documents: Documents) -> list[str]:
    """Return the types of the relations in documents."""
    return sorted(
        {relation.type for each in documents.values() for document in each for relation in document.relations}
    )


def _examples(
    split: str, documents: Sequence[Document], kinds: Collection[PairKind], negative: str
) -> list[DataRecord]:
    examples: list[DataRecord] = []
    count = left_out = 0
    for document in documents:
        related = _related(document)
        count += sum(map(len, related.values()))
        examples += _pairs(document, related, kinds, negative)
        left_out += sum(map(len, related.values()))
    if left_out == count:
        raise SqueezeError(
            f"{split} has no relation between two entities of a sentence, which --task relation learns; those between "
            "concepts of a document, as in PubTator, are none. For the entities alone: --task ner"
        )
    if left_out:
        warn(CountedWarning(left_out, f"relations of {split} are not within a sentence, and left out", count))
    return examples


def _related(document: Document) -> dict[tuple[_Place, _Place], list[str]]:
    """Return the types of the relations of each related pair."""
    types: defaultdict[tuple[_Place, _Place], dict[str, None]] = defaultdict(dict)
    for relation in document.relations:
        types[_place(relation.head), _place(relation.tail)][relation.type] = None
    return {pair: list(each) for pair, each in types.items()}


def _pairs(
    document: Document, related: dict[tuple[_Place, _Place], list[str]], kinds: Collection[PairKind], negative: str
) -> Iterator[DataRecord]:
    """Yield the examples of a document, and remove their relations from `related`."""
    for start, text, head, tail in _all_pairs(document):
        labels = related.pop((head, tail), [negative] if _kind(head, tail) in kinds else [])
        for label in labels:
            entities = {"head": _entity(head, start), "tail": _entity(tail, start)}
            values = {"text": text, "label": label, **entities, "document": document.part_of or document.where}
            yield DataRecord(document.where, values)


def _all_pairs(document: Document) -> Iterator[tuple[int, str, _Place, _Place]]:
    """Yield the start and the text of a sentence, and two entities in it, for each pair in both orders."""
    annotations = sorted(document.annotations, key=lambda each: each.start)
    places = sorted(set(map(_place, annotations)))
    starts = [place.start for place in places]
    whole = [(0, len(document.text))]
    for start, end in whole if document.is_sentence else sentences_with(document.text, annotations):
        text, within = document.text[start:end], places[bisect_left(starts, start) : bisect_left(starts, end)]
        for head, tail in permutations(within, 2):
            yield start, text, head, tail


def _place(annotation: Annotation) -> _Place:
    return _Place(annotation.start, annotation.end, annotation.type)


def _kind(head: _Place, tail: _Place) -> PairKind:
    return PairKind(head.type, tail.type, head < tail)


def _kinds(relations: Iterable[AnnotatedRelation]) -> frozenset[PairKind]:
    """Return the kinds of pairs that may be related: see `pairs_of`."""
    found = frozenset({_kind(_place(each.head), _place(each.tail)) for each in relations})
    if all(kind.is_in_order for kind in found):
        return found | {PairKind(kind.tail, kind.head, is_in_order=True) for kind in found}
    return found | {kind._replace(is_in_order=not kind.is_in_order) for kind in found if kind.head != kind.tail}


def _entity(place: _Place, start: int) -> dict[str, Any]:
    """Return an entity with offsets in the sentence that begins at `start`."""
    return {"start": place.start - start, "end": place.end - start, "type": place.type}


def _note_directions(kinds: Collection[PairKind]) -> None:
    """Log where relations of the same two types go both ways."""
    both = sorted(
        {f"{kind.head} and {kind.tail}" for kind in kinds if kind.head <= kind.tail and _reversed(kind) in kinds}
    )
    if both:
        note(
            f"relations between {', '.join(both)} go both ways, so each such pair is two examples; if the direction "
            "has no meaning, write them all from the first in the text to the second"
        )


def _reversed(kind: PairKind) -> PairKind:
    return PairKind(kind.tail, kind.head, not kind.is_in_order)
