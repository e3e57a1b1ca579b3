"""Read the records of Label Studio and of BigBio's data sets as texts with entities, and relations between these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note


def with_entities(records: Sequence[DataRecord]) -> list[DataRecord]:
    """Return records with `text`, `entities` and `relations` in place of other layouts; all others as they are.

    Label Studio's tasks have a text in `data`, and `annotations` with lists of results: of those that were not
    cancelled, the ground truth is read, or else the first, and tasks without one are left out. BigBio's documents
    (Fries et al. 2022, the schema of knowledge bases) have passages and entities with lists of texts and offsets: an
    entity of several parts becomes one span, from its first to its last character.

    Raises:
        SqueezeError: a task has no text, the tasks have classes of texts and no entity, or a document has other
            passages or entities.
    """
    _check_results([record for record in records if _is_task(record)])
    return [converted for record in records for converted in _converted(record)]


def note_readings(records: Sequence[DataRecord]) -> None:
    """Log how many records `with_entities` leaves out or reads in part.

    Raises:
        SqueezeError: it leaves out all.
    """
    tasks = [record for record in records if _is_task(record)]
    finished = [len(_finished(task)) for task in tasks]
    if len(tasks) == len(records) and not any(finished):
        raise SqueezeError(f"{records[0].where}: no task has an annotation; export annotated tasks of Label Studio")
    divided = sum(len(entity["offsets"]) > 1 for each in records if _is_bigbio(each) for entity in _entities(each))
    readings = {
        "tasks without annotations left out": finished.count(0),
        "tasks with several annotations, of which the ground truth or else the first is read": sum(
            count > 1 for count in finished
        ),
        "discontinuous entities read as one span from first to last character": divided,
    }
    counts = [f"{count:,} {what}" for what, count in readings.items() if count]
    if counts:
        note(f"{records[0].where}: {'; '.join(counts)}")


def _converted(record: DataRecord) -> Iterator[DataRecord]:
    if _is_task(record):
        yield from (replace(record, values=_of_task(record, annotation)) for annotation in _finished(record)[:1])
    elif _is_bigbio(record):
        yield replace(record, values=_of_bigbio(record))
    elif "annotation_id" in record.values:  # Label Studio's short records, which have no list where a text has none
        yield replace(record, values={"label": [], **record.values})
    else:
        yield record


def _is_task(record: DataRecord) -> bool:
    data, annotations = record.values.get("data"), record.values.get("annotations")
    return isinstance(data, Mapping) and isinstance(annotations, list)


def _finished(task: DataRecord) -> list[Mapping[str, Any]]:
    """Return the annotations of a task of Label Studio that were not cancelled, the ground truth first."""
    annotations = task.values["annotations"]
    finished = [each for each in annotations if isinstance(each, Mapping) and not each.get("was_cancelled")]
    return sorted(finished, key=lambda each: not each.get("ground_truth"))


def _check_results(tasks: Sequence[DataRecord]) -> None:
    """Check that the tasks of Label Studio have not the classes of texts alone.

    Raises:
        SqueezeError: they have.
    """
    values = [
        value
        for task in tasks
        for annotation in _finished(task)[:1]
        for result in _listed(annotation, "result", task.where)
        if isinstance(result, Mapping) and isinstance(value := result.get("value"), Mapping)
    ]
    if any("choices" in value for value in values) and not any("labels" in value for value in values):
        raise SqueezeError(
            f"{tasks[0].where}: the annotations of Label Studio are choices for whole texts, and no entities; export "
            "them as JSON-MIN or CSV, and give --task classification --column label=NAME"
        )


def _of_task(task: DataRecord, annotation: Mapping[str, Any]) -> dict[str, Any]:
    data = task.values["data"]
    texts = [data["text"]] if "text" in data else [value for value in data.values() if isinstance(value, str)]
    if len(texts) != 1:
        raise SqueezeError(f"{task.where}: data of a task needs a text, and has {', '.join(data)}; call it text")
    results = [each for each in _listed(annotation, "result", task.where) if isinstance(each, Mapping)]
    spans = [
        {**value, "id": each.get("id", "")}
        for each in results
        if isinstance(value := each.get("value"), Mapping) and "labels" in value
    ]
    linked = [each for each in results if each.get("type") == "relation"]
    relations = [relation for each in linked for relation in _relations(each, task.where)]
    name = str(task.values.get("id", task.where))
    return {"id": name, "text": texts[0], "entities": spans, "relations": relations}


def _relations(result: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return a relation of Label Studio, which may point to the left, for each of its labels, if it has any."""
    ends = (result.get("from_id"), result.get("to_id"))
    first, second = reversed(ends) if result.get("direction") == "left" else ends
    labels = _listed(result, "labels", where) or ["relation"]
    return [{"type": label, "from_id": first, "to_id": second} for label in labels]


def _listed(values: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return a list of an annotation of Label Studio; an empty one if it is missing or null."""
    listed = values.get(key) or []
    if not isinstance(listed, list):
        raise SqueezeError(f"{where}: {key} of an annotation is {str(listed)[:40]!r}, a list was expected")
    return listed


def _is_bigbio(record: DataRecord) -> bool:
    lists = (record.values.get(name) for name in ("passages", "entities"))
    return "text" not in record.values and all(isinstance(value, list) for value in lists)


def _of_bigbio(document: DataRecord) -> dict[str, Any]:
    text = ""
    for passage in _parts(document, "passages"):
        start = passage["offsets"][0][0]
        if start < len(text):
            raise SqueezeError(f"{document.where}: the passage at {start} begins before the end of another")
        text = text.ljust(start) + passage["text"][0]
    name = document.values.get("document_id") or document.values.get("id") or document.where
    relations = [
        {**each, "from_id": each.get("arg1_id"), "to_id": each.get("arg2_id")}
        for each in document.values.get("relations") or ()
        if isinstance(each, Mapping)
    ]
    spans = list(map(_span, _entities(document)))
    return {"id": str(name), "text": text, "entities": spans, "relations": relations}


def _entities(document: DataRecord) -> list[Mapping[str, Any]]:
    return _parts(document, "entities")


def _span(entity: Mapping[str, Any]) -> dict[str, Any]:
    offsets = entity["offsets"]
    span = {"start": min(start for start, _ in offsets), "end": max(end for _, end in offsets), "label": entity["type"]}
    named = span | {"id": entity.get("id", "")}
    return named | ({"text": entity["text"][0]} if len(offsets) == 1 else {})


def _parts(document: DataRecord, name: str) -> list[Mapping[str, Any]]:
    """Return the passages or entities of a document of BigBio.

    Raises:
        SqueezeError: one lacks its type, texts or offsets, or they have other types.
    """
    parts = document.values[name]
    for part in parts:
        if not (isinstance(part, Mapping) and _is_text(part.get("text")) and _are_offsets(part.get("offsets"))):
            raise SqueezeError(
                f"{document.where}: {str(part)[:60]} is none of BigBio's {name}; each has a type, a list of texts, "
                "and a list of offsets, such as [[0, 4]]"
            )
    return list(parts)


def _is_text(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _are_offsets(value: Any) -> bool:
    spans = value if isinstance(value, list) else []
    return bool(spans) and all(
        isinstance(span, list | tuple) and len(span) == 2 and all(isinstance(offset, int) for offset in span)
        for span in spans
    )
