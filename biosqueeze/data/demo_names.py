"""Generate names of diseases, drugs and genes, and similar words that are not entities.

Every name is composed of morphemes, and its hash determines the split that may use it. So no name of the test split
occurs in train, and a tagger has to generalise from the parts of names and from their context. The last quarter of
the morphemes of each kind does not occur in train either: there only knowledge from before the training helps.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

_SPLIT_OF_BUCKET = ("train",) * 6 + ("dev",) * 2 + ("test",) * 2


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ROOTS = _words(
    "nephr hepat cardi neur dermat gastr oste arthr pneum rhin splen aden chondr kerat phleb ot cheil "
    "pancreat col mening trache retin uve desm odont salping ten encephal angi cyst gloss thym enter myel "
    "laryng blephar spondyl proct"
)
_DISEASE_ENDS = _words("itis opathy oma odystrophy algia oclasis orrhea ostenosis optosis osis omalacia oplasia")
_ORDINARY_ENDS = _words("ogenesis ocyte oscopy ology ography ometer otropic ogram opexy otomy oblast oplasty")
_DISEASE_HEADS = _words("syndrome disease palsy ataxia dystrophy sarcoma dementia fever anaemia lymphoma")
_DISEASE_MODIFIERS = _words("chronic acute familial congenital juvenile hereditary idiopathic nodular")
_ORGANS = _words("liver kidney spleen retina thymus skin colon lung larynx")
_SYLLABLES = _words("bel cor dal fen gro hil jas kel lor mav nex pra quil ros sim tav vor zan bri tra lum dox per sol")
_LINKS = _words("a e i o u")
_DRUG_ENDS = _words("mab pril olol azole cillin idine gliptin sartan vir triptan zepam nib statin oxacin parib")
_ORDINARY_DRUGLIKE_ENDS = _words("ane ose cine ware tron lene gard max")
_SALTS = _words("hydrochloride sodium mesylate acetate citrate")
_CONSONANTS = "BCDFGHJKLMNPRSTVXZ"
_GENE_TRAITS = _words("nuclear vascular neural lysosomal synaptic mitotic zinc calcium epidermal ribosomal")
_GENE_CLASSES = _words("kinase receptor transporter ligase phosphatase adaptor channel helicase cadherin")
_SURNAME_STARTS = _words("Karv Tolm Risk Brand Veld Hask Morn Ostr Pell Quist Sarn Thorv Ulm Wex Yarr Zell")
_SURNAME_ENDS = _words("el en e er ley ovic sson ini ard off wick mann eda")


def split_of(name: str) -> str:
    """Return the only split in which a name may be an entity; letter case is ignored."""
    return _SPLIT_OF_BUCKET[zlib.crc32(name.lower().encode()) % len(_SPLIT_OF_BUCKET)]


@dataclass(frozen=True)
class Names:
    """Generator of the names that one split may use; `wide` includes the morphemes that train does not use."""

    rng: Random
    split: str
    wide: bool

    def disease(self) -> list[str]:
        """Return the words of a disease name."""
        form = self.rng.random()
        if form < 0.25:
            return self._eponym()
        word = self._drawn(lambda: self._greek(_DISEASE_ENDS))
        if form < 0.55:
            return [word]
        if form < 0.8:
            return [self.rng.choice(_DISEASE_MODIFIERS), word]
        if form < 0.9:
            return [word, "of", "the", self.rng.choice(_ORGANS)]
        return [word, "type", self.rng.choice(["1", "2", "3", "IV"])]

    def deficiency(self) -> list[str]:
        """Return the words of a disease name that contains a gene symbol."""
        return [self._drawn(self._symbol), "deficiency"]

    def drug(self) -> list[str]:
        """Return the words of a drug name: a generic name, one with its salt, or a code."""
        form = self.rng.random()
        if form < 0.2:
            return [self._drawn(self._code)]
        name = self._drawn(lambda: self._coined(_DRUG_ENDS))
        return [name, self.rng.choice(_SALTS)] if form > 0.85 else [name]

    def gene(self) -> list[str]:
        """Return the words of a gene name: mostly a symbol, in the human (KRT4) or the mouse (Krt4) style."""
        if self.rng.random() < 0.75:
            return [self._drawn(self._symbol)]
        return self._drawn(self._gene_words).split()

    def short_form(self, words: Sequence[str]) -> str | None:
        """Return an abbreviation of a name in capitals, or None if the split may use none."""
        letters = [word for word in words if word[0].isalpha() and word not in ("of", "the", "type")]
        tail = "".join(letters[1:]) or letters[0][1:]
        pairs = (letters[0][0] + x + y for x in tail[:4] for y in tail[4:8])
        forms = ["".join(word[0] for word in letters), *pairs]
        usable = [form.upper() for form in forms if len(form) > 1 and split_of(form) == self.split]
        return self.rng.choice(usable) if usable else None

    def greek(self) -> str:
        """Return a procedure or cell with the roots of a disease: hepatogenesis, nephroscopy. Not an entity."""
        return self._drawn(lambda: self._greek(_ORDINARY_ENDS))

    def coined(self) -> str:
        """Return a product that sounds like a drug: a trade name of a device, a sugar. Not an entity."""
        return self._drawn(lambda: self._coined(_ORDINARY_DRUGLIKE_ENDS))

    def code(self) -> str:
        """Return a cell line, grant or instrument, composed like gene symbols and drug codes. Not an entity."""
        return self._drawn(self._symbol if self.rng.random() < 0.6 else self._code)

    def surname(self) -> str:
        """Return the name of a person, composed like those in names of diseases. Not an entity."""
        return self._drawn(self._surname)

    def _drawn(self, make: Callable[[], str]) -> str:
        while split_of(name := make()) != self.split:
            pass
        return name

    def _pool(self, morphemes: tuple[str, ...]) -> tuple[str, ...]:
        return morphemes if self.wide else morphemes[: 3 * len(morphemes) // 4]

    def _pick(self, morphemes: tuple[str, ...]) -> str:
        return self.rng.choice(self._pool(morphemes))

    def _eponym(self) -> list[str]:
        head = self._pick(_DISEASE_HEADS)
        if self.rng.random() < 0.7:
            return [self.surname(), head]
        return [self.surname(), "-", self.surname(), head]

    def _greek(self, ends: tuple[str, ...]) -> str:
        roots = self.rng.sample(self._pool(_ROOTS), self.rng.choice([1, 2, 2]))
        return "o".join(roots) + self._pick(ends)

    def _coined(self, ends: tuple[str, ...]) -> str:
        stem = self.rng.choice(_LINKS).join(self.rng.sample(_SYLLABLES, 2))
        return stem + self.rng.choice(_LINKS) + self._pick(ends)

    def _code(self) -> str:
        return "".join(self.rng.sample(_CONSONANTS, 2)) + f"-{self.rng.randrange(100, 9999)}"

    def _symbol(self) -> str:
        stem = "".join(self.rng.sample(_CONSONANTS, self.rng.choice([2, 3, 3, 4])))
        symbol = stem + str(self.rng.randrange(1, 30)) + self.rng.choice(["", "", "", "A", "B", "L"])
        return symbol.capitalize() if self.rng.random() < 0.2 else symbol

    def _gene_words(self) -> str:
        traits = " ".join(self.rng.sample(self._pool(_GENE_TRAITS), 2))
        return f"{traits} {self._pick(_GENE_CLASSES)} {self.rng.randrange(1, 9)}"

    def _surname(self) -> str:
        return self.rng.choice(_SURNAME_STARTS) + self.rng.choice(_SURNAME_ENDS)
