"""Throughput and memory of `biosqueeze corpus` against pubmed_parser with hand-written filters.

    python corpus_throughput.py PUBMED_XML_DIR
    python corpus_throughput.py PUBMED_XML_DIR --megabytes 10 100 1000

The PubMed and JATS files below PUBMED_XML_DIR are repeated, each time with other ids and other words, until the sources
have the given size (uncompressed XML). Both programs read them in one process, keep title and abstract (PubMed) or all
paragraphs (JATS) of articles with at least 20 words, drop equal texts, split sentences with the same function, and
write gzipped text at the same level. Each run is a subprocess and the two take turns. Figures are megabytes of XML by
second of CPU time (user and system, imports included), and the highest resident memory.
pubmed_parser (https://github.com/titipata/pubmed_parser) is installed with `pip install pubmed_parser`.
"""

import argparse
import gzip
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

LEAST_WORDS = 20
LEVEL = 6
PROGRAMS = ("biosqueeze", "pubmed_parser")
_WORD = re.compile(r"(?<=[ >])[a-z]{5,}(?=[ .,;<])")
_ID = re.compile(r"""(<PMID[^>]*>|<article-id pub-id-type="(?:pmc|pmid|pmcid)">(?:PMC)?)\d+""")
_CITATION = re.compile(r"<PubmedArticle>.*?</PubmedArticle>", re.DOTALL)


@dataclass(frozen=True)
class Measurement:
    """One run."""

    program: str
    format: str
    megabytes: float
    seconds: float
    cpu_seconds: float
    peak_megabytes: float
    documents: int
    sentences: int


def changed(text: str, generator: random.Random) -> str:
    """Return a sample in which every fifth long word is another one, and every PMID a new one."""

    def another(match: re.Match[str]) -> str:
        return f"{match[0]}{generator.randrange(10**6)}" if generator.random() < 0.2 else match[0]

    return _ID.sub(lambda match: f"{match[1]}{generator.randrange(10**9)}", _WORD.sub(another, text))


def write_pubmed(samples: Path, target: Path, size: int) -> None:
    """Write a baseline file of at least `size` bytes of XML, gzipped."""
    texts = [path.read_text("utf-8") for path in sorted(samples.rglob("*.xml"))]
    articles = [article for text in texts if "<PubmedArticleSet" in text for article in _CITATION.findall(text)]
    generator = random.Random(0)
    written = 0
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=1) as file:
        file.write('<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
        while written < size:
            article = changed(generator.choice(articles), generator)
            written += len(article.encode())
            file.write(article + "\n")
        file.write("</PubmedArticleSet>\n")


def write_jats(samples: Path, folder: Path, size: int) -> None:
    """Write JATS files, `size` bytes in all."""
    folder.mkdir()
    articles = [path.read_text("utf-8") for path in sorted(samples.rglob("*.nxml"))]
    generator = random.Random(0)
    written = number = 0
    while written < size:
        article = changed(articles[number % len(articles)], generator)
        (folder / f"PMC{number:06d}.nxml").write_text(article, "utf-8")
        written += len(article.encode())
        number += 1


def run_biosqueeze(source: Path, out: Path) -> tuple[int, int]:
    """Build the corpus with one process; return its documents and sentences."""
    from biosqueeze.cli.main import run

    command = ["corpus", str(source), "-o", str(out), "--workers", "1", "--min-words", str(LEAST_WORDS), "-q"]
    if run(command):
        raise SystemExit("biosqueeze corpus failed")
    counts = json.loads((out / "corpus.json").read_text())["train"]
    return counts["documents"], counts["sentences"]


def run_pubmed_parser(source: Path, out: Path) -> tuple[int, int]:
    """Do the same with pubmed_parser and a loop."""
    from biosqueeze.data.sentences import sentences_of

    documents = sentences = 0
    seen: set[int] = set()
    out.mkdir()
    with gzip.open(out / "corpus.txt.gz", "wb", compresslevel=LEVEL) as file:
        for paragraphs in _parsed(source):
            text = "\n".join(paragraphs)
            if len(text.split()) < LEAST_WORDS or hash(text.casefold()) in seen:
                continue
            seen.add(hash(text.casefold()))
            lines = [" ".join(p[start:end].split()) for p in paragraphs for start, end in sentences_of(p)]
            file.write("\n".join([*lines, "", ""]).encode())
            documents, sentences = documents + 1, sentences + len(lines)
    return documents, sentences


def _parsed(source: Path) -> Iterator[list[str]]:
    import pubmed_parser

    if source.is_file():
        for article in pubmed_parser.parse_medline_xml(
            str(source), year_info_only=True, nlm_category=False, author_list=False, reference_list=False
        ):
            yield [article["title"], article["abstract"]]
        return
    for path in sorted(source.iterdir()):
        facts = pubmed_parser.parse_pubmed_xml(str(path))
        body = pubmed_parser.parse_pubmed_paragraph(str(path), all_paragraph=True)
        yield [facts["full_title"], facts["abstract"], *(paragraph["text"] for paragraph in body)]


def measure(program: str, source: Path) -> Measurement:
    """Run one program in this process."""
    size = sum(path.stat().st_size for path in (source.iterdir() if source.is_dir() else [source]))
    if source.suffix == ".gz":
        with gzip.open(source) as file:
            size = sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))
    run = run_biosqueeze if program == "biosqueeze" else run_pubmed_parser
    started, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        documents, sentences = run(source, Path(folder) / "out")
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) / 1000
    kind = "JATS" if source.is_dir() else "PubMed"
    return Measurement(program, kind, size / 1e6, seconds, cpu_seconds, peak, documents, sentences)


def measure_apart(program: str, source: Path) -> Measurement:
    """Run one program in a process of its own."""
    command = [sys.executable, __file__, "--one", program, str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stderr)
    return Measurement(**json.loads(result.stdout.splitlines()[-1]))


def report(rows: list[Measurement]) -> None:
    """Print the median of each setting."""
    print("| format | MB | program | MB by CPU second | peak memory, MB | documents | sentences |")
    print("|---|---|---|---|---|---|---|")
    for key in sorted({(row.format, round(row.megabytes), row.program) for row in rows}):
        own = [row for row in rows if (row.format, round(row.megabytes), row.program) == key]
        speed = statistics.median(row.megabytes / row.cpu_seconds for row in own)
        peak = max(row.peak_megabytes for row in own)
        counts = f"{own[0].documents:,} | {own[0].sentences:,}"
        print(f"| {key[0]} | {key[1]:,} | {key[2]} | {speed:.1f} | {peak:.0f} | {counts} |")


def main() -> None:
    """Make the sources, let the programs take turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, nargs="?")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone-from", type=int, default=200, help="MB from which only biosqueeze runs, once")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("PROGRAM", "SOURCE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(measure(options.one[0], Path(options.one[1])))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in options.megabytes:
            sources = Path(folder) / f"{size}.xml.gz", Path(folder) / f"{size}-jats"
            write_pubmed(options.samples, sources[0], size * 10**6)
            write_jats(options.samples, sources[1], size * 10**6)
            alone = size >= options.alone_from
            for turn in range(1 if alone else options.rounds):
                order = PROGRAMS[:1] if alone else PROGRAMS[:: 1 if turn % 2 else -1]
                rows += [measure_apart(program, source) for source in sources for program in order]
    report(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
