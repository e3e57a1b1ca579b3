"""Build a vocabulary: sample the text, train, and write the tokenizer with its manifest."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from biosqueeze import __version__, manifest
from biosqueeze.data.text.corpus import find_corpus
from biosqueeze.environment import current_environment
from biosqueeze.files import content_hash
from biosqueeze.manifest import HistoryEntry, Manifest, ModelFacts
from biosqueeze.model_facts import ModelShape
from biosqueeze.output import open_output
from biosqueeze.progress import counted, note, warn
from biosqueeze.vocabularies.sample import SourceFacts, TextSample, sampled
from biosqueeze.vocabularies.stock import save_tokenizer, stock_tokenizer
from biosqueeze.vocabularies.train import TrainingSettings, Vocabulary, train_vocabulary


@dataclass(frozen=True, kw_only=True)
class VocabularyRequest:
    """A vocabulary to train.

    Args:
        corpora: as every --corpus takes them.
        field: the field of a JSONL record that holds the text.
        settings: of the training.
        most_bytes: of text in the sample.
        max_length: `model_max_length` of the tokenizer.
        seed: of the sample.
        options: the resolved options, for the manifest.
        sources: where each option came from.
    """

    corpora: tuple[str, ...]
    field: str
    settings: TrainingSettings
    most_bytes: int
    max_length: int
    seed: int
    options: Mapping[str, Any]
    sources: Mapping[str, str]


def build_vocabulary(request: VocabularyRequest, out: Path, *, force: bool) -> dict[str, Any]:
    """Train a vocabulary, write its tokenizer to `out`, and return facts of it.

    Raises:
        SqueezeError: a corpus cannot be read or is empty, the size is too small, or `out` exists.
    """
    inputs = tuple(path for path in map(find_corpus, request.corpora) if path is not None)
    with open_output(out, inputs, force=force) as output:
        with sampled(request.corpora, request.field, request.most_bytes, request.seed, output.path) as (sample, read):
            _note_sample(sample, read)
            vocabulary = train_vocabulary(sample, request.settings)
            facts = _facts(request, vocabulary, sample, read)
        _note_result(request.settings, vocabulary)
        save_tokenizer(stock_tokenizer(vocabulary, request.settings, request.max_length), output.path)
        output.finish_without_model(_manifest(request, output.path, facts))
    return facts


def _note_sample(sample: TextSample, read: tuple[SourceFacts, ...]) -> None:
    size = sum(source.bytes for source in read) / 1e6
    lines = sum(source.lines for source in read)
    kept = "all of it is used" if sample.share == 1 else f"a sample of {sample.bytes / 1e6:,.1f} MB is used"
    note(f"read {counted(lines, 'line')} ({size:,.1f} MB); {kept}")


def _note_result(settings: TrainingSettings, vocabulary: Vocabulary) -> None:
    if vocabulary.dropped_characters:
        note(
            f"{vocabulary.dropped_characters:,} rare characters are left out of the alphabet of "
            f"{vocabulary.characters:,} (--limit-alphabet)"
        )
    if len(vocabulary.pieces) < settings.size:
        way_out = "give more text" + ("" if settings.family.kind == "unigram" else ", or a lower --min-frequency")
        warn(f"the text gives {len(vocabulary.pieces):,} pieces, fewer than --size {settings.size:,}; {way_out}")


def _facts(
    request: VocabularyRequest, vocabulary: Vocabulary, sample: TextSample, read: tuple[SourceFacts, ...]
) -> dict[str, Any]:
    settings = request.settings
    return {
        "kind": settings.family.kind,
        "family": settings.family.name,
        "cased": not settings.uncased,
        "pieces": len(vocabulary.pieces),
        "characters": vocabulary.characters,
        "dropped_characters": vocabulary.dropped_characters,
        "sample": {"lines": sample.lines, "bytes": sample.bytes, "share": sample.share},
        "corpora": [asdict(source) for source in read],
    }


def _manifest(request: VocabularyRequest, path: Path, facts: Mapping[str, Any]) -> Manifest:
    entry = HistoryEntry(
        stage="vocab",
        version=__version__,
        created=manifest.now(),
        options=request.options,
        sources=request.sources,
        parents={},
    )
    return Manifest(
        stage=entry.stage,
        version=entry.version,
        created=entry.created,
        parent=None,
        head="none",
        custom_head=None,
        task=None,
        model=ModelFacts(
            family=request.settings.family.name,
            sha256=content_hash(path),
            shape=ModelShape(vocabulary=facts["pieces"], positions=request.max_length),
            parameters={"total": 0},
            megabytes=0.0,
        ),
        metrics={"pieces": facts["pieces"]},
        notes=facts,
        environment=current_environment(),
        history=(entry,),
    )
