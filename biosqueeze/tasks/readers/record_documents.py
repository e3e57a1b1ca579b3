"""Make annotated documents of records with a text, its entities, and perhaps relations between these."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from biosqueeze.data.annotations.annotated import Annotation, Document, align_annotation, linked_relations
from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError


def document_of(record: DataRecord, text: str, entities: str) -> Document:
    """Return the document of a record, without relations.

    Args:
        record: an entity has a start, an end and a label, as an object or a list of three, or the names that doccano
            and Label Studio give these; an id of it is kept.
        text: name of the field with the text.
        entities: name of the field with the list of entities.

    Raises:
        SqueezeError: a field has another type, or an entity does not agree with the text.
    """
    value, items = record.values.get(text), record.values.get(entities)
    if not isinstance(value, str) or not isinstance(items, list):
        raise SqueezeError(f"{record.where}: {text} must be a string and {entities} a list; correct the record")
    document = Document(str(record.values.get("id", record.where)), value, (), record.where)
    return replace(document, annotations=tuple(_annotations(document, items)))


def related_document(record: DataRecord, counts: Counter[str]) -> Document:
    """Return the document of a record with text, entities and relations, which have a type, from_id and to_id.

    Args:
        record: as of doccano; those of other tools as `annotated_records.with_entities` returns them.
        counts: of relations; those that are not between two entities are counted and skipped.

    Raises:
        SqueezeError: as for `document_of`, or an item of the relations is none.
    """
    document = document_of(record, "text", "entities")
    relations = [_relation(item, record.where) for item in record.values.get("relations") or ()]
    return replace(
        document, relations=linked_relations(relations, {each.id: each for each in document.annotations}, counts)
    )


def _relation(item: Any, where: str) -> tuple[str, tuple[str, str]]:
    if not (isinstance(item, Mapping) and isinstance(item.get("type"), str) and {"from_id", "to_id"} <= item.keys()):
        raise SqueezeError(
            f"{where}: {str(item)[:60]} is not a relation; write "
            '{"type": "inhibits", "from_id": 1, "to_id": 2}, with the ids of two entities'
        )
    return item["type"], (str(item["from_id"]), str(item["to_id"]))


def _annotations(document: Document, items: Sequence[Any]) -> Iterator[Annotation]:
    for item in items:
        entity = _as_entity(item)
        start, end = entity.get("start"), entity.get("end")
        labels = entity.get("labels", [entity.get("label", entity.get("type"))])  # a list in Label Studio
        named = isinstance(labels, list) and labels and all(isinstance(label, str) and label for label in labels)
        if not (isinstance(start, int) and isinstance(end, int) and named):
            raise SqueezeError(
                f"{document.where}: {str(item)[:60]} is not an entity; write "
                '{"start": 4, "end": 7, "label": "Gene"}, in characters of the text, the end exclusive'
            )
        text = str(entity.get("text", document.text[max(start, 0) : max(end, 0)]))
        for label in labels:
            annotation = Annotation(start, end, label, text, str(entity.get("id", "")))
            yield align_annotation(document, annotation, document.where)


def _as_entity(item: Any) -> Mapping[str, Any]:
    """Return an entity as an object: spaCy writes [start, end, label], doccano start_offset and end_offset too."""
    if isinstance(item, list) and len(item) == 3:
        return dict(zip(("start", "end", "label"), item, strict=True))
    if not isinstance(item, dict):
        return {}
    offsets = {name: item[f"{name}_offset"] for name in ("start", "end") if f"{name}_offset" in item}
    return {**item, **offsets}
