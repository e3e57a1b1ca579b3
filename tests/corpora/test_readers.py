"""Every format is read to the same kind of article; what is no sentence is left out."""

import bz2
import gzip
import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from biosqueeze.corpora.article import Article, Deletion
from biosqueeze.corpora.parts import Part, PartReport
from biosqueeze.corpora.sections import Section
from biosqueeze.corpora.sources import MemberEnd, SourceFile, find_sources, open_source, read_source
from biosqueeze.corpora.xml_stream import DamagedSourceError
from biosqueeze.errors import SqueezeError
from tests.corpora import sources

NO_SECTION, METHODS = frozenset[Section](), frozenset[Section](["methods"])


def read(path: Path, field: str = "text") -> list[Article | Deletion | MemberEnd]:
    with open_source(SourceFile.of(path), lambda count: None) as file:
        return list(read_source(file, path, field))


@pytest.mark.parametrize("name", ["pubmed.xml", "pubmed.xml.gz"])
def test_pubmed_articles(tmp_path: Path, name: str) -> None:
    first = sources.citation(1, "P < 0.05 was\n  significant.", title="[Ein Titel].", language="ger")
    second = sources.citation(2, "Text.", kind="Retracted Publication")
    read_back = read(sources.pubmed(tmp_path / name, [first, second], deleted=[7]))
    assert read_back == [
        Article("1", "pubmed", "Ein Titel.", ("P < 0.05 was significant.",), languages=("ger",)),
        Article("2", "pubmed", "A title.", ("Text.",), languages=("eng",), retracted=True),
        Deletion("7", "pubmed"),
    ]


def test_a_placeholder_is_no_title(tmp_path: Path) -> None:
    [article] = read(sources.pubmed(tmp_path / "a.xml", [sources.citation(1, "Text.", title="[Not Available].")]))
    assert isinstance(article, Article) and article.title == ""


def test_full_text_without_tables_and_citations(tmp_path: Path) -> None:
    path = sources.packed(tmp_path / "a.nxml", sources.article(5, ["Shown before"]).encode())
    body = ("Shown before", "Before the list.", "In a list.")
    assert read(path) == [
        Article("PMC5", "pmc", "Full text", ("Its abstract.",), body, ("eng",), sections=(METHODS,) * 3)
    ]


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("humans <x>[1]</x>, <x>[2]</x>, and sheep <x>[3]</x>\u2013<x>[5]</x>.", "humans, and sheep."),
        ("shown<sup><x>1</x>,<x>2</x></sup>. Then", "shown. Then"),
        ("shown [<x>1</x>-<x>3</x>; <x>5</x>] and (<x>Lee, 2010</x>) here () too", "shown and here too"),
        ("as <x>Lee</x> saw, in <x>[2]</x>vivo", "as saw, in vivo"),
        ("Effects of (-)-epicatechin", "Effects of (-)-epicatechin"),
        ("HBsAg(-) and ER (-) mice [<x>1</x>, <x>2</x>]", "HBsAg(-) and ER (-) mice"),
        ("(+)- and (-)-menthol", "(+)- and (-)-menthol"),
        ("CD4(\u2013) cells", "CD4(\u2013) cells"),
    ],
)
def test_citation_marks_leave_no_punctuation(marked: str, text: str, tmp_path: Path) -> None:
    marked = marked.replace("<x>", "<xref ref-type='bibr'>").replace("</x>", "</xref>")
    document = f"<article><body><p>{marked}</p></body></article>"
    [article] = read(sources.packed(tmp_path / "a.nxml", document.encode()))
    assert isinstance(article, Article)
    assert article.body == (text,)


def test_paragraphs_inside_paragraphs_follow_them(tmp_path: Path) -> None:
    listed = "<list><list-item><p>Two <boxed-text><p>three</p></boxed-text> more.</p></list-item></list>"
    left_out = "<table-wrap><p>No.</p></table-wrap><notes>Noted <p>no</p></notes><fn><p>No.</p></fn>"
    body = f"<body><sec><p>One {listed}<italic>in <bold>all</bold></italic>. {left_out}</p><p>Last.</p></sec></body>"
    path = sources.packed(tmp_path / "a.nxml", f"<article>{body}</article>".encode())
    [article] = read(path)
    assert isinstance(article, Article)
    assert article.body == ("One in all. Noted", "Two more.", "three", "Last.")


