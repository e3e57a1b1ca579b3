"""Build a corpus: read its sources in parts, decide about all articles together, write shards and manifest."""

import csv
import hashlib
import io
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biosqueeze.corpora.article import KINDS
from biosqueeze.corpora.decontamination import read_test_sentences
from biosqueeze.corpora.findings import check_fields, warn_of_empty, warn_of_languages
from biosqueeze.corpora.gzip_files import gzip_without_time
from biosqueeze.corpora.parts import (
    Part,
    PartReport,
    SourceReport,
    group_files,
    parts_of,
    read_signatures,
    read_table,
    write_part,
)
from biosqueeze.corpora.request import REQUEST_FILE, CorpusRequest, can_resume, discard
from biosqueeze.corpora.selection import ArticleTable, Decision, NearDuplicates, decide
from biosqueeze.corpora.settings import CorpusSettings
from biosqueeze.corpora.shards import HELD_OUT, TRAIN, ShardFile, write_shards
from biosqueeze.corpora.workers import Advance, map_in_processes
from biosqueeze.data.text.corpus import MANIFEST
from biosqueeze.errors import SqueezeError
from biosqueeze.files import flush_directory, publish_directory, read_json, write_json, write_text
from biosqueeze.progress import note, track, warn
from biosqueeze.system.os_errors import is_disk_full

# Below OUT.partial:
_PARTS = "parts"
_CORPUS = "corpus"
SOURCES = "sources.tsv.gz"
"""Path, bytes, SHA-256, number of articles and damage of every file that was read, and of every damaged file in an
archive (ARCHIVE:MEMBER, without bytes and SHA-256); below OUT."""
PART_BYTES = 1 << 28
_LOST = {
    Decision.OLDER_VERSION: "older version",
    Decision.WITHDRAWN: "withdrawn",
    Decision.DUPLICATE: "duplicate",
    Decision.NEAR_DUPLICATE: "near duplicate",
    Decision.NOT_SAMPLED: "not sampled",
}


