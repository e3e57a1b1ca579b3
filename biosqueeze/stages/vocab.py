"""Train a tokenizer on text, or compare tokenizers on text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from biosqueeze.data.text.corpus import check_field, corpus_files
from biosqueeze.errors import UsageError
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
    flag_of,
    resolved,
)
from biosqueeze.output import check_output, inputs_of
from biosqueeze.progress import table
from biosqueeze.vocabularies.families import FamilyName, Kind, VocabularyFamily, find_family

if TYPE_CHECKING:
    from biosqueeze.vocabularies.train import TrainingSettings

PURPOSE = Purpose.PIPELINE
EXAMPLES = (
    ("As Bioformer's: 32,768 cased pieces of WordPiece", "biosqueeze vocab pubmed --out vocabulary"),
    (
        "As PubMedBERT's: uncased, 30,522 pieces",
        "biosqueeze vocab pubmed --out vocabulary --uncased --size 30522",
    ),
    ("As bio-lm's: byte-level BPE", "biosqueeze vocab pubmed --out vocabulary --kind bpe --size 50265"),
    (
        "Pieces per word, and the pieces of biomedical terms",
        "biosqueeze vocab compare demo:minilm vocabulary --corpus pubmed/held-out",
    ),
)
COMPARE = "compare"
_DEFAULT_MEGABYTES = {"wordpiece": 1000.0, "bpe": 1000.0, "unigram": 20.0, COMPARE: 10.0}
_FOR_COMPARING = ("inputs", "corpus", "field", "terms", "max_length", "sample_mb", "seed")
_ONLY_FOR_COMPARING = ("corpus", "terms")


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Train a tokenizer on text, or compare tokenizers.

    Writes a tokenizer that AutoTokenizer of transformers loads, with the normalizer and the special tokens of its
    family. `pretrain --shape NAME --tokenizer DIR` uses it.

    `vocab compare A B --corpus CORPUS` counts the pieces of the same text by several tokenizers, and shows the pieces
    of biomedical terms. Words are runs of letters and digits; a word is whole if one piece holds it.
    """

    HAS_TABLE: ClassVar[bool] = True

    inputs: Annotated[
        tuple[str, ...],
        "Corpora: what biosqueeze corpus wrote, .txt, .jsonl, .gz, directories of them, hub:NAME; or the word compare "
        "and tokenizers: directories, Hub ids, or demo:minilm.",
        Argument(),
        OnDisk(may_be_name=True),
    ]
    out: Annotated[str | None, "Directory to write.", Short("o"), OnDisk(is_output=True), Common(), Group.OUTPUT] = None
    force: Annotated[bool, "Replace an existing output.", Group.OUTPUT] = False
    kind: Annotated[Kind | None, "Kind of pieces; bpe is byte-level. Default: that of --family, or wordpiece."] = None
    family: Annotated[
        FamilyName | None, "Encoders that it is for. Default: bert (wordpiece), roberta (bpe) or albert (unigram)."
    ] = None
    size: Annotated[int, "Number of pieces, special tokens included.", Bounds(least=10, most=1_000_000)] = 32768
    uncased: Annotated[bool, "Lower-case the text, and remove accents; not for bpe."] = False
    min_frequency: Annotated[
        int, "Fewest times that two pieces stand side by side to become one; not for unigram.", Bounds(least=1)
    ] = 2
    limit_alphabet: Annotated[
        int, "Most characters that are pieces; rarer ones become unknown. Not for bpe.", Bounds(least=1)
    ] = 1000
    max_length: Annotated[
        int, "Longest input of the tokenizer, in tokens; with compare, longer lines are counted.", Bounds(least=3)
    ] = 512
    field: Annotated[str, "Field of a JSON record that holds the text."] = "text"
    sample_mb: Annotated[
        float | None,
        "Most text to use: lines of the whole corpus are drawn. Default: 1,000 MB, 20 for unigram, 10 with compare.",
        Bounds(above=0),
    ] = None
    corpus: Annotated[
        tuple[str, ...], "With compare: the text, which no tokenizer was trained on. Repeatable.", OnDisk()
    ] = ()
    terms: Annotated[str | None, "With compare: file of terms, one a line. Default: 30 biomedical terms.", OnDisk()] = (
        None
    )
    seed: Annotated[int, "Seed of the sample.", Bounds(least=0, most=HIGHEST_SEED)] = 0


def plan(options: Options) -> Plan:
    """Describe the run; of texts, only the sizes of files are read."""
    if options.inputs[0] == COMPARE:
        from biosqueeze.vocabularies.comparison import load_named

        names = _compared(options)
        for name in names:
            load_named(name)
        return Plan(out=None, steps=(f"count the pieces of {', '.join(options.corpus)} by {', '.join(names)}",))
    family, out = _check(options), _out(options)
    casing = "uncased" if options.uncased else "cased"
    return Plan(
        out=check_output(out, inputs_of(options), force=options.force),
        steps=(
            f"read {', '.join(options.inputs)}, and keep lines of at most {_megabytes(options, family.kind):,.6g} MB",
            f"train {options.size:,} {casing} pieces ({family.kind}) for {family.name}",
        ),
    )