def test_sections_by_type_and_by_title(tmp_path: Path) -> None:
    sections = (
        "<sec sec-type='materials|methods'><title>Patients</title><sec><title>Results</title><p>M.</p></sec></sec>"
        "<sec><title>Results and <italic>Discussion</italic></title><p>R.</p><p>D.</p></sec>"
        "<sec><title>Case report</title><p>C.</p></sec><p>Alone.</p>"
    )
    path = sources.packed(tmp_path / "a.nxml", f"<article><body>{sections}</body></article>".encode())
    [article] = read(path)
    assert isinstance(article, Article)
    assert article.paragraphs(["body"]) == ["M.", "R.", "D.", "C.", "Alone."]
    assert article.paragraphs(["methods"]) == ["M."]
    assert article.paragraphs(["results"]) == article.paragraphs(["discussion"]) == ["R.", "D."]
    assert article.paragraphs(["title", "conclusion"]) == []


def test_archive_of_full_texts(tmp_path: Path) -> None:
    members = {f"PMC{n}.nxml": sources.article(n, ["One."]) for n in (1, 2)} | {"readme.txt": "not an article"}
    articles = read(sources.archive(tmp_path / "oa.tar.gz", members))
    assert [item.id for item in articles if isinstance(item, Article)] == ["PMC1", "PMC2"]


def test_a_type_does_not_hide_the_title_of_a_section(tmp_path: Path) -> None:
    sections = (
        "<sec sec-type='section'><title>2. Methods</title><p>M.</p></sec>"
        "<sec sec-type='conclusions'><title>Discussion</title><p>D.</p></sec>"
    )
    path = sources.packed(tmp_path / "a.nxml", f"<article><body>{sections}</body></article>".encode())
    [article] = read(path)
    assert isinstance(article, Article)
    assert article.paragraphs(["methods"]) == ["M."]
    assert article.paragraphs(["discussion"]) == article.paragraphs(["conclusion"]) == ["D."]


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        ("[Ein [alter] Titel].", "Ein [alter] Titel."),
        ("[What?].", "What?"),
        ("[3H]Ouabain binding to membranes [corrected].", "[3H]Ouabain binding to membranes [corrected]."),
        ("[18F]FDG and [11C].", "[18F]FDG and [11C]."),
    ],
)
def test_brackets_of_a_translation_are_no_part_of_a_title(title: str, kept: str, tmp_path: Path) -> None:
    [article] = read(sources.pubmed(tmp_path / "a.xml", [sources.citation(1, "Text.", title=title)]))
    assert isinstance(article, Article) and article.title == kept


@pytest.mark.parametrize("name", ["a.xml.gz", "a.nxml"])
def test_an_empty_file_is_damaged(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DamagedSourceError, match="it is empty; fetch it again"):
        read(tmp_path / name)


def test_entities_of_another_file(tmp_path: Path) -> None:
    paragraph = "<p>TNF-&alpha;, <i>&Beta;</i>&amp;&gamma; &le;1</p>"
    text = f"<!DOCTYPE article SYSTEM 'JATS.dtd'><article><body>{paragraph}</body></article>"
    [article] = read(sources.packed(tmp_path / "a.nxml", text.encode()))
    assert isinstance(article, Article) and article.body == ("TNF-\u03b1, \u0392&\u03b3 \u22641",)
    with pytest.raises(DamagedSourceError, match="the entity &foo; is unknown"):
        read(sources.packed(tmp_path / "b.nxml", text.replace("&le;", "&foo;").encode()))


def test_sections_in_headings_without_spaces(tmp_path: Path) -> None:
    sections = "<sec><title>2.Methods</title><p>M.</p></sec><sec><title>Results/Discussion</title><p>D.</p></sec>"
    [article] = read(sources.packed(tmp_path / "a.nxml", f"<article><body>{sections}</body></article>".encode()))
    assert isinstance(article, Article)
    assert (article.paragraphs(["methods"]), article.paragraphs(["discussion"])) == (["M."], ["D."])


