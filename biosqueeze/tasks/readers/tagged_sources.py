"""Read tagged sentences from column files, PubTator, BioC, JSON, `datasets` data sets, and generated text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from biosqueeze.data.annotations.annotated import Document
from biosqueeze.data.annotations.documents import format_of_text
from biosqueeze.data.annotations.tagging import TypeRanks, by_rank, tag_documents
from biosqueeze.data.demo import demo_ner
from biosqueeze.data.lines import numbered_lines
from biosqueeze.data.records.columns import Columns, parse_column_options
from biosqueeze.data.records.hub import is_hub, is_saved
from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.sample import RECORDS, SourceSample
from biosqueeze.data.records.splits import (
    SPLITS,
    WORD_SUFFIXES,
    abstracts_of,
    check_splits,
    open_directory,
    require_split,
    splits_within,
    word_files,
)
from biosqueeze.data.records.tables import read_file, read_records
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note, quietly, warn
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE
from biosqueeze.tasks.readers.annotated_records import note_readings, with_entities
from biosqueeze.tasks.readers.answers import accepted_records
from biosqueeze.tasks.readers.conll import parse_columns, read_columns
from biosqueeze.tasks.readers.document_files import document_format, documents_in, find_folder, find_source
from biosqueeze.tasks.readers.record_documents import document_of
from biosqueeze.tasks.readers.split_overlap import check_files, with_test_of
from biosqueeze.tasks.readers.tag_columns import TEXTS, WORDS, has_no_labels, is_json, is_unlabelled_file
from biosqueeze.tasks.readers.tag_names import named_tags, tag_names
from biosqueeze.tasks.readers.tagged import SourceSentence, build_dataset

DEMO = "demo:ner"
NO_RANKS: TypeRanks = {}
_SUFFIXES = (
    ".tsv", ".txt", *WORD_SUFFIXES, ".jsonl", ".json", ".pubtator", ".pubtator.txt", ".PubTator", ".PubTator.txt",
    ".xml",
)  # fmt: skip
_WITHIN_WORD = re.compile(r"[A-Za-z0-9]{2}")


def read(source: str, splits: Sequence[str], formulation: Formulation, ranks: TypeRanks = NO_RANKS) -> Dataset:
    """Read splits of a data set, and log their files and formats.

    Args:
        source: a directory with train, dev (or devel, valid, ...) and test; hub:NAME; a directory that
            `datasets` saved; or demo:ner. The files hold columns (.tsv, .txt, .conll, .iob2), PubTator, BioC (.xml,
            .json) or JSON records with tokens and tags, or with text and entities (start, end, label), as spaCy,
            doccano, Prodigy and Label Studio write them, or BigBio's. PubTator and BioC files may have other names
            with train, dev or test in them, such as NCBItrainset_corpus.txt. brat's .txt and .ann are in directories
            train, dev and test; so may be several files of columns (.conll, .iob2), and ChemProt's tables.
        splits: of train, dev and test. The labels are those of train if it is among them, else those of all.
        formulation: columns, types and scheme.
        ranks: of types: where annotations overlap, words are of the highest; without ranks the longest is kept.

    Raises:
        SqueezeError: a file is missing, empty or malformed, or has a label that train lacks.
        UsageError: there is no such split, column or type.
    """
    check_splits(splits)
    requested = parse_column_options(formulation.column)
    if source.startswith("demo:"):
        return build_dataset(source, _demo(source, splits, requested), splits, formulation)
    if is_hub(source) or is_saved(Path(source).expanduser()):
        listed = () if is_hub(source) else _tag_names(Path(source).expanduser(), formulation)
        records = read_records(source, with_test_of(source, splits))
        if "test" in records and "test" not in splits and has_no_labels(records["test"], requested):
            _note_unlabelled_test(source)
            del records["test"]
        read = {split: _of_records(rows, formulation, listed, ranks) for split, rows in records.items()}
        return build_dataset(source, read, splits, formulation)
    files = _files(source, splits, requested)
    check_files(files)
    parsed = {split: _read_file(path, formulation, ranks) for split, path in files.items()}
    dataset = build_dataset(source, {split: rows for split, (rows, _) in parsed.items()}, splits, formulation)
    _log_files(source, {split: files[split] for split in splits}, {split: kind for split, (_, kind) in parsed.items()})
    return dataset


def sniff_tags(sample: SourceSample, formulation: Formulation) -> list[Sequence[str]]:
    """Return the tags of the first sentences of a source, or of the annotations of its first documents.

    Returns:
        [] if the source does not hold tagged sentences. The annotations of BioC are not read, and count as O.

    Raises:
        SqueezeError: a sentence is malformed.
    """
    if sample.source.startswith("demo:"):
        return [tags for _, tags in demo_ner("train")[:RECORDS]] if sample.source == DEMO else []
    found = next((path for split in SPLITS if (path := _documents_of_split(sample, split))), None)
    if found is not None and not document_format(found):
        return _tags_of_columns(numbered_lines(_column_files(found)[0]), found, formulation)
    if found is not None:
        with quietly():  # a reader counts what few documents have
            documents = list(islice(documents_in(found), RECORDS))
        return [(OUTSIDE, *(f"B-{annotation.type}" for annotation in each.annotations)) for each in documents]
    if sample.path is None:
        listed = () if is_hub(sample.source) else _tag_names(Path(sample.source).expanduser(), formulation)
        return _tags_of_records(sample.saved, formulation, listed)
    mentions_split = sample.is_named_as_split or splits_within(sample.path.name)
    kind = format_of_text(sample.path, sample.text) if mentions_split else None
    if kind:
        rows = (line.split("\t") for _, line in sample.lines) if kind == "pubtator" else ()
        # Five columns are an annotation without a concept, or a relation, which has no offsets.
        annotations = (cells for cells in rows if len(cells) > 4 and cells[1].isdigit() and cells[2].isdigit())
        return [(OUTSIDE,), *((f"B-{cells[4].strip()}",) for cells in annotations)]
    return _tags_of_file(sample, sample.path, formulation) if _is_usual_name(sample) else []


def _tags_of_file(sample: SourceSample, path: Path, formulation: Formulation) -> list[Sequence[str]]:
    if is_json(path, sample.text):
        return _tags_of_records(sample.records(), formulation, _tag_names(path.parent, formulation))
    return _tags_of_columns(sample.lines, path, formulation)


def _tags_of_columns(lines: Iterable[tuple[int, str]], path: Path, formulation: Formulation) -> list[Sequence[str]]:
    parsed = parse_columns(lines, path, parse_column_options(formulation.column))
    return [sentence.tags for sentence, _ in islice(parsed, RECORDS)]


def _column_files(source: Path) -> list[Path]:
    """Return the files of columns of a split, which may be a folder of them."""
    return word_files(source) if source.is_dir() else [source]


def _documents_of_split(sample: SourceSample, split: str) -> Path | None:
    """Return the folder or the table of abstracts of a split, where no file has its name."""
    if sample.directory is None or (sample.path and sample.is_named_as_split):
        return None
    folder = None if sample.path else find_folder(sample.directory, split)
    return folder or abstracts_of(sample.directory, split)


def _is_usual_name(sample: SourceSample) -> bool:
    """Return whether a file is found by its name alone, as train.tsv, and not by its content, as NCBItrainset.txt."""
    name = sample.path.name.lower().removesuffix(".gz") if sample.path else ""
    return sample.is_named_as_split and name.endswith(_SUFFIXES)


def _tags_of_records(
    records: Sequence[DataRecord], formulation: Formulation, names: Sequence[str]
) -> list[Sequence[str]]:
    if not records:
        return []
    records = with_entities(records)
    documents = _documents_of(records, formulation)
    if documents is not None:
        return [(OUTSIDE, *(f"B-{annotation.type}" for annotation in each.annotations)) for each in documents]
    return [sentence.tags for sentence in _sentences_of_tokens(records, formulation, names)]


def _demo(source: str, splits: Sequence[str], requested: Mapping[str, str]) -> dict[str, list[SourceSentence]]:
    if source != DEMO:
        raise UsageError(f"there is no data set called {source}; the built-in one is {DEMO}")
    if requested:
        warn(f"{DEMO} has no columns: {', '.join(requested.values())} not used")
    return {
        split: [SourceSentence(words, tags, source) for words, tags in demo_ner(split)] for split in {*splits, "train"}
    }


def _files(source: str, splits: Sequence[str], requested: Mapping[str, str]) -> dict[str, Path]:
    if not Path(source).expanduser().exists():
        raise SqueezeError(f"there is no directory {source}; give one with train.tsv, dev.tsv and test.tsv, or {DEMO}")
    directory = open_directory(source)
    files = {
        split: find_source(directory, split, _SUFFIXES) or require_split(directory, split, _SUFFIXES)
        for split in splits
    }
    test = find_source(directory, "test", _SUFFIXES) if "train" in splits and "test" not in splits else None
    if test and not document_format(test) and all(is_unlabelled_file(each, requested) for each in _column_files(test)):
        _note_unlabelled_test(source)
        return files
    return files | ({"test": test} if test else {})


def _note_unlabelled_test(source: str) -> None:
    note(f"{source}: test has no tags and is not compared with train and dev")


def _read_file(path: Path, formulation: Formulation, ranks: TypeRanks) -> tuple[list[SourceSentence], str]:
    """Return the sentences of a file, and its format for messages."""
    requested = parse_column_options(formulation.column)
    kind = document_format(path)
    if kind:
        if requested:  # not an error: a model that was fine-tuned on columns may be evaluated on PubTator
            warn(f"{path} is {kind}, which has no columns: {', '.join(requested.values())} not used")
        return _of_documents(documents_in(path), path, formulation, ranks), kind
    paths = _column_files(path)
    first = next((line for _, line in numbered_lines(paths[0]) if line.strip()), "")
    if is_json(paths[0], first):
        return _of_records(read_file(path), formulation, _tag_names(path.parent, formulation), ranks), "JSON"
    parsed = [read_columns(each, requested) for each in paths]
    number = f"{len(paths):,} files of " if path.is_dir() else ""
    return [each for sentences, _ in parsed for each in sentences], f"{number}columns: {parsed[0][1]}"


def _tag_names(directory: Path, formulation: Formulation) -> tuple[str, ...]:
    tag = parse_column_options(formulation.column).get("tag")
    return tag_names(directory, (tag,) if tag else WORDS.known["tag"])


def _of_documents(
    documents: Iterable[Document], path: Path, formulation: Formulation, ranks: TypeRanks
) -> list[SourceSentence]:
    read = [by_rank(document, ranks) for document in documents] if ranks else list(documents)
    _warn_of_ends(path, read)
    types_in_data = {annotation.type for document in read for annotation in document.annotations}
    # Of overlapping annotations one is dropped; only the requested types compete.
    types = [name for name in formulation.types if name in types_in_data]
    return [
        SourceSentence(words, tags, document.where or str(path), (), document.text, offsets, document.part_of)
        for document, sentences in zip(read, tag_documents(read, types), strict=True)
        for words, tags, offsets in sentences
    ]


def _warn_of_ends(path: Path, documents: Sequence[Document]) -> None:
    """Warn where most annotations end within a word of Latin letters, as those do whose last character is given."""
    ends = [document.text[each.end - 1 : each.end + 1] for document in documents for each in document.annotations]
    within = sum(map(bool, map(_WITHIN_WORD.fullmatch, ends)))
    if 2 * within > len(ends):
        warn(
            f"{path}: {within:,} of {len(ends):,} entities end within a word; the end of an entity is the character "
            "after its last: correct the ends if they are the last ones"
        )


def _of_records(
    records: Sequence[DataRecord], formulation: Formulation, names: Sequence[str], ranks: TypeRanks
) -> list[SourceSentence]:
    """Read records with tokens and tags (or the numbers of `names`), or with a text and its entities."""
    note_readings(records)
    accepted = accepted_records(with_entities(records))
    documents = _documents_of(accepted, formulation)
    if documents is not None:
        return _of_documents(documents, Path(accepted[0].where), formulation, ranks)
    return list(_sentences_of_tokens(accepted, formulation, names))


def _documents_of(records: Sequence[DataRecord], formulation: Formulation) -> Iterator[Document] | None:
    """Return the documents of records with a text and its entities, or None for records with tokens and tags."""
    requested = parse_column_options(formulation.column)
    roles = Columns({**WORDS.known, **TEXTS.known}, requested)
    has_spans = not requested and any(_has_spans(record) for record in records)
    if not ("text" in requested or "entities" in requested or has_spans):
        return None
    texts = Columns(TEXTS.known, {role: name for role, name in roles.requested.items() if role in TEXTS.known})
    if any("spans" in record.values for record in records):
        records = [_with_spans(record) for record in records]
    columns = texts.of(records)
    return (document_of(record, columns["text"], columns["entities"]) for record in records)


def _with_spans(record: DataRecord) -> DataRecord:
    """Return a record of Prodigy with its list of spans, which is left out where a text has none."""
    return replace(record, values={"spans": [], **record.values}) if "answer" in record.values else record


def _has_spans(record: DataRecord) -> bool:
    """Return whether a record has a text and a list of spans, which is empty only under the name "entities"."""
    values = record.values
    tokens = values.get("tokens")
    is_tagged = isinstance(tokens, list) and not all(isinstance(token, dict) for token in tokens)  # Prodigy's: objects
    if not isinstance(values.get("text"), str) or is_tagged:
        return "entities" in values
    lists = (values[name] for name in TEXTS.known["entities"] if isinstance(values.get(name), list))
    return "entities" in values or any(isinstance(item, dict | list) for items in lists for item in items)


def _sentences_of_tokens(
    records: Sequence[DataRecord], formulation: Formulation, names: Sequence[str]
) -> Iterator[SourceSentence]:
    columns = Columns(WORDS.known, parse_column_options(formulation.column)).of(records)
    return (_sentence(record, columns["word"], columns["tag"], names) for record in records)


def _sentence(record: DataRecord, word: str, tag: str, names: Sequence[str]) -> SourceSentence:
    words, tags = record.values[word], record.values[tag]
    if isinstance(tags, list):
        tags = named_tags(tags, names, record.where)
    for name, values in ((word, words), (tag, tags)):
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise SqueezeError(
                f"{record.where}: {name} is not a list of strings ({str(values)[:40]}); write the words and their "
                'tags, such as {"tokens": ["the", "p53"], "tags": ["O", "B-Gene"]}'
            )
    if len(words) != len(tags):
        raise SqueezeError(f"{record.where}: {len(words)} {word} and {len(tags)} {tag}; give each word one tag")
    blank = next((position for position, value in enumerate(words, start=1) if not value.strip()), None)
    if blank is not None:
        raise SqueezeError(f"{record.where}: word {blank} of {word} is empty; remove it and its tag")
    return SourceSentence(tuple(words), tuple(tags), record.where)


def _log_files(source: str, files: Mapping[str, Path], formats: Mapping[str, str]) -> None:
    """Log the file and format of each split, and files with train and dev together, which are not read."""
    groups = {name: [split for split in files if formats[split] == name] for name in formats.values()}
    descriptions = (
        f"{', '.join(f'{split} is {files[split].name}' for split in group)} ({name})"
        for name, group in groups.items()
        if group
    )
    # BioBERT's folders have train and dev together in one more file.
    both = {path.name for file in files.values() for path in file.parent.glob("train_dev*") if path.is_file()}
    skipped = f"; {', '.join(sorted(both))} (train and dev together) is not read" if both else ""
    note(f"{source}: {'; '.join(descriptions)}{skipped}")
