"""Sources, data and models that several tests of stages read; those that change one change a copy."""

import json
from pathlib import Path
from unittest import mock

import pytest

from tests import pico
from tests.corpora import sources
from tests.tagged_sentences import tags, tuned

__all__ = ["tags", "tuned"]  # fixtures


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 200 sentences."""
    return pico.write_sentences(tmp_path_factory.mktemp("text") / "corpus.txt", 200, seed=5)


@pytest.fixture(scope="session")
def ner(shallow):
    """A tagger of one layer."""
    return str(shallow("bert", "token-classification"))


@pytest.fixture(scope="session")
def classifier(pico_root):
    """A classifier of one layer and three classes."""
    with mock.patch.object(pico, "LAYERS", 1):
        path = pico.save("bert", pico_root / "three", head="sequence-classification", labels=("a", "b", "c"))
    return str(path)


@pytest.fixture
def records(tmp_path):
    """Seventy texts of one to five sentences, with ids."""
    path = tmp_path / "records.jsonl"
    texts = [" ".join(pico.sentences(1 + n % 5, seed=n)) for n in range(70)]
    path.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """Three PubMed files with 40 articles each, one article in two versions, one withdrawn, one text twice."""
    folder = tmp_path / "baseline"
    for number in range(3):
        pmids = range(number * 40, number * 40 + 40)
        citations = [sources.citation(pmid + 1, sources.abstract(pmid)) for pmid in pmids]
        sources.pubmed(folder / f"pubmed{number}.xml.gz", citations)
    update = [sources.citation(1, "The new version."), sources.citation(900, sources.abstract(5))]
    sources.pubmed(folder / "pubmed9.xml.gz", update, deleted=[3])
    return folder