def run(options: Options) -> Outcome:
    """Train and write a tokenizer, or compare some.

    Raises:
        SqueezeError: a corpus or a tokenizer cannot be read, the size is too small, or --out exists.
        UsageError: an option has no meaning here.
    """
    if options.inputs[0] == COMPARE:
        return _compare(options)
    family, out = _check(options), _out(options)
    from biosqueeze.vocabularies.build import VocabularyRequest, build_vocabulary

    request = VocabularyRequest(
        corpora=options.inputs,
        field=options.field,
        settings=_settings(options, family),
        most_bytes=round(_megabytes(options, family.kind) * 1e6),
        max_length=options.max_length,
        seed=options.seed,
        options=resolved(options),
        sources=dict(options.sources),
    )
    facts = build_vocabulary(request, out, force=options.force)
    _show(facts)
    texts = [word for source in options.inputs for word in ("--corpus", source)]
    texts += ["--field", options.field] if options.is_given("field") else []
    next_words = ("pretrain", "--shape", f"{family.name}-base", "--tokenizer", str(out), *texts)
    flat = {name: value for name, value in facts.items() if not isinstance(value, list | dict)}
    return Outcome(out, facts, rows=({"vocabulary": str(out), **flat},), summary=Summary(next_words=next_words))


def _out(options: Options) -> Path:
    if options.out is None:
        raise UsageError("--out is missing; name the directory to write, such as --out vocabulary")
    return Path(options.out).expanduser()


def _check(options: Options) -> VocabularyFamily:
    """Return the family, after a check of the options and the names of the corpora."""
    misplaced = next((name for name in _ONLY_FOR_COMPARING if options.is_given(name)), None)
    if misplaced:
        raise UsageError(
            f"--{misplaced} is for `vocab compare`; to train, name the corpora alone: biosqueeze vocab CORPUS --out DIR"
        )
    family = find_family(options.family, options.kind)
    if options.uncased and not family.can_be_uncased:
        raise UsageError(f"--uncased: the tokenizers of {family.name} keep case; leave it out, or give another --kind")
    unused = {"bpe": "limit_alphabet", "unigram": "min_frequency"}.get(family.kind)
    if unused and options.is_given(unused):
        raise UsageError(f"{flag_of(unused)} has no effect on --kind {family.kind}; leave it out")
    _check_corpora(options, options.inputs)
    return family


def _check_corpora(options: Options, corpora: Sequence[str]) -> None:
    for source in corpora:
        corpus_files(source)
    if options.is_given("field"):
        check_field("--field", corpora)


def _megabytes(options: Options, purpose: str) -> float:
    return options.sample_mb if options.sample_mb is not None else _DEFAULT_MEGABYTES[purpose]


def _settings(options: Options, family: VocabularyFamily) -> "TrainingSettings":
    from biosqueeze.vocabularies.train import TrainingSettings

    return TrainingSettings(
        family=family,
        size=options.size,
        min_frequency=options.min_frequency,
        limit_alphabet=options.limit_alphabet,
        uncased=options.uncased,
    )


def _show(facts: Mapping[str, Any]) -> None:
    rows = [
        ("kind", f"{facts['kind']}, {'cased' if facts['cased'] else 'uncased'}, for {facts['family']}"),
        ("pieces", f"{facts['pieces']:,}"),
        ("characters", f"{facts['characters']:,}"),
        ("lines of text", f"{facts['sample']['lines']:,}"),
        ("MB of text", f"{facts['sample']['bytes'] / 1e6:,.1f}"),
    ]
    table("vocabulary", ("property", "value"), rows)


def _compared(options: Options) -> tuple[str, ...]:
    """Return the names of the tokenizers to compare.

    Raises:
        UsageError: none is named, the corpus is missing, or an option is for training.
    """
    given = [name for name in resolved(options) if name not in _FOR_COMPARING and options.is_given(name)]
    if given:
        raise UsageError(f"{flag_of(given[0])} is for training a vocabulary; leave it out of compare")
    if len(options.inputs) < 2 or not options.corpus:
        raise UsageError(
            "compare takes tokenizers and a corpus, as in: biosqueeze vocab compare demo:minilm DIR --corpus CORPUS"
        )
    _check_corpora(options, options.corpus)
    return options.inputs[1:]


def _compare(options: Options) -> Outcome:
    from biosqueeze.vocabularies.report import ComparisonRequest, compare

    names = _compared(options)
    request = ComparisonRequest(
        names=names,
        corpora=options.corpus,
        field=options.field,
        most_bytes=round(_megabytes(options, COMPARE) * 1e6),
        max_length=options.max_length,
        terms=Path(options.terms).expanduser() if options.terms else None,
        seed=options.seed,
    )
    compared = compare(request)
    return Outcome(Path(names[0]), compared.facts, blocks=compared.tables, rows=compared.rows)
