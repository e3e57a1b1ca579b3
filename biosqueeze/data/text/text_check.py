"""Refuse words with tags, which would count as sentences, web pages, and other formats where text is read."""

import re
from pathlib import Path

from biosqueeze.data.lines import read_beginning
from biosqueeze.errors import SqueezeError

_WORD_WITH_TAG = re.compile(r"\S+(\s+\S+)*\s+(O|[BIESLU]-\S+)")
_CHARACTERS = 1 << 12
_FEWEST = 5
_OTHER_LINES = ("#", "-DOCSTART-")
_WEB_PAGE = re.compile(r"\s*(<\?xml[^>]*>\s*)?<(!doctype\s+)?html\b", re.IGNORECASE)
_JSON = re.compile(r'\s*\[?\s*\{\s*"[^"\n]{1,99}"\s*:')
_PUBTATOR = re.compile(r"\s*[^|\s]+\|t\|")
_OTHER_BEGINNINGS = {
    "<?xml": "XML",
    "<!doctype": "XML or HTML",
    "<html": "HTML",
    "pmid- ": "in PubMed's MEDLINE format",
    "ty  - ": "in the RIS format",
    "%pdf-": "PDF",
}


def format_by_beginning(beginning: str) -> str | None:
    """Return the format of what begins like a file of another program; None for any other."""
    start = beginning.lstrip().lower()
    return next((what for mark, what in _OTHER_BEGINNINGS.items() if start.startswith(mark)), None)


def text_problem(beginning: str) -> str:
    """Return what is wrong with a text that begins like JSON, PubTator or XML, and the way out; "" for any other."""
    if _JSON.match(beginning):
        return (
            "it is JSON and no text; write one object on each line, and let the name end in .jsonl, or take the texts "
            "out of it (jq -r .text)"
        )
    if _PUBTATOR.match(beginning):
        return "it is PubTator and no text; take the texts out of it (grep '|[ta]|' FILE | cut -d '|' -f 3-)"
    other = format_by_beginning(beginning)
    return f"it is {other} and no text; `biosqueeze corpus` makes text of PubMed's, PMC's and BioC XML" if other else ""


def is_web_page(beginning: str) -> bool:
    """Return whether a text begins like HTML."""
    return _WEB_PAGE.match(beginning) is not None


def check_is_text(path: Path) -> None:
    """Check the beginning of a plain or gzipped file. Of one that is damaged, its reader says what is wrong.

    Raises:
        SqueezeError: all of its lines, and at least five, end in a tag of BIO or a similar scheme; or it is HTML.
    """
    try:
        text = read_beginning(path, _CHARACTERS)
    except SqueezeError:
        return
    if is_web_page(text):
        raise SqueezeError(
            f"{path} is a web page (HTML) and no text, perhaps of a failed download; fetch the file again"
        )
    whole = text if len(text) < _CHARACTERS else text.rpartition("\n")[0]
    lines = map(str.strip, whole.splitlines())
    words = [line for line in lines if line and not line.startswith(_OTHER_LINES)]
    if len(words) >= _FEWEST and all(map(_WORD_WITH_TAG.fullmatch, words)):
        raise SqueezeError(
            f"{path} has a word and its tag on each line, so it is labelled data and no text; name the directory that "
            "holds it where labelled data are read, or give a file with a sentence or document on each line"
        )