def build_corpus(request: CorpusRequest, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Build the corpus below OUT.partial, rename it to OUT, and return the manifest.

    What an interrupted run of the same request has read, or finished, is not made again.

    Args:
        request: sources, filters and output.
        facts: for the beginning of the manifest (version, options, environment).

    Raises:
        SqueezeError: nothing is left after the filters, (strict) a file is damaged, or the disk is full.
        KeyboardInterrupt: Ctrl-C; what was read is kept.
    """
    corpus = request.partial_out / _CORPUS
    parts = _prepare(request)
    if not ((corpus / MANIFEST).is_file() and all(_is_read(part, request) for part in parts)):
        try:
            _build(request, facts, corpus, parts)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt("what was read is kept; --resume goes on from there") from interrupt
        except OSError as error:
            if not is_disk_full(error):
                raise
            raise SqueezeError(
                f"the disk that holds {request.out} is full; free some space, and repeat the command with --resume"
            ) from error
    manifest = read_json(corpus / MANIFEST)
    publish_directory(corpus, request.out)
    discard(request)
    return manifest


def _build(request: CorpusRequest, facts: Mapping[str, Any], corpus: Path, parts: Sequence[Part]) -> None:
    _read(parts, request)
    reports = [PartReport.read(part) for part in parts]
    decisions = _decisions(parts, request.settings)
    try:
        warn_of_languages(reports, request.settings)
        check_fields(reports, request)
        _check_not_empty(reports, decisions)
    except SqueezeError:
        discard(request)  # --resume would end here again, and other filters need another run
        raise
    shutil.rmtree(corpus, ignore_errors=True)  # of an interrupted run, and may have files that this one has not
    corpus.mkdir()
    shards = _write(parts, decisions, request.workers, corpus)
    _write_lists(parts, reports, corpus)
    manifest = {**facts, **_counts(reports, np.concatenate(decisions)), **_totals(shards, parts, decisions)}
    manifest["sources"] = _write_sources(reports, corpus / SOURCES)
    manifest["shards"] = [asdict(shard) for shard in shards]
    flush_directory(corpus)
    write_json(corpus / MANIFEST, manifest)


def _prepare(request: CorpusRequest) -> list[Part]:
    """Return the parts: of an interrupted run those that it had, also where a file has another size by now."""
    folder = request.partial_out
    if can_resume(request):
        sizes = read_json(folder / REQUEST_FILE)["parts"]
    else:
        discard(request)
        sizes = group_files(request.files, PART_BYTES)
        (folder / _PARTS).mkdir(parents=True)
        write_json(folder / REQUEST_FILE, {"request": request.digest, "parts": sizes})
    return parts_of(request.files, sizes, folder / _PARTS)


def _is_read(part: Part, request: CorpusRequest) -> bool:
    """Return whether a part need not be read: with --strict, a damaged file that an earlier run skipped is an error."""
    return part.is_done and not (request.strict and any(source.damage for source in PartReport.read(part).sources))


def _read(parts: Sequence[Part], request: CorpusRequest) -> None:
    missing = [part for part in parts if not _is_read(part, request)]
    if not missing:
        return
    if len(missing) < len(parts):
        note(f"{len(parts) - len(missing)} of {len(parts)} parts were read before the interruption")
    against = read_test_sentences(request.against) if request.against else None
    read = partial(write_part, settings=request.settings, against=against, strict=request.strict)
    total = sum(file.bytes for part in missing for file in part.files)
    with track("reading (bytes)", total=max(1, total)) as bar:
        map_in_processes(read, missing, request.workers, bar.advance)


def _decisions(parts: Sequence[Part], settings: CorpusSettings) -> list[NDArray[np.uint8]]:
    """Return the `Decision` of every document, by part."""
    tables = [read_table(part) for part in parts]
    near = None
    if settings.near_duplicates is not None:
        signatures = [read_signatures(part) for part in parts]
        near = NearDuplicates(signatures, settings.near_duplicates)
    table = ArticleTable.joined(tables)
    _warn_of_samples(table, settings)
    decisions = decide(table, settings, near)
    kept = np.count_nonzero(decisions == Decision.KEPT)
    if settings.held_out and kept and not (decisions == Decision.HELD_OUT).any():
        warn(f"--held-out {settings.held_out:g}: none of the {kept:,} articles was drawn; give more text, or a --seed")
    return np.split(decisions, np.cumsum([len(table.ids) for table in tables])[:-1])


def _warn_of_samples(table: ArticleTable, settings: CorpusSettings) -> None:
    """Warn of --sample where the sources hold no article of its kind, or of the kind that it is measured by."""
    found = [kind for number, kind in enumerate(KINDS) if (table.kinds == number).any()]
    for sample in settings.samples:
        absent = next((kind for kind in (sample.kind, sample.as_kind) if kind and kind not in found), None)
        if absent and found:
            warn(f"--sample {sample.kind}: the sources hold no article of the kind {absent}, only {', '.join(found)}")


def _check_not_empty(reports: Sequence[PartReport], decisions: Sequence[NDArray[np.uint8]]) -> None:
    """Refuse a corpus without a document, and warn of damaged files and of those without an article.

    Raises:
        SqueezeError: no document is kept.
    """
    damaged = [source for report in reports for source in report.sources if source.damage]
    for source in damaged[:5]:
        warn(f"{source.path} is damaged and was skipped: {source.damage}")
    if len(damaged) > 5:
        warn(f"{len(damaged)} files are damaged and were skipped; {SOURCES} names them all")
    warn_of_empty(reports)
    if not any((own == Decision.KEPT).any() for own in decisions):
        joined = np.concatenate(decisions)
        counts, held_out = _counts(reports, joined), np.count_nonzero(joined == Decision.HELD_OUT)
        gone = counts["dropped"] | ({"held out": held_out} if held_out else {})
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in gone.items())
        reasons = reasons or (f"{len(damaged):,} damaged files" if damaged else "the sources hold none")
        raise SqueezeError(
            f"no article is left of {counts['articles']:,} read ({reasons}); change the filters or the sources"
        )


def _write(
    parts: Sequence[Part], decisions: Sequence[NDArray[np.uint8]], workers: int, folder: Path
) -> list[ShardFile]:
    with track("writing (parts)", total=len(parts)) as bar:
        items = list(zip(parts, decisions, strict=True))
        written = map_in_processes(partial(_write_one, folder), items, workers, bar.advance)
    return [shard for shards in written for shard in shards]


def _write_one(folder: Path, item: tuple[Part, NDArray[np.uint8]], advance: Advance) -> list[ShardFile]:
    shards = write_shards(*item, folder)
    advance(1)
    return shards


def _write_lists(parts: Sequence[Part], reports: Sequence[PartReport], folder: Path) -> None:
    """Write the ids of all documents with their shards, and the list of those that hold a test sentence."""
    with gzip_without_time(folder / "documents.tsv.gz") as listing:
        for part in parts:
            listing.write(part.file("list").read_bytes())
    contaminated = ["\t".join(item) + "\n" for report in reports for item in report.contaminated]
    if contaminated:
        write_text(folder / "contaminated.tsv", "source\tid\ttest sentence\n" + "".join(contaminated))


def _write_sources(reports: Sequence[PartReport], path: Path) -> dict[str, Any]:
    """Write a row for each file of the sources, and return their number, their bytes and the SHA-256 of the table.

    The table is a file of its own, because a manifest with 100,000 sources would be too large to be read.
    """
    sources = [asdict(source) for report in reports for source in report.sources]
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(SourceReport)], delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(sources)
    table = text.getvalue().encode("utf-8", "surrogateescape")
    with gzip_without_time(path) as listing:
        listing.write(table)
    total = sum(source["bytes"] for source in sources)
    files = sum(bool(source["sha256"]) for source in sources)
    return {"list": path.name, "files": files, "bytes": total, "sha256": hashlib.sha256(table).hexdigest()}


def _counts(reports: Sequence[PartReport], decisions: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the number of articles read, and those dropped by reason."""
    sources = [source for report in reports for source in report.sources]
    dropped = sum((report.dropped for report in reports), Counter[str]())
    dropped |= {name: count for decision, name in _LOST.items() if (count := int((decisions == decision).sum()))}
    return {
        "articles": sum(source.articles for source in sources if not source.damage),
        "damaged_files": sum(source.damage is not None for source in sources),
        "dropped": dict(dropped.most_common()),
    }


def _totals(
    shards: Sequence[ShardFile], parts: Sequence[Part], decisions: Sequence[NDArray[np.uint8]]
) -> dict[str, dict[str, int]]:
    """Return documents, sentences, words and bytes of the corpus and of its held-out share."""
    words = np.concatenate([read_table(part).words for part in parts])
    joined = np.concatenate(decisions)
    totals = {}
    for split, decision in ((TRAIN, Decision.KEPT), (HELD_OUT, Decision.HELD_OUT)):
        own = [shard for shard in shards if shard.split == split]
        totals[split] = {
            "documents": sum(shard.documents for shard in own),
            "sentences": sum(shard.sentences for shard in own),
            "words": int(words[joined == decision].sum(dtype=np.int64)),
            "bytes": sum(shard.text_bytes for shard in own),
        }
    return totals
