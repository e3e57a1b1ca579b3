"""The sections of a full text by their headings and types."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

Section = Literal["introduction", "methods", "results", "discussion", "conclusion"]
Sections = frozenset[Section]

# How words begin in headings ("Patients and methods"), JATS's sec-type ("materials|methods") and BioC's section_type
# ("CONCL").
_BEGINNINGS: Mapping[Section, tuple[str, ...]] = {
    "introduction": ("intro", "background"),
    "methods": ("method", "material", "experimental", "procedure"),
    "results": ("result", "finding"),
    "discussion": ("discuss",),
    "conclusion": ("concl",),
}
SECTIONS: tuple[Section, ...] = tuple(_BEGINNINGS)
_CACHED = 10_000
_WORD = re.compile(r"[^\W\d_]+")  # "2.Methods" and "Results/Discussion" have no spaces


@lru_cache(_CACHED)
def sections_named(heading: str) -> Sections:
    """Return the sections that a heading or type names: both of "Results and discussion", none of "Case report"."""
    words = _WORD.findall(heading.casefold())
    named = (name for name, marks in _BEGINNINGS.items() if any(word.startswith(marks) for word in words))
    return frozenset(named)
