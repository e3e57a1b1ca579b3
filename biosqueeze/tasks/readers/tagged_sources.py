"""Where tagged sentences come from: column files, PubTator, BioC, JSON, `datasets`, and the generated ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from biosqueeze.data.annotated import align_annotation
from biosqueeze.data.demo import demo_ner
from biosqueeze.data.documents import (
    Annotation,
    Document,
    detect_format,
    read_documents,
    sentences_of,
    tag_documents,
    words_of,
)
from biosqueeze.data.hub import is_hub, is_saved
from biosqueeze.data.lines import numbered_lines
from biosqueeze.data.splits import check_splits, find_split, open_directory, require_split
from biosqueeze.data.tables import Columns, DataRecord, parse_column_options, read_file, read_records, splits_of
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.progress import note, warn
from biosqueeze.tasks import Dataset, Formulation
from biosqueeze.tasks.encoding.tag_schemes import OUTSIDE
from biosqueeze.tasks.readers.conll import read_columns
from biosqueeze.tasks.readers.split_overlap import check_files
from biosqueeze.tasks.readers.tagged import Sentence, SourceSentence, build

DEMO = "demo:ner"
_SUFFIXES = (
    ".tsv", ".txt", ".conll", ".iob", ".jsonl", ".json", ".pubtator", ".pubtator.txt", ".PubTator", ".PubTator.txt",
    ".xml",
)  # fmt: skip
_IN_NAMES = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}
_WORDS = Columns({"word": ("tokens", "words"), "tag": ("ner_tags", "tags", "labels")})
_TEXTS = Columns({"text": ("text",), "entities": ("entities",)})


def read(source: str, splits: Sequence[str], form: Formulation) -> Dataset:
    """Read splits of a data set, and say what was taken for what.

    Args:
        source: a directory with train, dev (or devel, valid, validation) and test; hub:NAME; a directory that
            `datasets` saved; or demo:ner. The files hold columns (.tsv, .txt, .conll, .iob), PubTator, BioC (.xml,
            .json) or JSON records with tokens and tags, or with text and entities (start, end, label). PubTator and
            BioC files may have other names with train, dev or test in them, such as NCBItrainset_corpus.txt.
        splits: of train, dev and test. The labels are train's if it is among them, else those of all.
        form: columns, types and scheme.

    Raises:
        SqueezeError: a file is missing, empty or malformed, or has a label that train lacks.
        UsageError: there is no such split, column or type.
    """
    check_splits(splits)
    asked = parse_column_options(form.column)
    if source.startswith("demo:"):
        return build(source, _demo(source, splits, asked), splits, form)
    if is_hub(source) or is_saved(Path(source).expanduser()):
        wanted = [*splits, *_look_at_test(splits, "test" in splits_of(source))]
        read = {split: _of_records(rows, form) for split, rows in read_records(source, wanted).items()}
        return build(source, read, splits, form)
    files = _files(source, splits)
    check_files(files)
    made = {split: _read_file(path, form) for split, path in files.items()}
    dataset = build(source, {split: rows for split, (rows, _) in made.items()}, splits, form)
    _say_files(source, {split: files[split] for split in splits}, {split: kind for split, (_, kind) in made.items()})
    return dataset


def unlabelled_sentence(record: Mapping[str, Any], form: Formulation) -> Sentence:
    """A sentence without tags, from the tokens or the text of a record; a text is cut into words and sentences.

    Raises:
        SqueezeError: the record has neither.
    """
    asked = parse_column_options(form.column)
    words = next((record[name] for name in (asked.get("word", ""), *_WORDS.known["word"]) if name in record), None)
    if isinstance(words, list) and all(isinstance(word, str) and word.strip() for word in words):
        return Sentence(tuple(words), (OUTSIDE,) * len(words))
    text = next((record[name] for name in (asked.get("text", ""), "text") if name in record), None)
    if words is not None or not isinstance(text, str):
        raise SqueezeError(
            f'no "text" (a string) and no "tokens" (a list of words) in a record of {", ".join(record) or "nothing"}; '
            "rename a field, or name it with --column text=NAME"
        )
    spans = tuple(words_of(text))
    begins = {start for start, _ in sentences_of(text)}
    starts = tuple(place for place, (start, _) in enumerate(spans) if place and start in begins)
    return Sentence(tuple(text[a:b] for a, b in spans), (OUTSIDE,) * len(spans), text, spans, starts)


def _look_at_test(splits: Sequence[str], there: bool) -> list[str]:
    """Test is read before anything is trained, so that what is wrong with it costs nothing."""
    return ["test"] if there and "train" in splits and "test" not in splits else []


def _demo(source: str, splits: Sequence[str], asked: Mapping[str, str]) -> dict[str, list[SourceSentence]]:
    if source != DEMO:
        raise UsageError(f"there is no data set called {source}; the built-in one is {DEMO}")
    if asked:
        warn(f"{DEMO} has no columns: {', '.join(asked.values())} not used")
    return {
        split: [SourceSentence(words, tags, source) for words, tags in demo_ner(split)] for split in {*splits, "train"}
    }


def _files(source: str, splits: Sequence[str]) -> dict[str, Path]:
    if not Path(source).expanduser().exists():
        raise SqueezeError(f"there is no directory {source}; give one with train.tsv, dev.tsv and test.tsv, or {DEMO}")
    directory = open_directory(source)
    files = {split: _file(directory, split) or require_split(directory, split, _SUFFIXES) for split in splits}
    test = _file(directory, "test")
    return files | ({"test": test} if test and _look_at_test(splits, there=True) else {})


def _file(directory: Path, split: str) -> Path | None:
    """The file of a split by its usual name, or the only one of annotated texts with the split in its name."""
    usual = find_split(directory, split, _SUFFIXES)
    if usual is not None:
        return usual
    named = [path for path in sorted(directory.iterdir()) if path.is_file() and _named(path, split)]
    found = [path for path in named if detect_format(path)]
    if len(found) > 1:
        raise SqueezeError(
            f"{directory}: {' and '.join(path.name for path in found)} could both be the {split} split; "
            f"call the right one {split}.pubtator or {split}.xml, or put it into a directory of its own"
        )
    return found[0] if found else None


def _named(path: Path, split: str) -> bool:
    """Whether a file of a fitting format has this split in its name, and no other: train_dev.txt is neither."""
    name = path.name.lower()
    within = [known for known, words in _IN_NAMES.items() if any(word in name for word in words)]
    return within == [split] and name.removesuffix(".gz").endswith((".txt", ".pubtator", ".xml", ".json"))


def _read_file(path: Path, form: Formulation) -> tuple[list[SourceSentence], str]:
    """The sentences of a file, and what it was taken for."""
    asked = parse_column_options(form.column)
    kind = detect_format(path)
    if kind:
        if asked:  # no error: it may come from the fine-tuning, and these be other data
            warn(f"{path} is {_NAMES[kind]}, which has no columns: {', '.join(asked.values())} not used")
        return _of_documents(read_documents(path), path, form), _NAMES[kind]
    if _is_json(path):
        return _of_records(read_file(path), form), "JSON"
    sentences, layout = read_columns(path, asked)
    return sentences, f"columns: {layout}"


_NAMES = {"pubtator": "PubTator", "bioc": "BioC"}


def _is_json(path: Path) -> bool:
    kind = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if kind != ".txt":
        return kind in (".json", ".jsonl")
    first = next((line for _, line in numbered_lines(path) if line.strip()), "")
    return first.lstrip().startswith('{"')


def _of_documents(documents: Iterable[Document], path: Path, form: Formulation) -> list[SourceSentence]:
    read = list(documents)
    there = {one.type for document in read for one in document.annotations}
    # Of overlapping annotations one is dropped: not in favour of a type that is not even asked for.
    types = [name for name in form.types if name in there]
    return [
        SourceSentence(words, tags, document.where or str(path), (), document.text, offsets)
        for document, sentences in zip(read, tag_documents(read, types), strict=True)
        for words, tags, offsets in sentences
    ]


def _of_records(records: Sequence[DataRecord], form: Formulation) -> list[SourceSentence]:
    """Records with tokens and tags, or with a text and its entities."""
    asked = parse_column_options(form.column)
    roles = Columns({**_WORDS.known, **_TEXTS.known}, asked)
    there = records[0].values
    if "text" in asked or "entities" in asked or ("entities" in there and not asked):
        texts = Columns(_TEXTS.known, {role: name for role, name in roles.requested.items() if role in _TEXTS.known})
        columns = texts.of(records)
        documents = (_document(one, columns["text"], columns["entities"]) for one in records)
        return _of_documents(documents, Path(records[0].where), form)
    columns = Columns(_WORDS.known, asked).of(records)
    return [_rows(record, columns["word"], columns["tag"]) for record in records]


def _rows(record: DataRecord, word: str, tag: str) -> SourceSentence:
    words, tags = record.values[word], record.values[tag]
    for name, values in ((word, words), (tag, tags)):
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise SqueezeError(
                f"{record.where}: {name} is no list of strings ({str(values)[:40]}); write the words and their tags, "
                'such as {"tokens": ["the", "p53"], "tags": ["O", "B-Gene"]}'
            )
    if len(words) != len(tags):
        raise SqueezeError(f"{record.where}: {len(words)} {word} and {len(tags)} {tag}; give each word one tag")
    blank = next((place for place, value in enumerate(words) if not value.strip()), None)
    if blank is not None:
        raise SqueezeError(f"{record.where}: word {blank + 1} of {word} is empty; remove it and its tag")
    return SourceSentence(tuple(words), tuple(tags), record.where)


def _document(record: DataRecord, text: str, entities: str) -> Document:
    value, listed = record.values[text], record.values[entities]
    if not isinstance(value, str) or not isinstance(listed, list):
        raise SqueezeError(f"{record.where}: {text} must be a string and {entities} a list; correct the record")
    document = Document(str(record.values.get("id", record.where)), value, (), record.where)
    return replace(document, annotations=tuple(_annotations(document, listed)))


def _annotations(document: Document, listed: Sequence[Any]) -> Iterator[Annotation]:
    for item in listed:
        entity = item if isinstance(item, dict) else {}
        start, end, label = entity.get("start"), entity.get("end"), entity.get("label", entity.get("type"))
        if not (isinstance(start, int) and isinstance(end, int) and isinstance(label, str) and label):
            raise SqueezeError(
                f"{document.where}: {str(item)[:60]} is no entity; write "
                '{"start": 4, "end": 7, "label": "Gene"}, in characters of the text, the end not included'
            )
        given = Annotation(start, end, label, str(entity.get("text", document.text[max(start, 0) : max(end, 0)])))
        yield align_annotation(document, given, document.where)


def _say_files(source: str, files: Mapping[str, Path], kinds: Mapping[str, str]) -> None:
    """Which file was taken for which split, and as what; BioBERT's folders hold train and dev together in one more."""
    groups = {kind: [split for split in files if kinds[split] == kind] for kind in kinds.values()}
    said = (
        f"{', '.join(f'{split} is {files[split].name}' for split in group)} ({kind})"
        for kind, group in groups.items()
        if group
    )
    both = {path.name for file in files.values() for path in file.parent.glob("train_dev*") if path.is_file()}
    left_out = f"; {', '.join(sorted(both))} (train and dev together) is not read" if both else ""
    note(f"{source}: {'; '.join(said)}{left_out}")
