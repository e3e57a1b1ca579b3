"""Generated sentences about diseases, drugs and genes: `demo:ner` with tags, `demo:text` without.

A grammar of our own, for trying the tools where no data are at hand. It is a sample and no benchmark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from biosqueeze.data import demo_names as names

SIZES = {"train": 1200, "dev": 300, "test": 400}
TEXT_LINES = 3000

Tagged = tuple[tuple[str, ...], tuple[str, ...]]

# Upper-case words are rules; `disease`, `drug`, `gene` and the like are the slots of _Sentence. Each context
# takes names of several kinds and look-alikes too, so that neither context nor shape of a word is enough.
RULES: dict[str, tuple[str, ...]] = {
    "START": (
        "MAIN .",
        "MAIN .",
        "OPENING , MAIN .",
        "MAIN , TAIL .",
        "MAIN ; MAIN .",
        "OPENING , MAIN , TAIL .",
    ),
    "OPENING": (
        "In NUMBER patients with CONDITION",
        "After treatment with AGENT",
        "Unlike AGENT",
        "As surname and colleagues reported",
        "In line COMMON studies of greek",
        "During greek",
        "Using the lookalike INSTRUMENT",
        "Among carriers of gene VARIANT",
        "In a model of CONDITION",
        "At a mean follow-up of NUMBER months",
    ),
    "MAIN": (
        "AGENT was given to NUMBER patients with CONDITION",
        "mutations in gene cause disease",
        "VARIANT of gene were found in NUMBER of NUMBER families with disease",
        "expression of TARGET was higher in CELLS than in CELLS",
        "AGENT reduced the level of TARGET in CELLS",
        "AGENT did not change the course of CONDITION",
        "defined_disease is a COMMON disorder of ORGAN , and disease often follows it",
        "we report a COMMON case of defined_disease in a patient on drug",
        "the patient developed disease while taking drug , and drug was stopped",
        "drug - induced disease is COMMON in carriers of gene",
        "deficiency is inherited as a COMMON trait",
        "TARGET binds to gene and recruits lookalike",
        "CELLS were treated with AGENT for NUMBER h",
        "CELLS lacking gene were resistant to AGENT",
        "loss of gene led to CONDITION in mice",
        "the risk of CONDITION rose with the dose of AGENT",
        "patients were scored for disease on the surname scale",
        "defined_gene encodes a COMMON protein of ORGAN , and gene is lost in disease",
        "the coined device was used for greek before AGENT was started",
        "a COMMON association between gene and CONDITION was seen in NUMBER cohorts",
        "neither AGENT nor AGENT improved CONDITION",
        "disease , disease and disease were the COMMON diagnoses",
        "drug , drug or coined was added to the medium of CELLS",
        "greek and greek were normal in NUMBER patients",
        "samples were stored in coined tubes and read with the lookalike INSTRUMENT",
        "ORGAN of mice with disease showed COMMON greek",
        "we screened gene , gene and lookalike constructs in CELLS",
        "the surname trial compared AGENT with drug in CONDITION",
        "severe disease was treated by greek and drug",
        "surname medium with NUMBER mM coined kept CELLS alive",
    ),
    "TAIL": (
        "which points to a role of TARGET",
        "and TARGET was unchanged",
        "as shown by greek",
        "although AGENT had no such effect",
        "while CELLS grew as before",
        "which supports the use of AGENT in CONDITION",
        "but not in those with CONDITION",
        "as measured with the coined kit ( surname Ltd. )",
        "with funding from grant lookalike",
    ),
    "AGENT": ("drug", "drug", "drug", "oral drug", "greek", "placebo", "a gene inhibitor", "coined"),
    "CONDITION": (
        "disease",
        "disease",
        "disease",
        "untreated disease",
        "deficiency",
        "impaired greek",
        "low surname scores",
    ),
    "TARGET": ("gene", "gene", "gene", "the gene gene", "lookalike RNA", "drug", "gene mRNA"),
    "CELLS": (
        "lookalike cells",
        "CELL_KIND",
        "gene - positive CELL_KIND",
        "CELL_KIND from patients with disease",
    ),
    "CELL_KIND": ("fibroblasts", "greek cultures", "control cells", "tumour cells", "biopsies"),
    "VARIANT": ("variants", "a nonsense mutation", "two deletions", "polymorphisms"),
    "INSTRUMENT": ("spectrometer", "analyser", "assay", "platform"),
    "COMMON": ("rare", "frequent", "novel", "strong", "previously unknown", "mild", "conserved"),
    "ORGAN": ("the liver", "the kidney", "muscle", "the retina", "white matter", "the airways"),
    "NUMBER": ("7", "12", "18", "24", "36", "48", "115", "2.5", "304"),
}


@dataclass
class _Sentence:
    """Words and tags while the grammar unfolds."""

    rng: Random
    split: str
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    short_forms: dict[str, str] = field(default_factory=dict)

    def unfold(self, symbol: str) -> None:
        """Replace a rule by one of its forms, a slot by a name, and any other word by itself."""
        if symbol in RULES:
            for part in self.rng.choice(RULES[symbol]).split():
                self.unfold(part)
        elif symbol in ("disease", "drug", "gene", "deficiency"):
            self._entity(symbol)
        elif symbol.startswith("defined_"):
            self._defined(symbol.removeprefix("defined_"))
        else:
            self._add([self._look_alike(symbol)], None)

    def _add(self, words: list[str], kind: str | None) -> None:
        self.words += words
        self.tags += [f"{'I' if i else 'B'}-{kind}" if kind else "O" for i in range(len(words))]

    def _entity(self, slot: str) -> None:
        kind = "Disease" if slot == "deficiency" else slot.capitalize()
        if slot in self.short_forms and self.rng.random() < 0.7:
            self._add([self.short_forms[slot]], kind)
        else:
            self._add(getattr(names, slot)(self.rng, self.split), kind)

    def _defined(self, slot: str) -> None:
        """A name and, in parentheses, its short form, which stands for the name from there on."""
        words = getattr(names, slot)(self.rng, self.split)
        self._add(words, slot.capitalize())
        short = names.abbreviation(words, self.rng, self.split) if len(words) > 1 else None
        if short:
            self.short_forms[slot] = short
            self._add(["("], None)
            self._add([short], slot.capitalize())
            self._add([")"], None)

    def _look_alike(self, symbol: str) -> str:
        makers = {
            "greek": names.ordinary_greek,
            "coined": names.ordinary_coined,
            "lookalike": names.ordinary_symbol,
            "surname": names.surname,
        }
        return makers[symbol](self.rng, self.split) if symbol in makers else symbol


def _sentences(split: str, count: int, seed: str) -> Iterator[Tagged]:
    rng = Random(seed)
    for _ in range(count):
        sentence = _Sentence(rng, split)
        sentence.unfold("START")
        first = sentence.words[0]
        sentence.words[0] = first[0].upper() + first[1:]
        yield tuple(sentence.words), tuple(sentence.tags)


def demo_ner(split: str, seed: int = 0) -> list[Tagged]:
    """Words and BIO tags (Disease, Drug, Gene) of one split's sentences; the splits share no name."""
    return list(_sentences(split, SIZES[split], f"ner-{split}-{seed}"))


def demo_text(lines: int = TEXT_LINES, seed: int = 0) -> list[str]:
    """Untagged sentences, others than in `demo_ner`, with names that train may use; written as prose is."""
    return [_prose(words) for words, _ in _sentences("train", lines, f"text-{seed}")]


def _prose(words: tuple[str, ...]) -> str:
    text = " ".join(words).replace(" - ", "-").replace("( ", "(")
    return re.sub(r" ([.,;)])", r"\1", text)
