"""Read relation data sets: SciBERT's JSON lines, BLURB's tables, BioBERT's folders, and records with offsets."""

from collections import Counter
from collections.abc import Mapping, Sequence

from biosqueeze.data.output_types import SINGLE
from biosqueeze.data.record import DataRecord
from biosqueeze.data.tables import Columns, check_unique, parse_column_options, read_records, splits_of
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note, warn
from biosqueeze.registry import closest
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.entities import Entities, Relation, segments_of
from biosqueeze.tasks.readers.entity_pairs import EntityStyle, no_entities, relation_of, style_of
from biosqueeze.tasks.readers.split_overlap import check_disjoint

_ROLES = {
    "text": ("text", "sentence"),
    "label": ("label", "relation", "relation_type", "gold_label", "class"),
    "head": ("head", "e1", "entity1", "subject"),
    "tail": ("tail", "e2", "entity2", "object"),
    "id": ("id", "index", "idx", "guid"),
}
# A table without a header: BioBERT's train.tsv is a sentence and its label, others have an id before them.
_PLACES = {2: {"text": "1", "label": "2"}, 3: {"id": "1", "text": "2", "label": "3"}}
_NEGATIVES = {"0", "false", "no", "none", "null", "nil", "na", "n/a", "neg", "negative"} | {
    "no relation",
    "norelation",
    "no rel",
    "not related",
    "unrelated",
}

_Parsed = dict[str, tuple[Relation, ...]]


def read(form: Formulation, source: str, splits: Sequence[str]) -> Dataset:
    """Read splits of a relation data set, and say what was taken for what.

    Args:
        form: column, negative, entities and representation are read.
        source: as `data.tables.read_records` takes it.
        splits: of train, dev and test. Where train is among them and test is not, a test split that is there is
            looked at all the same, so that what is wrong with it shows before anything is trained.

    Raises:
        SqueezeError: the data are damaged, or cannot be posed in the way that is asked.
        UsageError: --negative or --column names nothing that is there.
    """
    peeked = [name for name in ("test",) if "train" in splits and name not in splits and name in splits_of(source)]
    asked = parse_column_options(form.column)
    header = Columns(_ROLES, asked).header
    records = read_records(source, [*splits, *peeked], header=header)
    columns = {split: _columns(rows, asked) for split, rows in records.items()}
    style = _one_style({split: style_of(rows, columns[split]) for split, rows in records.items()}, source)
    parsed = {split: _parsed(rows, columns[split], style) for split, rows in records.items()}
    everything = [relation for relations in parsed.values() for relation in relations]
    check_representable(everything, style, form)
    labels = _labels({split: parsed[split] for split in parsed if split not in peeked}, form.negative)
    _check_labels(everything, labels)
    _check_disjoint(parsed, source)
    wanted = {split: parsed[split] for split in splits}
    _say(source, columns[splits[0]], style, Dataset(wanted, labels, SINGLE.name), form)
    return Dataset(wanted, labels, SINGLE.name)


def unlabelled_relation(form: Formulation, record: Mapping[str, object]) -> Relation:
    """An unlabelled relation from a record: its text with marks or dummies, or with a head and a tail.

    A column that is asked for as the label need not be there: it may come from the fine-tuning.

    Raises:
        SqueezeError: it has no text, or the entities are not where it says, or are not said.
    """
    row = DataRecord("the record", record)
    asked = {role: name for role, name in parse_column_options(form.column).items() if role != "label"}
    columns = Columns(_ROLES, asked, optional=frozenset(_ROLES) - {"text"}).of([row])
    style = style_of([row], columns)
    relation = relation_of(row, columns, style, None)
    check_representable([relation], style, form)
    return relation


def entities_of(form: Formulation) -> Entities:
    """How entities are shown: as the form says, dummies if it does not.

    Raises:
        UsageError: where entities start is to be read, and nothing marks that.
    """
    chosen = form.entities or "dummy"
    if form.representation == "entity-starts" and chosen != "markers":
        raise UsageError(
            f"--representation entity-starts reads the marker before each entity, and --entities {chosen} has none; "
            "add --entities markers, or read --representation mentions"
        )
    return chosen


def check_representable(relations: Sequence[Relation], style: EntityStyle, form: Formulation) -> None:
    """See that every relation can be shown and read as the form asks.

    Raises:
        SqueezeError: the names of entities are gone, or it is not said which ones are meant.
        UsageError: the form contradicts itself.
    """
    entities = entities_of(form)
    if style.how == "dummies" and entities != "dummy":
        raise SqueezeError(
            f"{relations[0].where}: --entities {entities} needs the entities' own names, and these data have "
            f"{style.said}; leave --entities out"
        )
    unknown = [relation.where for relation in relations if relation.mentions is None]
    if not unknown:
        return
    if style.how == "nothing" and not (form.entities == "original" and form.representation == "cls"):
        raise SqueezeError(
            f"{no_entities(unknown[0])}; to read sentences as they stand: --entities original --representation cls"
        )
    if form.representation != "cls":
        raise SqueezeError(
            f"{unknown[0]}: not two @TYPE$ dummies, so that --representation {form.representation} has nothing to "
            f"read ({len(unknown):,} such sentences); mend it, or read --representation cls"
        )
    if style.how == "dummies":
        warn(
            f"{len(unknown):,} of {len(relations):,} sentences have not exactly two @TYPE$ dummies, the first at "
            f"{unknown[0]}; they are read as they stand"
        )