def test_line_breaks_separate_words(tmp_path: Path) -> None:
    path = sources.packed(tmp_path / "a.nxml", sources.article(1, ["A."], title="Its title<break/>goes on").encode())
    assert [item.title for item in read(path) if isinstance(item, Article)] == ["Its title goes on"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_bioc_json(tmp_path: Path, wrapped: bool, mark: bytes) -> None:
    text = sources.bioc([("TITLE", "T."), ("ABSTRACT", "A."), ("INTRO", "B."), ("REF", "no"), ("TABLE", "no")])
    path = sources.packed(tmp_path / "a.json", mark + (f"[{text}]" if wrapped else text).encode())
    assert read(path) == [Article("PMC7", "bioc", "T.", ("A.",), ("B.",), sections=(frozenset(["introduction"]),))]


def test_headings_in_bioc_are_no_text(tmp_path: Path) -> None:
    passages = [
        ("TITLE", "front", "A title."),
        ("ABSTRACT", "abstract_title_1", "Background"),
        ("ABSTRACT", "abstract", "A."),
        ("INTRO", "title_1", "Introduction"),
        ("INTRO", "paragraph", "B."),
        ("METHODS", "title_2", "2.1."),
        ("TITLE", "title", "Its second part."),
    ]
    made = [{"infons": {"section_type": section, "type": kind}, "text": text} for section, kind, text in passages]
    path = sources.packed(tmp_path / "a.json", json.dumps({"documents": [{"id": "7", "passages": made}]}).encode())
    [article] = read(path)
    assert isinstance(article, Article)
    assert article.paragraphs(["title", "abstract", "body"]) == ["A title. Its second part.", "A.", "B."]


def test_bioc_xml(tmp_path: Path) -> None:
    passage = "<passage><infon key='type'>{}</infon><offset>0</offset><text>{}</text></passage>"
    passages = "".join(passage.format(*item) for item in (("title", "T."), ("abstract", "A."), ("paragraph", "B.")))
    text = f"<?xml version='1.0'?><collection><document><id>9</id>{passages}</document></collection>"
    expected = Article("9", "bioc", "T.", ("A.",), ("B.",), sections=(NO_SECTION,))
    assert read(sources.packed(tmp_path / "a.xml", text.encode())) == [expected]


def test_json_lines_with_another_field(tmp_path: Path) -> None:
    lines = [{"pmid": 3, "title": "T", "abstract": "One.\nTwo."}, {"id": "x", "note": "N."}]
    path = sources.packed(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)).encode())
    assert read(path, "note") == [
        Article("3", "text", "T", ("One.", "Two.")),
        Article("x", "text", body=("N.",)),
    ]


def test_a_title_that_is_nan_is_missing(tmp_path: Path) -> None:
    path = sources.packed(tmp_path / "a.jsonl", b'{"id": "x", "title": NaN, "text": "N."}')
    assert read(path) == [Article("x", "text", body=("N.",))]


def test_text_by_line_and_by_blank_line(tmp_path: Path) -> None:
    by_line = read(sources.packed(tmp_path / "a.txt", b"One.\nTwo.\n"))
    by_blank = read(sources.packed(tmp_path / "b.txt.gz", b"\n\nOne.\nTwo.\n\n\nThree.\n"))
    assert [article.body for article in by_line if isinstance(article, Article)] == [("One.",), ("Two.",)]
    assert [article.body for article in by_blank if isinstance(article, Article)] == [("One.", "Two."), ("Three.",)]


def test_text_that_begins_with_a_sign(tmp_path: Path) -> None:
    [article] = read(sources.packed(tmp_path / "a.txt", b"<5% of the patients died in this article.\n"))
    assert isinstance(article, Article) and article.body == ("<5% of the patients died in this article.",)


