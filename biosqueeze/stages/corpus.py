"""Build a corpus from PubMed, PMC, BioC, JSON lines and text, or show the statistics of one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from biosqueeze import __version__
from biosqueeze.corpora.article import PARTS, WHOLE, ArticlePart
from biosqueeze.corpora.languages import parse_language
from biosqueeze.corpora.request import CorpusRequest, can_resume, discard
from biosqueeze.corpora.sections import SECTIONS
from biosqueeze.corpora.settings import CorpusSettings, SampleSize
from biosqueeze.corpora.sources import ARCHIVES, JSON_LINES, SourceFile, find_sources, is_parquet
from biosqueeze.data.text.corpus import check_field, is_built
from biosqueeze.environment import current_environment
from biosqueeze.errors import SqueezeError, UsageError, require
from biosqueeze.files import check_absent
from biosqueeze.options import (
    HIGHEST_SEED,
    Argument,
    Bounds,
    Common,
    Group,
    OnDisk,
    Outcome,
    Plan,
    Purpose,
    Short,
    StageOptions,
    Summary,
    Syntax,
    between_0_and_1,
    flag_of,
    resolved,
)
from biosqueeze.output import check_place, inputs_of, make_directory
from biosqueeze.progress import counted, table
from biosqueeze.system.cores import usable_cores
from biosqueeze.system.locks import exclusive_lock
from biosqueeze.text_table import TextTable

PURPOSE = Purpose.PIPELINE
EXAMPLES = (
    (
        "Abstracts of at least 128 words, without the test sentences of the benchmarks",
        "biosqueeze corpus baseline --out pubmed --keep title,abstract --min-words 128 --against benchmarks",
    ),
    (
        "As many bytes of full text as of abstracts",
        "biosqueeze corpus baseline oa_comm --out pubmed-pmc --sample pmc=pubmed --held-out 0.01",
    ),
    ("Show sizes and lengths", "biosqueeze corpus inspect pubmed"),
)
INSPECT = "inspect"
_BAR, _BAR_WIDTH = "#", 24
_XML = (".xml", ".nxml", ".tar", ".tgz")


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Build a corpus from PubMed, PMC or own text, or inspect one.

    Reads PubMed XML, PMC's JATS XML (files and .tar.gz), BioC, JSON lines and text, each also .gz, and Parquet.
    Writes gzipped text: a sentence on each line, and a blank line after each article. Every --corpus reads the
    directory.

    Of several versions of an article (of PubMed, PMC or BioC) the last is kept, of equal texts the first. corpus.json
    counts what each filter dropped, and sources.tsv.gz has the SHA-256 of every source.

    `corpus inspect CORPUS` shows sizes, lengths and repeated texts of anything that --corpus reads.
    """

    inputs: Annotated[
        tuple[str, ...],
        "Files of articles, directories of them, or hub:NAME[:FIELD]; or the word inspect and a corpus.",
        Argument(),
        OnDisk(),
    ]
    out: Annotated[str | None, "Directory to write.", Short("o"), OnDisk(is_output=True), Common(), Group.OUTPUT] = None
    force: Annotated[bool, "Replace an existing output.", Group.OUTPUT] = False
    resume: Annotated[bool, "Continue an interrupted run.", Group.OUTPUT] = False
    keep: Annotated[
        str,
        f"Parts of an article, with commas: {', '.join(WHOLE)}, and of the body of JATS and BioC the sections "
        f"{', '.join(SECTIONS)}. Plain text is kept whole.",
        Syntax("PARTS", is_list=True),
    ] = ",".join(WHOLE)
    field: Annotated[str, "Field of a JSON record that holds the text."] = "text"
    min_words: Annotated[int, "Fewest words of an article (PubMedBERT: 128).", Bounds(least=1)] = 1
    max_words: Annotated[int | None, "Most words of an article; longer ones are dropped.", Bounds(least=1)] = None
    language: Annotated[
        str | None, "Keep articles of one language, such as en; those that do not give theirs are kept."
    ] = None
    drop_retracted: Annotated[bool, "Drop retracted articles."] = False
    near_duplicates: Annotated[
        float | None,
        "Drop articles of which this share of five-word sequences is that of an earlier one (Jaccard, by MinHash).",
        Bounds(least=0.5, most=1.0),
    ] = None
    sample: Annotated[
        tuple[str, ...],
        "Keep a random sample of one kind of source (pubmed, pmc, bioc, text): pmc=1M articles, pmc=6GB of text, or "
        "pmc=pubmed for as many bytes as another kind. Repeatable.",
        Syntax("KIND=AMOUNT", SampleSize.parse, "pmc=1000000"),
    ] = ()
    held_out: Annotated[float | None, "Share of articles to write to held-out/ instead.", between_0_and_1()] = None
    against: Annotated[
        str | None,
        "Directory of benchmarks: articles that contain one of their test sentences (8 words or more) are dropped, and "
        "listed in contaminated.tsv.",
        OnDisk(),
    ] = None
    strict: Annotated[bool, "Stop at a damaged file, instead of skipping it."] = False
    workers: Annotated[int | None, "Processes. Default: one for each CPU core.", Bounds(least=1), Group.MACHINE] = None
    seed: Annotated[int, "Seed of the sample and the held-out share.", Bounds(least=0, most=HIGHEST_SEED)] = 0