def negative_of(labels: Sequence[str], asked: str | None) -> str | None:
    """The label that means no relation, if there is one.

    Raises:
        UsageError: several labels may mean it, and none was named.
    """
    if asked is not None:
        return asked if asked in labels else None
    usual = sorted(label for label in set(labels) if _is_negative(label))
    if len(usual) > 1:
        raise UsageError(
            f"{', '.join(map(repr, usual))} could each mean no relation; say which one does: --negative {usual[0]}"
        )
    return usual[0] if usual else None


def _is_negative(label: str) -> bool:
    name = " ".join(label.casefold().replace("-", " ").replace("_", " ").split())
    return name in _NEGATIVES or name.split()[-1:] == ["false"]  # as DDI-false


def _columns(records: Sequence[DataRecord], asked: Mapping[str, str]) -> dict[str, str]:
    names = tuple(records[0].values)
    known: dict[str, Sequence[str]] = dict(_ROLES)
    if names == tuple(str(place) for place in range(1, len(names) + 1)):
        known |= {role: (place,) for role, place in _PLACES.get(len(names), {}).items()}
        _check_no_header(records[0], known["text"][0])
    columns = Columns(known, asked, optional=frozenset({"head", "tail", "id"})).of(records)
    if "id" in columns:
        check_unique(records, columns["id"])
    return columns


def _check_no_header(first: DataRecord, column: str) -> None:
    """A word where a sentence with two entities should stand is the name of a column that no role knows."""
    value = str(first.values.get(column, ""))
    if value and len(value.split()) == 1:
        raise SqueezeError(
            f"{first.where}: {', '.join(map(repr, first.values.values()))} looks like a header with unknown names; "
            f"say which column is which: --column text={value} --column label=NAME"
        )


def _one_style(styles: Mapping[str, EntityStyle], source: str) -> EntityStyle:
    """What the splits have in common; the types of dummies may differ."""
    first = next(iter(styles.values()))
    for split, style in styles.items():
        if style.how != first.how or style.patterns != first.patterns:
            raise SqueezeError(
                f"{source}: {next(iter(styles))} has {first.said}, but {split} has {style.said}; "
                "write all splits in one way"
            )
    return first


def _parsed(records: Sequence[DataRecord], columns: Mapping[str, str], style: EntityStyle) -> tuple[Relation, ...]:
    return tuple(relation_of(record, columns, style, _label(record, columns["label"])) for record in records)


def _label(record: DataRecord, column: str) -> str:
    value = record.values[column]
    if isinstance(value, bool):
        return str(value).lower()
    if (isinstance(value, str) and value.strip()) or isinstance(value, int):
        return str(value).strip()
    raise SqueezeError(
        f"{record.where}: {value!r} in {column}, where one label was expected; "
        "take the line out, or name another column with --column label=NAME"
    )


def _labels(parsed: _Parsed, asked: str | None) -> tuple[str, ...]:
    """The labels of train, or of all that was read where train is not; the negative one first."""
    split = "train" if "train" in parsed else None
    relations = parsed[split] if split else [relation for each in parsed.values() for relation in each]
    names = sorted({str(relation.gold) for relation in relations})
    negative = negative_of(names, asked)
    if asked is not None and negative is None:
        message = f"no example has the label {asked!r} that --negative names.{closest(asked, names)} Labels: "
        if split:
            raise UsageError(message + ", ".join(names))
        warn(message + ", ".join(names))
    if split and len(names) < 2:
        raise SqueezeError(f"every example of train has the label {names[0]!r}, so there is nothing to learn")
    first = () if negative is None else (negative,)
    return (*first, *(name for name in names if name != negative))


def _check_labels(relations: Sequence[Relation], labels: Sequence[str]) -> None:
    for relation in relations:
        if relation.gold not in labels:
            raise SqueezeError(
                f"{relation.where}: the label {relation.gold!r} is none of train's ({', '.join(labels)}); "
                "correct it, or add examples of it to train"
            )


def _check_disjoint(parsed: _Parsed, source: str) -> None:
    """What was trained on or selected by must not be the test split: the same pair in the same sentence."""
    texts = {
        split: ["".join(segment.text for segment in segments_of(relation, "markers")) for relation in relations]
        for split, relations in parsed.items()
    }
    for split in [name for name in ("train", "dev") if name in texts and "test" in texts]:
        check_disjoint(split, texts[split], texts["test"], source)


def _say(source: str, columns: Mapping[str, str], style: EntityStyle, data: Dataset, form: Formulation) -> None:
    taken = ", ".join(f"{role} from {column}" for role, column in columns.items())
    note(f"{source}: {taken}; {style.said}; shown as {entities_of(form)}, read from {form.representation}")
    negative = negative_of(data.labels, form.negative)
    scored = (
        f"{negative!r} means no relation and does not count in F1"
        if negative is not None
        else "none means no relation, so F1 is over all labels, as in SciBERT's own benchmark of ChemProt"
    )
    note(f"labels {', '.join(data.labels)}: {scored}")
    for split, relations in data.splits.items():
        counts = Counter(relation.gold for relation in relations)
        each = ", ".join(f"{label} {counts[label]:,}" for label in data.labels)
        note(f"{split}: {len(relations):,} examples ({each})")
    examples = [relation for relations in data.splits.values() for relation in relations]
    alike = sum(map(_loses_direction, examples)) if entities_of(form) == "dummy" else 0
    if alike:
        warn(
            f"{alike:,} of {len(examples):,} pairs are of one type and have the second entity first: their dummies are "
            "alike, so which one is the head is not shown; if that matters: --entities markers"
        )
    if form.entities == "original" and form.representation == "cls":
        warn("original text read from cls does not say which two entities are meant; the literature finds it worst")


def _loses_direction(relation: Relation) -> bool:
    if relation.mentions is None or relation.replaced:
        return False
    head, tail = relation.mentions
    return bool(head.type) and head.type == tail.type and tail.start < head.start