@pytest.mark.parametrize("beginning", ["", "<!DOCTYPE html>", "<?xml version='1.0'?>\n<!doctype  HTML>"])
def test_a_web_page_is_no_article(beginning: str, tmp_path: Path) -> None:
    page = f"{beginning}<html><body><article><p>404 Not Found</p></article></body></html>"
    with pytest.raises(DamagedSourceError, match="a web page"):
        read(sources.packed(tmp_path / "a.nxml", page.encode()))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_blank_lines_after_a_long_first_article(name: str, tmp_path: Path) -> None:
    words = iter(random.Random(0).choices(range(10**6), k=60_000))
    articles = ["\n".join(f"Line {next(words)} {next(words)}." for _ in range(8_000)) for _ in range(3)]
    assert len(articles[0]) > 100_000
    found = read(sources.packed(tmp_path / name, "\n\n".join(articles).encode()))
    assert ["\n".join(article.body) for article in found] == articles


def test_ids_of_json_lines(tmp_path: Path) -> None:
    records = [{"id": None, "text": "A."}, {"id": None, "pmid": 7, "text": "B."}, {"id": "a\nb", "text": "C."}]
    path = sources.packed(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records)).encode())
    assert [article.id for article in read(path)] == ["", "7", "a b"]


DAMAGED = {
    "cut.xml": b"<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID>",
    "other.xml": b"<?xml version='1.0'?><html><body/></html>",
    "bomb.xml": b"<?xml version='1.0'?><!DOCTYPE PubmedArticleSet [<!ENTITY a 'aa'><!ENTITY b '&a;&a;'>]>"
    b"<PubmedArticleSet><MedlineCitation><PMID>&b;</PMID></MedlineCitation></PubmedArticleSet>",
    "cut.xml.gz": gzip.compress(b"<PubmedArticleSet>" * 1000)[:40],
    "a.jsonl": b'{"text": "a"}\n{"text": ',
    "list.jsonl": b"[1]",
    "field.jsonl": b'{"other": "a"}',
    "binary.txt": b"\x01\x02 text\n\x00\x03",
    "pubmed-set.txt": b"\nPMID- 38012345\nTI  - A title.\n",
    "latin.txt": "caf\u00e9".encode("latin-1"),
    "bioc.json": b'{"documents": [{"id": 1}]}',
    "records.json": b'[{"id": 1, "text": "a"}]',
    "cut.json": b'{"documents": [{"id": 1, "passages": [',
    "endless.txt": b"a" * (3 << 20),
    "bomb.txt.gz": gzip.compress((b" " * 65_535 + b"\n") * 320),
    "digits.jsonl": b'{"text": "a", "id": ' + b"1" * 5000 + b"}",
    "deep.jsonl": b'{"text": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "cut.tar.gz": gzip.compress(b"x" * 5000)[:30],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_explained(tmp_path: Path, name: str) -> None:
    with pytest.raises(DamagedSourceError):
        read(sources.packed(tmp_path / "kept" / name.replace(".gz", ".gz_"), DAMAGED[name]).rename(tmp_path / name))


EXPLAINED = {
    "a.xml": (b'{"error":"API rate limit exceeded"}', 'it is no XML in UTF-8, but begins with \'{"error":'),
    "a.xml.bz2": (bz2.compress(b"<PubmedArticleSet/>"), "only .gz is read; unpack it first: bzip2 -dc a.xml.bz2"),
    "lines.json": (b'{"text": "a"}\n{"text": "b"}\n', "let its name end in .jsonl"),
    "field.jsonl": (b'{"other": "a", "note": "b"}', "no field 'text', but other, note; name"),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_cause_and_the_way_out_are_named(tmp_path: Path, name: str) -> None:
    content, message = EXPLAINED[name]
    with pytest.raises(DamagedSourceError) as raised:
        read(sources.packed(tmp_path / name, content))
    assert message in str(raised.value) and "\n" not in str(raised.value)


PEAK = """
import sys
from pathlib import Path
from biosqueeze.corpora.sources import SourceFile, open_source, read_source
with open_source(SourceFile.of(Path(sys.argv[1])), lambda count: None) as file:
    count = sum(1 for _ in read_source(file, Path(sys.argv[1]), "text"))
status = dict(line.split(":") for line in open("/proc/self/status"))
print(count, status["VmHWM"].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from Linux's /proc")
def test_memory_of_a_large_file_is_flat(tmp_path: Path) -> None:
    """The tree of the larger file would need some 300 MB (lxml takes about ten times the size of the file)."""
    citations = "".join(sources.citation(n, sources.abstract(n)) for n in range(500))
    peaks = []
    for times in (2, 40):
        path = sources.pubmed(tmp_path / f"{times}.xml", [citations] * times)
        result = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
        count, kilobytes = map(int, result.stdout.split())
        assert count == 500 * times
        peaks.append(kilobytes)
    assert peaks[1] < peaks[0] + 10_000


def test_sources_of_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b/2.xml.gz", "a.jsonl", "README.txt", ".hidden.txt", "notes.pdf", "b/oa.filelist.txt"):
        sources.packed(tmp_path / name, b"x")
    assert [file.path.name for file in find_sources((str(tmp_path),))] == ["a.jsonl", "2.xml.gz"]
    assert f"corpus {tmp_path}: 2 files read; skipped notes.pdf" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SqueezeError, match="given twice"):
        find_sources((str(tmp_path / "a.jsonl"), str(tmp_path)))
    with pytest.raises(SqueezeError, match="no file or directory"):
        find_sources((str(tmp_path / "absent"),))


def test_parquet_has_the_articles_of_json_lines(tmp_path: Path) -> None:
    records = [
        {
            "id": number,
            "title": f"Title {number}",
            "abstract": "One.\nTwo.",
            "note": None,
            "language": "de",
            "other": [1],
        }
        for number in range(1500)
    ]
    records[7] |= {"abstract": None, "note": "A note."}
    lines, packed = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    lines.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    parquet.write_table(pyarrow.Table.from_pylist(records), packed, row_group_size=400)
    assert read(packed, "note") == read(lines, "note")
    advanced = list[int]()
    with open_source(SourceFile.of(packed), advanced.append) as file:
        assert len(list(read_source(file, packed, "note"))) == 1500
        assert file.sha256() == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert 0 <= packed.stat().st_size - sum(advanced) < 10


def test_parquet_that_is_cut_short_or_has_other_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([{"words": "a"}]), path)
    with pytest.raises(
        DamagedSourceError, match=r"record 1: no field 'text', but words; name the field with the text with --field"
    ):
        read(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedSourceError, match="cannot be read as Parquet"):
        read(path)


def test_texts_of_a_field_in_a_list(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": ["A title.", null], "text": ["One. \\n Two.", "", "Three."]}\n')
    assert read(path) == [Article("", "text", "A title.", body=("One. Two.", "Three."))]


@pytest.mark.parametrize("name", ["text", "abstract", "title"])
@pytest.mark.parametrize("value", [5, {"text": "Lost."}, [{"text": "Lost."}], ["Kept.", ["Lost."]]])
def test_a_field_with_more_than_texts_is_refused(name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"title": "A title.", "text": "A text.", name: value}))
    with pytest.raises(DamagedSourceError, match=rf"line 1: the field '{name}' holds .* a list of texts was expected"):
        read(path)


def test_a_report_with_many_contaminated_articles_is_read(tmp_path: Path) -> None:
    part = Part(0, (), tmp_path)
    found = [
        ("/data/pubmed/baseline/pubmed24n0001.xml.gz", str(n), "benchmarks/test.tsv:12345") for n in range(160_000)
    ]
    PartReport(contaminated=found).write(part)
    assert part.is_done and PartReport.read(part).contaminated == found


def test_articles_of_books_are_read(tmp_path: Path) -> None:
    book = (
        "<PubmedBookArticle><BookDocument><PMID>7</PMID><Book><BookTitle>A book.</BookTitle></Book>"
        "<ArticleTitle>A chapter.</ArticleTitle><Language>eng</Language>"
        "<Abstract><AbstractText>One.</AbstractText></Abstract></BookDocument></PubmedBookArticle>"
    )
    first, second = read(sources.pubmed(tmp_path / "a.xml", [book, sources.citation(8, "Two.")]))
    assert first == Article("7", "pubmed", "A chapter.", ("One.",), languages=("eng",))
    assert isinstance(second, Article) and (second.id, second.abstract) == ("8", ("Two.",))
