"""Read relation data sets: SciBERT's JSON lines, BLURB's tables, BioBERT's folders, records with offsets, documents."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from biosqueeze.data.output_types import SINGLE
from biosqueeze.data.records.columns import Columns, check_unique, find_column, parse_column_options
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.sample import SourceSample
from biosqueeze.data.records.tables import read_records
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import CountedWarning, counted, note, warn
from biosqueeze.registry import closest
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.entities import Entities, PairKind, Passage, Relation, segments_of
from biosqueeze.tasks.readers.answers import accepted_records
from biosqueeze.tasks.readers.entity_pairs import EntityStyle, no_entities, relation_of, style_of
from biosqueeze.tasks.readers.record_documents import document_of
from biosqueeze.tasks.readers.rows import check_labels
from biosqueeze.tasks.readers.sentence_pairs import (
    NO_RELATION,
    SentencePairs,
    documents_of_files,
    documents_of_records,
    pairs_of,
    passage_of,
    types_of_relations,
)
from biosqueeze.tasks.readers.split_overlap import check_disjoint, with_test, with_test_of

_ROLES = {
    "text": ("text", "sentence"),
    "label": ("label", "relation", "relation_type", "gold_label", "class"),
    "head": ("head", "e1", "entity1", "subject"),
    "tail": ("tail", "e2", "entity2", "object"),
    "id": ("id", "index", "idx", "guid"),
}
# A table without a header: BioBERT's train.tsv has a sentence and its label, others have an id before them.
_POSITIONS = {2: {"text": "1", "label": "2"}, 3: {"id": "1", "text": "2", "label": "3"}}
_NEGATIVES = {
    *("0", "false", "no", "none", "null", "nil", "na", "n/a", "neg", "negative"),
    *("no relation", "norelation", "no rel", "not related", "unrelated"),
}

_Parsed = dict[str, tuple[Relation, ...]]


def read(formulation: Formulation, source: str, splits: Sequence[str], recorded: Collection[PairKind] = ()) -> Dataset:
    """Read splits of a relation data set, and log columns, entities and labels.

    Args:
        formulation: column, negative, entities and representation are used.
        source: as `data.records.tables.read_records` takes it, or annotated documents: see `sentence_pairs`.
        splits: of train, dev and test. If train is among them and test is not, an existing test split is checked
            too, so that errors in it are found before training.
        recorded: kinds of pairs in documents that a model was trained on.

    Raises:
        SqueezeError: the data are damaged, or do not fit the formulation.
        UsageError: --negative or --column names a label or column that does not exist.
    """
    requested = parse_column_options(formulation.column)
    found = _pairs(formulation, source, splits, recorded)
    records = found.records
    if "test" in records and "test" not in splits and not _has_labels(records["test"], requested):
        note(f"{source}: test has no labels and is not compared with train and dev")
        del records["test"]
    columns = {split: _columns(rows, requested) for split, rows in records.items()}
    style = _common_style({split: style_of(rows, columns[split]) for split, rows in records.items()}, source)
    parsed = {split: _parsed(rows, columns[split], style) for split, rows in records.items()}
    if found.kinds:
        parsed = {split: _of_documents(relations, records[split]) for split, relations in parsed.items()}
    everything = [relation for relations in parsed.values() for relation in relations]
    check_representable(everything, style, formulation)
    _warn_of_dummies(everything, style)
    wanted = {split: parsed[split] for split in splits}
    labels = _labels(wanted, formulation.negative)
    check_labels(parsed, labels, lambda gold: (gold,))
    _check_disjoint(parsed, source)
    dataset = Dataset(wanted, labels, SINGLE.name, tuple(sorted(found.kinds)))
    _log(source, columns[splits[0]], style, dataset, formulation)
    return dataset


def _pairs(
    formulation: Formulation, source: str, splits: Sequence[str], recorded: Collection[PairKind]
) -> SentencePairs:
    """Return the records of splits, and with train those of test if there is one."""
    documents = documents_of_files(source, splits)
    if documents is None:
        requested = parse_column_options(formulation.column)
        read_splits = read_records(source, with_test_of(source, splits), header=Columns(_ROLES, requested).header)
        records = {split: accepted_records(rows, requested.get("label", "")) for split, rows in read_splits.items()}
        documents = documents_of_records(source, records)
        if documents is None:
            return SentencePairs(records, frozenset())
    negative = negative_of(types_of_relations(documents), formulation.negative)
    labelled = [split for split, each in documents.items() if any(document.relations for document in each)]
    negative = negative or formulation.negative or NO_RELATION
    return pairs_of(documents, with_test(splits, labelled), negative, recorded)


def unlabelled_relation(formulation: Formulation, record: Mapping[str, object]) -> Relation:
    """Build an unlabelled relation of a record: its text with marks or dummies, or with a head and a tail.

    The column of the label is not needed, even if --column names it: the option may be from the fine-tuning.

    Raises:
        SqueezeError: it has no text, its entities do not match the text, or they are not marked.
    """
    row = DataRecord("the record", record)
    requested = {role: name for role, name in parse_column_options(formulation.column).items() if role != "label"}
    columns = Columns(_ROLES, requested, optional=frozenset(_ROLES) - {"text"}).of([row])
    style = style_of([row], columns)
    relation = relation_of(row, columns, style, None)
    check_representable([relation], style, formulation)
    _warn_of_dummies([relation], style)
    return relation


def unlabelled_passage(
    formulation: Formulation, record: Mapping[str, object], kinds: Collection[PairKind]
) -> Passage | None:
    """Return the pairs of these kinds in a record with a text and entities; None for a record of one pair.

    Raises:
        SqueezeError: the entities do not agree with the text.
    """
    requested = parse_column_options(formulation.column)
    if not (kinds and isinstance(record.get("entities"), list)) or {"head", "tail"} & {*record, *requested}:
        return None
    return passage_of(document_of(DataRecord("the record", record), requested.get("text", "text"), "entities"), kinds)


def first_relations(sample: SourceSample, formulation: Formulation) -> tuple[Relation, ...]:
    """Return the first relations of a source; () if it has no records.

    Raises:
        SqueezeError: the records are not relations, or do not fit the formulation.
    """
    requested = parse_column_options(formulation.column)
    records = sample.records(Columns(_ROLES, requested).header)
    if not records:
        return ()
    columns = _columns(records, requested)
    style = style_of(records, columns)
    relations = _parsed(records, columns, style)
    check_representable(relations, style, formulation)
    return relations


def entities_of(formulation: Formulation) -> Entities:
    """Return how entities are written in the input: as the formulation has it, by default as dummies.

    Raises:
        UsageError: the representation needs markers, and the input has none.
    """
    chosen = formulation.entities or "dummy"
    if formulation.representation == "entity-starts" and chosen != "markers":
        raise UsageError(
            f"--representation entity-starts reads the marker before each entity, and --entities {chosen} has none; "
            "add --entities markers, or read --representation mentions"
        )
    return chosen


def check_representable(relations: Sequence[Relation], style: EntityStyle, formulation: Formulation) -> None:
    """Check that every relation fits the formulation.

    Raises:
        SqueezeError: the formulation needs the entities' names or positions, and the data lack them.
        UsageError: the options of the formulation exclude each other.
    """
    entities = entities_of(formulation)
    if style.how == "dummies" and entities != "dummy":
        raise SqueezeError(
            f"{relations[0].where}: --entities {entities} needs the entities' own names, and these data have "
            f"{style.description}; leave --entities out"
        )
    unknown = [relation.where for relation in relations if relation.mentions is None]
    if not unknown:
        return
    if style.how == "nothing" and not (formulation.entities == "original" and formulation.representation == "cls"):
        raise SqueezeError(
            f"{no_entities(unknown[0])}; to use the sentences unchanged: --entities original --representation cls"
        )
    if formulation.representation != "cls":
        raise SqueezeError(
            f"{unknown[0]}: not two @TYPE$ dummies, which --representation {formulation.representation} needs "
            f"({len(unknown):,} such sentences); correct it, or use --representation cls"
        )


def _warn_of_dummies(relations: Sequence[Relation], style: EntityStyle) -> None:
    unknown = [relation.where for relation in relations if relation.mentions is None]
    if unknown and style.how == "dummies":
        problem = "sentences do not have exactly two @TYPE$ dummies"
        detail = f", the first at {unknown[0]}; they are used unchanged"
        warn(CountedWarning(len(unknown), problem, len(relations), detail))


def negative_of(labels: Sequence[str], requested: str | None) -> str | None:
    """Return the label for no relation, if there is one.

    Raises:
        UsageError: several labels have a usual name of it, and none was requested.
    """
    if requested is not None:
        return requested if requested in labels else None
    usual = usual_negatives(labels)
    if len(usual) > 1:
        raise UsageError(
            f"{', '.join(map(repr, usual))} could each mean no relation; name the right one: --negative {usual[0]}"
        )
    return usual[0] if usual else None


def usual_negatives(labels: Sequence[str]) -> list[str]:
    """Return the labels with a usual name of no relation."""
    return sorted(label for label in set(labels) if _is_negative(label))


def _is_negative(label: str) -> bool:
    name = " ".join(label.casefold().replace("-", " ").replace("_", " ").split())
    return name in _NEGATIVES or name.split()[-1:] == ["false"]  # as DDI-false


def _columns(records: Sequence[DataRecord], requested: Mapping[str, str]) -> dict[str, str]:
    known: dict[str, Sequence[str]] = dict(_ROLES)
    if not records[0].has_names:
        known |= {role: (position,) for role, position in _POSITIONS.get(len(records[0].values), {}).items()}
        _check_no_header(records[0], known["text"][0])
    columns = Columns(known, requested, optional=frozenset({"head", "tail", "id"})).of(records)
    if "id" in columns:
        check_unique(records, columns["id"])
    return columns


def _has_labels(records: Sequence[DataRecord], requested: Mapping[str, str]) -> bool:
    """Return whether any record has a label; published test sets may have none."""
    if not records[0].has_names:
        return True
    try:
        column = find_column(records, "label", _ROLES["label"], requested)
    except SqueezeError:
        return False
    values = (record.values[column] for record in records)
    return any(value is not None and str(value).strip() for value in values)


def _check_no_header(first: DataRecord, column: str) -> None:
    """Recognise a header with unknown names: a single word in the column of the sentence."""
    value = str(first.values.get(column, ""))
    if value and len(value.split()) == 1:
        raise SqueezeError(
            f"{first.where}: {', '.join(map(repr, first.values.values()))} looks like a header with unknown names; "
            f"name the columns: --column text={value} --column label=NAME"
        )


def _common_style(styles: Mapping[str, EntityStyle], source: str) -> EntityStyle:
    """Return the style of all splits; the types of dummies may differ."""
    first = next(iter(styles.values()))
    for split, style in styles.items():
        if style.how != first.how or style.patterns != first.patterns:
            raise SqueezeError(
                f"{source}: {next(iter(styles))} has {first.description}, but {split} has "
                f"{style.description}; write all splits in one style"
            )
    return first


def _parsed(records: Sequence[DataRecord], columns: Mapping[str, str], style: EntityStyle) -> tuple[Relation, ...]:
    return tuple(relation_of(record, columns, style, _label(record, columns["label"])) for record in records)


def _of_documents(relations: Sequence[Relation], records: Sequence[DataRecord]) -> tuple[Relation, ...]:
    """Return relations with the documents that `pairs_of` has made their records of."""
    pairs = zip(relations, records, strict=True)
    return tuple(replace(relation, document_id=record.values["document"]) for relation, record in pairs)


def _label(record: DataRecord, column: str) -> str:
    value = record.values[column]
    if isinstance(value, bool):
        return str(value).lower()
    if (isinstance(value, str) and value.strip()) or isinstance(value, int):
        return str(value).strip()
    raise SqueezeError(
        f"{record.where}: {value!r} in {column}, but one label was expected; "
        "remove the line, or name another column with --column label=NAME"
    )


def _labels(parsed: _Parsed, requested: str | None) -> tuple[str, ...]:
    """Return the labels of train, or of all splits if train is not among them; the negative one first."""
    split = "train" if "train" in parsed else None
    relations = parsed[split] if split else [relation for each in parsed.values() for relation in each]
    names = sorted({str(relation.gold) for relation in relations})
    negative = negative_of(names, requested)
    if requested is not None and negative is None:
        message = f"no example has the label {requested!r} of --negative.{closest(requested, names)} Labels: "
        if split:
            raise UsageError(message + ", ".join(names))
        warn(message + ", ".join(names))
    if split and len(names) < 2:
        raise SqueezeError(f"every example of train has the label {names[0]!r}, so there is nothing to train")
    first = () if negative is None else (negative,)
    return (*first, *(name for name in names if name != negative))


def _check_disjoint(parsed: _Parsed, source: str) -> None:
    """Check that train and dev are not the test split; examples are the same pair in the same sentence."""
    texts = {
        split: ["".join(segment.text for segment in segments_of(relation, "markers")) for relation in relations]
        for split, relations in parsed.items()
    }
    for split in [name for name in ("train", "dev") if name in texts and "test" in texts]:
        check_disjoint(split, texts[split], texts["test"], source)


def _log(source: str, columns: Mapping[str, str], style: EntityStyle, data: Dataset, formulation: Formulation) -> None:
    roles = ", ".join(f"{role} from {column}" for role, column in columns.items())
    entities = (
        f"{style.description}; entities as {entities_of(formulation)}, representation {formulation.representation}"
    )
    note(f"{source}: {roles}; {entities}")
    negative = negative_of(data.labels, formulation.negative)
    scored = (
        f"{negative!r} means no relation and is left out of F1"
        if negative is not None
        else "none means no relation, so F1 is over all labels, as in SciBERT's own benchmark of ChemProt"
    )
    note(f"labels {', '.join(data.labels)}: {scored}")
    for split, relations in data.splits.items():
        counts = Counter(relation.gold for relation in relations)
        each = ", ".join(f"{label} {counts[label]:,}" for label in data.labels)
        note(f"{split}: {counted(len(relations), 'example')} ({each})")
    examples = [relation for relations in data.splits.values() for relation in relations]
    ambiguous = sum(map(_loses_direction, examples)) if entities_of(formulation) == "dummy" else 0
    if ambiguous:
        warn(
            f"{ambiguous:,} of {len(examples):,} pairs are of one type and have the second entity first: their dummies "
            "are equal, so the input does not show which is the head; if that matters: --entities markers"
        )
    if formulation.entities == "original" and formulation.representation == "cls":
        warn(
            "original text with the representation cls does not mark the two entities; its published results are worst"
        )


def _loses_direction(relation: Relation) -> bool:
    if relation.mentions is None or relation.replaced:
        return False
    head, tail = relation.mentions
    return bool(head.type) and head.type == tail.type and tail.start < head.start
