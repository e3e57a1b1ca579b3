"""Small files of every format that a corpus is read from, written in code."""

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

WORDS = (
    "assay",
    "binding",
    "cells",
    "dose",
    "enzyme",
    "factor",
    "gene",
    "host",
    "inhibitor",
    "kinase",
    "ligand",
    "mice",
)


def sentence(seed: int, words: int = 10) -> str:
    """Return a sentence that is unlike that of any other seed."""
    picked = [WORDS[(seed * 7 + place * (seed % 5 + 1)) % len(WORDS)] for place in range(words - 2)]
    return " ".join(["The", f"sample{seed}", *picked]) + "."


def abstract(seed: int, sentences: int = 4) -> str:
    """Return an abstract that is unlike that of any other seed."""
    return " ".join(sentence(seed * 100 + number) for number in range(sentences))


def citation(
    pmid: int, text: str, title: str = "A title.", language: str = "eng", kind: str = "Journal Article"
) -> str:
    """Return one PubmedArticle."""
    return (
        f"<PubmedArticle><MedlineCitation><PMID Version='1'>{pmid}</PMID><Article><ArticleTitle>{title}</ArticleTitle>"
        f"<Abstract><AbstractText Label='AIM'>{escape(text)}</AbstractText></Abstract><Language>{language}</Language>"
        f"<PublicationTypeList><PublicationType>{kind}</PublicationType></PublicationTypeList></Article>"
        "</MedlineCitation><PubmedData><ReferenceList><Reference><Citation>Not a text.</Citation></Reference>"
        "</ReferenceList></PubmedData></PubmedArticle>"
    )


def pubmed(path: Path, citations: Sequence[str], deleted: Sequence[int] = ()) -> Path:
    """Write a PubMed file; .gz by its name."""
    gone = "".join(f"<PMID Version='1'>{pmid}</PMID>" for pmid in deleted)
    tail = f"<DeleteCitation>{gone}</DeleteCitation>" if deleted else ""
    text = f"<?xml version='1.0'?>\n<PubmedArticleSet>{''.join(citations)}{tail}</PubmedArticleSet>\n"
    return packed(path, text.encode())


def packed(path: Path, content: bytes) -> Path:
    """Write bytes, gzipped where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def article(pmc: int, paragraphs: Sequence[str], title: str = "Full text", kind: str = "research-article") -> str:
    """Return one JATS article with a table, a figure, a list and citation marks, which are no sentences."""
    body = "".join(f"<p>{escape(text)}<sup><xref ref-type='bibr' rid='b1'>12</xref></sup></p>" for text in paragraphs)
    return (
        f"<article article-type='{kind}' xml:lang='en'><front><article-meta><article-id pub-id-type='pmc'>{pmc}"
        f"</article-id><title-group><article-title>{title}</article-title></title-group><abstract><p>Its abstract "
        "[<xref ref-type='bibr' rid='b1'>1</xref>].</p></abstract></article-meta></front><body><sec><title>Methods"
        f"</title>{body}<p>Before <italic>the</italic> list.<list><list-item><p>In a list.</p></list-item></list></p>"
        "<table-wrap><caption><p>A table.</p></caption></table-wrap><fig><caption><p>A figure.</p></caption></fig>"
        "</sec></body><back><ref-list><ref><mixed-citation>A reference.</mixed-citation></ref></ref-list></back>"
        "</article>"
    )


def archive(path: Path, members: dict[str, str]) -> Path:
    """Write a .tar.gz."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def bioc(passages: Sequence[tuple[str, str]], name: str = "PMC7") -> str:
    """Return a BioC JSON collection of one document."""
    made = [{"offset": 0, "infons": {"section_type": section}, "text": text} for section, text in passages]
    return json.dumps({"source": "PMC", "documents": [{"id": name, "passages": made}]})