def plan(options: Options) -> Plan:
    """Describe the run: how much would be read, and the filters."""
    if options.inputs[0] == INSPECT:
        return Plan(out=None, steps=(f"read {_inspected(options)} and print its statistics; write nothing",))
    request = _resolve(options)
    size = sum(file.bytes for file in request.files) / 1e6
    files, workers = counted(len(request.files), "file"), counted(request.workers, "worker")
    steps = [f"read {files} ({size:,.1f} MB) with {workers}"]
    return Plan(out=request.out, steps=(*steps, *_filters(request)))


def _filters(request: CorpusRequest) -> list[str]:
    """Describe what is kept and dropped, in the order of the filters."""
    settings = request.settings
    dropped = {
        "that are retracted": settings.drop_retracted,
        f"in another language than {settings.language}": settings.language,
        f"of fewer than {settings.least_words} words": settings.least_words > 1,
        f"of more than {settings.most_words} words": settings.most_words,
        f"that contain a test sentence of {request.against}": request.against,
        "that a later version replaces, and equal texts": True,
        f"that are similar to an earlier one ({settings.near_duplicates})": settings.near_duplicates,
    }
    steps = [f"keep {', '.join(settings.parts)}"]
    steps += [f"drop articles {what}" for what, wanted in dropped.items() if wanted]
    steps += [f"sample {sample.kind} ({sample.amount})" for sample in settings.samples]
    return steps + ([f"hold out {settings.held_out:.1%} of the articles"] if settings.held_out else [])


def run(options: Options) -> Outcome:
    """Build the corpus, or inspect one.

    Raises:
        SqueezeError: a source does not exist, nothing is left after the filters, or --out exists.
        UsageError: an option has no meaning here.
    """
    if options.inputs[0] == INSPECT:
        return _inspect(_inspected(options), options.field)
    from biosqueeze.corpora.build import build_corpus

    request = _resolve(options)
    facts = {
        "format": 1,
        "stage": "corpus",
        "version": __version__,
        "options": resolved(options),
        "environment": asdict(current_environment()),
    }
    make_directory(request.out.parent)
    lock = request.out.with_name(f".{request.out.name}.lock")
    with exclusive_lock(lock, lambda: _refuse_second(request.out)):
        try:
            _clear(options, request)
            manifest = build_corpus(request, facts)
        finally:
            lock.unlink(missing_ok=True)
    _show(manifest)
    facts = {key: manifest[key] for key in ("articles", "dropped", "train", "held-out")}
    next_words = ("distill", "--teacher", "TEACHER", "--student", "tiny", "--corpus", str(request.out))
    return Outcome(Path(str(options.out)).expanduser(), facts, summary=Summary(next_words=next_words))


def _inspected(options: Options) -> str:
    """Return the corpus to inspect.

    Raises:
        UsageError: none or several are named, or an option is given that is for building one.
    """
    given = [name for name in resolved(options) if name not in ("inputs", "field") and options.is_given(name)]
    if given:
        raise UsageError(f"{flag_of(given[0])} is for building a corpus; inspect takes --field alone")
    if len(options.inputs) != 2:
        raise UsageError("inspect takes one corpus, as in: biosqueeze corpus inspect DIR")
    if options.is_given("field"):
        check_field("--field", options.inputs[1:])
    return options.inputs[1]


def _inspect(source: str, field: str) -> Outcome:
    from biosqueeze.corpora.statistics import corpus_statistics

    facts = corpus_statistics(source, field).as_dict()
    sizes = tuple((name.replace("_", " "), f"{facts[name]:,}") for name in facts if isinstance(facts[name], int))
    words = tuple((name, f"{value:,.1f}") for name, value in facts["words_by_document"].items())
    most = max(facts["histogram"].values())
    bars = tuple(
        (words, f"{count:,}", f"{count / facts['documents']:.1%}", _BAR * round(_BAR_WIDTH * count / most))
        for words, count in facts["histogram"].items()
    )
    return Outcome(
        Path(source),
        facts,
        blocks=(
            TextTable(source, ("", "count"), sizes),
            TextTable("words of a document", ("", "words"), words),
            TextTable("documents by words", ("words", "documents", "share", ""), bars),
        ),
    )


