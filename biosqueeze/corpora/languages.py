"""Codes of languages: PubMed writes three letters (eng), JATS and JSON records mostly two (en, en-US)."""

import re
from collections.abc import Iterable

from biosqueeze.errors import UsageError

_OF_PUBMED = {
    "ar": "ara", "bg": "bul", "bs": "bos", "ca": "cat", "cs": "cze", "da": "dan", "de": "ger", "el": "gre",
    "en": "eng", "es": "spa", "et": "est", "eu": "baq", "fa": "per", "fi": "fin", "fr": "fre", "he": "heb",
    "hr": "hrv", "hu": "hun", "id": "ind", "is": "ice", "it": "ita", "ja": "jpn", "ka": "geo", "ko": "kor",
    "lt": "lit", "lv": "lav", "mk": "mac", "ms": "may", "nb": "nor", "nl": "dut", "no": "nor", "pl": "pol",
    "pt": "por", "ro": "rum", "ru": "rus", "sk": "slo", "sl": "slv", "sq": "alb", "sr": "srp", "sv": "swe",
    "th": "tha", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "chi",
    # ISO 639 has two codes of three letters for some; those of PubMed are the bibliographic ones.
    "ces": "cze", "deu": "ger", "ell": "gre", "fas": "per", "fra": "fre", "nld": "dut", "ron": "rum", "slk": "slo",
    "zho": "chi",
}  # fmt: skip


def language_code(text: str) -> str:
    """Return a language as PubMed writes it, such as eng for en, EN or en-US; an unknown one in small letters."""
    code = re.split(r"[-_]", text.strip().lower())[0]
    return _OF_PUBMED.get(code, code)


def language_codes(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the languages of an article, as `language_code` does; empty texts are left out."""
    return tuple(filter(None, map(language_code, texts)))


def is_language_code(text: str) -> bool:
    """Return whether what `language_code` returned is a code; a name, such as english, is none."""
    return len(text) in (2, 3) and text.isascii() and text.isalpha()


def parse_language(text: str) -> str:
    """Return the code of PubMed for --language.

    Raises:
        UsageError: it is neither a known code of two letters nor one of three.
    """
    code = language_code(text)
    if len(code) != 3 or not code.isalpha():
        raise UsageError(f"--language {text}: expected the code of a language, such as en, or of three letters: eng")
    return code
