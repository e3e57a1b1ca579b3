"""Generate sentences about diseases, drugs and genes: `demo:ner` with tags, `demo:text` without.

The data come from a small grammar, to try the commands without a data set. They are not a benchmark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from biosqueeze.data.demo_names import Names

SIZES = {"train": 1200, "dev": 300, "test": 400}
TEXT_LINES = 3000

WordsAndTags = tuple[tuple[str, ...], tuple[str, ...]]

_ENTITIES = {"disease": "Disease", "deficiency": "Disease", "drug": "Drug", "gene": "Gene"}
_SIMILAR_WORDS = ("greek", "coined", "code", "surname")

# Upper-case words are rules; disease, drug, gene and deficiency are slots for entities; greek, coined, code and
# surname are slots for similar words that are not entities. Each context takes several types and similar words, so
# that neither the context nor the shape of a word identifies an entity. Forms with * do not occur in train.
RULES: dict[str, tuple[str, ...]] = {
    "START": (
        "MAIN .",
        "MAIN .",
        "MAIN .",
        "OPENING , MAIN .",
        "MAIN , TAIL .",
        "* MAIN ; MAIN .",
    ),
    "OPENING": (
        "in NUMBER patients with CONDITION",
        "after treatment with AGENT",
        "unlike AGENT",
        "as surname and colleagues reported",
        "in COMMON studies of greek",
        "among carriers of gene VARIANT",
        "in a model of CONDITION",
        "* contrary to CONDITION",
        "* using PRODUCT",
        "* once AGENT had been stopped",
    ),
    "MAIN": (
        "AGENT was given to NUMBER patients with CONDITION",
        "mutations in gene cause disease",
        "VARIANT of gene were found in NUMBER families with disease",
        "expression of TARGET was higher in CELLS than in CELLS",
        "AGENT reduced the level of TARGET in CELLS",
        "AGENT did not change the course of CONDITION",
        "defined_disease is a COMMON disorder of ORGAN , and disease often follows it",
        "the patient developed disease while taking drug , and drug was stopped",
        "drug - induced disease is COMMON in carriers of gene",
        "deficiency is inherited as a COMMON trait",
        "TARGET binds to gene in CELLS",
        "CELLS lacking gene were resistant to AGENT",
        "loss of gene led to CONDITION in mice",
        "patients were scored for CONDITION on the EPONYMOUS",
        "defined_gene encodes a COMMON protein of ORGAN , and gene is lost in disease",
        "PRODUCT was used for greek before AGENT was started",
        "neither AGENT nor AGENT improved CONDITION",
        "CONDITION , disease and CONDITION were the COMMON diagnoses",
        "AGENT or AGENT was added to the medium of CELLS",
        "samples were stored in PRODUCT and read with PRODUCT",
        "we screened TARGET , gene and TARGET in CELLS",
        "* the EPONYMOUS favoured drug over AGENT in CONDITION",
        "* CONDITION resolved when AGENT replaced drug",
        "* we mapped disease to VARIANT of TARGET",
        "* defined_disease was ruled out by greek , as was CONDITION",
        "* AGENT acts on TARGET rather than on gene",
        "* ORGAN of mice with CONDITION was rich in TARGET",
        "* a sibling had died of CONDITION",
        "* phosphorylation of TARGET by gene needs AGENT",
    ),
    "TAIL": (
        "which points to a role of TARGET",
        "and TARGET was unchanged",
        "as shown by greek",
        "although AGENT had no such effect",
        "while CELLS grew as before",
        "but not in those with CONDITION",
        "* with COMMON effects on TARGET",
        "* much as in CONDITION",
    ),
    "AGENT": ("drug", "drug", "drug", "drug", "greek", "a gene inhibitor", "coined", "oral drug", "* the drug arm"),
    "CONDITION": (
        "disease",
        "disease",
        "disease",
        "untreated disease",
        "deficiency",
        "impaired greek",
        "a low EPONYMOUS",
        "* excessive greek",
        "* suspected disease",
    ),
    "TARGET": ("gene", "gene", "gene", "the gene gene", "CARRIER code", "drug", "gene mRNA", "* gene itself"),
    "CELLS": (
        "code LIVING",
        "CELL_KIND",
        "gene - positive CELL_KIND",
        "CELL_KIND from patients with disease",
        "* gene - null CELL_KIND",
        "* CELL_KIND exposed to drug",
    ),
    "CELL_KIND": ("fibroblasts", "greek cultures", "control cells", "tumour cells", "* organoids", "* biopsies"),
    "VARIANT": ("variants", "a nonsense mutation", "two deletions", "* polymorphisms"),
    "PRODUCT": ("the coined device", "a code MACHINE", "coined tubes", "* the CARRIER code", "* EPONYMOUS sets"),
    "CARRIER": ("plasmid", "clone", "strain", "* batch", "* vector", "* accession"),
    "LIVING": ("cells", "lines", "* mice", "* explants"),
    "MACHINE": ("assay", "analyser", "kit", "* array", "* buffer"),
    "EPONYMOUS": ("surname scale", "surname score", "surname trial", "* surname index", "* surname criteria"),
    "COMMON": ("rare", "frequent", "novel", "strong", "mild", "conserved"),
    "ORGAN": ("the liver", "the kidney", "muscle", "the retina", "white matter", "the airways"),
    "NUMBER": ("7", "12", "18", "24", "36", "48", "115", "2.5", "304"),
}


@dataclass
class _SentenceBuilder:
    """Words and tags of a sentence during its expansion."""

    names: Names
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    short_forms: dict[str, str] = field(default_factory=dict)

    def expand(self, symbol: str) -> None:
        """Expand a rule to one of its forms and a slot to a name; append any other word unchanged."""
        if symbol in RULES:
            forms = [form for form in RULES[symbol] if self.names.wide or form[0] != "*"]
            for part in self.names.rng.choice(forms).removeprefix("* ").split():
                self.expand(part)
        elif symbol in _ENTITIES:
            self._entity(symbol)
        elif symbol.startswith("defined_"):
            self._defined(symbol.removeprefix("defined_"))
        else:
            self._add([getattr(self.names, symbol)() if symbol in _SIMILAR_WORDS else symbol], None)

    def _add(self, words: list[str], entity_type: str | None) -> None:
        self.words += words
        self.tags += [f"{'I' if i else 'B'}-{entity_type}" if entity_type else "O" for i in range(len(words))]

    def _entity(self, slot: str) -> None:
        if slot in self.short_forms and self.names.rng.random() < 0.7:
            self._add([self.short_forms[slot]], _ENTITIES[slot])
        else:
            self._add(getattr(self.names, slot)(), _ENTITIES[slot])

    def _defined(self, slot: str) -> None:
        """Add a name with its short form in parentheses, which may replace the name later in the sentence."""
        words = getattr(self.names, slot)()
        self._add(words, _ENTITIES[slot])
        short = self.names.short_form(words) if len(words) > 1 else None
        if short:
            self.short_forms[slot] = short
            self._add(["("], None)
            self._add([short], _ENTITIES[slot])
            self._add([")"], None)


def _sentences(names: Names, count: int) -> Iterator[WordsAndTags]:
    for _ in range(count):
        sentence = _SentenceBuilder(names)
        sentence.expand("START")
        first = sentence.words[0]
        sentence.words[0] = first[0].upper() + first[1:]
        yield tuple(sentence.words), tuple(sentence.tags)


def demo_ner(split: str, seed: int = 0) -> list[WordsAndTags]:
    """Return words and BIO tags (Disease, Drug, Gene) of the sentences of a split; the splits share no name."""
    names = Names(Random(f"ner-{split}-{seed}"), split, wide=split != "train")
    return list(_sentences(names, SIZES[split]))


def demo_text(lines: int = TEXT_LINES, seed: int = 0) -> list[str]:
    """Return untagged sentences of all forms, formatted as prose; none of their names occurs in dev or test."""
    names = Names(Random(f"text-{seed}"), "train", wide=True)
    return [_prose(words) for words, _ in _sentences(names, lines)]


def _prose(words: tuple[str, ...]) -> str:
    text = " ".join(words).replace(" - ", "-").replace("( ", "(")
    return re.sub(r" ([.,;)])", r"\1", text)