def _resolve(options: Options) -> CorpusRequest:
    if options.out is None:
        raise UsageError("--out is missing; name the directory to write, such as --out pubmed")
    if options.max_words is not None and options.max_words < options.min_words:
        raise UsageError(f"--max-words {options.max_words} is below --min-words {options.min_words}: nothing is left")
    out = Path(options.out).expanduser().absolute()
    files = tuple(find_sources(options.inputs))
    _check_field(options, files)
    if any(_ends(file, _XML) for file in files):
        require("lxml", "corpus")
    if options.near_duplicates is not None:
        require("rensa", "corpus")
    check_absent(out, force=options.force)
    if out.exists() and not is_built(out):
        raise SqueezeError(f"{out} is no corpus, so --force does not delete it; give another name with --out")
    inside = next((file.path for file in files if out in file.path.absolute().parents and not file.hub), None)
    if inside is not None:
        raise UsageError(f"--out {options.out} holds the source {inside}; give another directory")
    check_place(out, inputs_of(options))
    against = Path(options.against).expanduser() if options.against else None
    if against:
        from biosqueeze.corpora.decontamination import find_test_files

        find_test_files(against)
    return CorpusRequest(
        files,
        _settings(options),
        against,
        out,
        options.workers or usable_cores(),
        options.strict,
        options.is_given("field"),
    )


def _check_field(options: Options, files: Sequence[SourceFile]) -> None:
    """Refuse --field where no source has fields; an archive may hold such files."""
    named = any(file.hub or is_parquet(file.path) or _ends(file, (*JSON_LINES, *ARCHIVES)) for file in files)
    if options.is_given("field") and not named:
        raise UsageError(
            f"--field is for JSON lines ({', '.join(JSON_LINES)}) and Parquet, and no source is; leave it out"
        )


def _ends(file: SourceFile, suffixes: tuple[str, ...]) -> bool:
    name = file.path.name.lower()
    return name.endswith(suffixes) or name.removesuffix(".gz").endswith(suffixes)


def _settings(options: Options) -> CorpusSettings:
    return CorpusSettings(
        parts=_parts(options.keep),
        field=options.field,
        least_words=options.min_words,
        most_words=options.max_words,
        language=parse_language(options.language) if options.language else None,
        drop_retracted=options.drop_retracted,
        near_duplicates=options.near_duplicates,
        samples=tuple(map(SampleSize.parse, options.sample)),
        held_out=options.held_out or 0.0,
        seed=options.seed,
    )


def _parts(text: str) -> tuple[ArticlePart, ...]:
    names = [name.strip() for name in text.split(",")]
    unknown = next((name for name in names if name not in PARTS), None)
    if unknown is not None:
        raise UsageError(f"--keep {text}: there is no part {unknown!r}; choose from {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in names)


def _refuse_second(out: Path) -> None:
    raise SqueezeError(f"another process is writing {out}; wait for it, or give another --out")


def _clear(options: Options, request: CorpusRequest) -> None:
    """Refuse an unfinished run that neither --resume nor --force is given for; --force deletes it.

    Raises:
        SqueezeError: there is one, or --resume is given and there is none of this request.
    """
    resumable = can_resume(request)
    if options.resume and not resumable:
        raise SqueezeError(
            f"there is no interrupted run of these sources and options in {request.partial_out}; leave out --resume"
        )
    if request.partial_out.exists() and not options.resume and not options.force:
        way_out = "--resume to continue it, or --force" if resumable else "--force (its sources or options differ)"
        raise SqueezeError(f"{request.partial_out} holds an interrupted run; give {way_out} to start over")
    if not options.resume:
        discard(request)


def can_continue(options: Options) -> bool:
    """Return whether --resume would continue an interrupted run of these sources and options."""
    return can_resume(_resolve(options))


def _show(manifest: dict[str, Any]) -> None:
    rows = [("articles read", f"{manifest['articles']:,}")]
    rows += [(f"dropped: {reason}", f"{count:,}") for reason, count in manifest["dropped"].items()]
    rows += [("damaged files", f"{manifest['damaged_files']:,}")] if manifest["damaged_files"] else []
    for split in ("train", "held-out"):
        counts = manifest[split]
        if counts["documents"]:
            rows += [(f"{split}: {unit}", f"{counts[unit]:,}") for unit in counts]
    table("corpus", ("", "count"), rows)
