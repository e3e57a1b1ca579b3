"""Invented names of diseases, drugs and genes, and words that look like them and are none.

Every name is put together from morphemes, and a hash of it says which split may use it. So no name of the
test split occurs in train, and a tagger has to learn how names are built and what surrounds them.
"""

import zlib
from collections.abc import Callable
from random import Random

SPLITS = ("train", "dev", "test")
_SPLIT_OF_BUCKET = ("train",) * 6 + ("dev",) * 2 + ("test",) * 2


def _words(text: str) -> list[str]:
    return text.split()


_ROOTS = _words(
    "nephr hepat cardi neur dermat gastr oste arthr encephal angi pneum rhin cyst splen aden chondr "
    "thym kerat phleb ot cheil gloss pancreat col enter mening myel trache laryng retin uve blephar "
    "desm odont proct salping spondyl ten"
)
_DISEASE_ENDS = _words(
    "itis osis opathy oma oplasia odystrophy omalacia algia oclasis orrhea orrhagia ostenosis optosis"
)
_ORDINARY_ENDS = _words(
    "ogenesis ocyte oscopy otomy ology ography oblast ometer otropic ogram opexy oplasty ologist okine"
)
_DISEASE_HEADS = _words(
    "syndrome disease palsy ataxia dystrophy carcinoma sarcoma dementia anaemia lymphoma fever"
)
_DISEASE_MODIFIERS = _words(
    "chronic acute familial congenital juvenile hereditary idiopathic atrophic nodular"
)
_ORGANS = _words("liver kidney spleen retina thymus skin colon lung larynx")
_SYLLABLES = _words(
    "bel cor dal fen gro hil jas kel lor mav nex pra quil ros sim tav ul vor xel zan bri tra lum dox per sol"
)
_LINKS = _words("a e i o u ata ero ilu ora")
_DRUG_ENDS = _words(
    "mab nib pril olol statin azole cillin oxacin idine afil gliptin sartan parib vir triptan zepam"
)
_ORDINARY_DRUGLIKE_ENDS = _words("ane ose itol cine ware tron ica lene gard max")
_SALTS = _words("hydrochloride sodium mesylate acetate citrate")
_CONSONANTS = "BCDFGHJKLMNPRSTVXZ"
_GENE_TRAITS = _words(
    "nuclear vascular neural epidermal lysosomal ribosomal synaptic mitotic hepatic zinc calcium"
)
_GENE_CLASSES = _words(
    "kinase receptor transporter ligase helicase phosphatase adaptor channel cadherin factor"
)
_SURNAME_STARTS = _words(
    "Karv Tolm Risk Brand Veld Hask Morn Ostr Pell Quist Sarn Thorv Ulm Wex Yarr Zell Dorn Fal Grim Lund"
)
_SURNAME_ENDS = _words("el en e er ley ovic sson ini ard off wick mann eda")


def split_of(name: str) -> str:
    """The only split in which a name may be an entity; letter case makes no difference."""
    return _SPLIT_OF_BUCKET[zlib.crc32(name.lower().encode()) % len(_SPLIT_OF_BUCKET)]


def _drawn(make: Callable[[Random], str], rng: Random, split: str) -> str:
    while True:
        name = make(rng)
        if split_of(name) == split:
            return name


def disease(rng: Random, split: str) -> list[str]:
    """Words of a disease's name."""
    form = rng.random()
    if form < 0.25:
        return _eponym(rng, split)
    word = _drawn(lambda r: _greek(r, _DISEASE_ENDS), rng, split)
    if form < 0.55:
        return [word]
    if form < 0.8:
        return [rng.choice(_DISEASE_MODIFIERS), word]
    if form < 0.9:
        return [word, "of", "the", rng.choice(_ORGANS)]
    return [word, "type", rng.choice(["1", "2", "3", "IV"])]


def _eponym(rng: Random, split: str) -> list[str]:
    names = [_drawn(_surname, rng, split) for _ in range(rng.choice([1, 1, 2]))]
    head = rng.choice(_DISEASE_HEADS)
    return [names[0], head] if len(names) == 1 else [names[0], "-", names[1], head]


def deficiency(rng: Random, split: str) -> list[str]:
    """A disease whose name holds a gene's."""
    return [symbol(rng, split), "deficiency"]


def drug(rng: Random, split: str) -> list[str]:
    """Words of a drug's name: a generic name, one with its salt, or a code."""
    form = rng.random()
    if form < 0.2:
        return [_drawn(_code, rng, split)]
    name = _drawn(lambda r: _coined(r, _DRUG_ENDS), rng, split)
    return [name, rng.choice(_SALTS)] if form > 0.85 else [name]


def gene(rng: Random, split: str) -> list[str]:
    """Words of a gene's name: mostly a symbol."""
    return [symbol(rng, split)] if rng.random() < 0.75 else _drawn(_gene_words, rng, split).split()


def symbol(rng: Random, split: str) -> str:
    """A gene symbol, in the human (KRT4) or the mouse (Krt4) style."""
    return _drawn(_symbol, rng, split)


def abbreviation(words: list[str], rng: Random, split: str) -> str | None:
    """A short form of a name, if there is one that the split may use."""
    letters = [word for word in words if word[0].isalpha() and word not in ("of", "the", "type")]
    tail = "".join(letters[1:]) or letters[0][1:]
    forms = [
        "".join(word[0] for word in letters),
        *(letters[0][0] + x + y for x in tail[:4] for y in tail[4:8]),
    ]
    usable = [form.upper() for form in forms if len(form) > 1 and split_of(form) == split]
    return rng.choice(usable) if usable else None


def ordinary_greek(rng: Random, split: str) -> str:
    """A procedure, process or cell with the roots of a disease: hepatogenesis, nephroscopy."""
    return _drawn(lambda r: _greek(r, _ORDINARY_ENDS), rng, split)


def ordinary_coined(rng: Random, split: str) -> str:
    """A product that sounds like a drug: a trade name of a device, a sugar."""
    return _drawn(lambda r: _coined(r, _ORDINARY_DRUGLIKE_ENDS), rng, split)


def ordinary_symbol(rng: Random, split: str) -> str:
    """A cell line, grant or instrument, made exactly as gene symbols and drug codes are."""
    return _drawn(_symbol if rng.random() < 0.6 else _code, rng, split)


def surname(rng: Random, split: str) -> str:
    """A person's name, made exactly as those in the names of diseases are."""
    return _drawn(_surname, rng, split)


def _greek(rng: Random, ends: list[str]) -> str:
    roots = rng.sample(_ROOTS, rng.choice([1, 2, 2]))
    return "o".join(roots) + rng.choice(ends)


def _coined(rng: Random, ends: list[str]) -> str:
    parts = rng.sample(_SYLLABLES, rng.choice([1, 2, 2]))
    return rng.choice(_LINKS).join(parts) + rng.choice(_LINKS) + rng.choice(ends)


def _code(rng: Random) -> str:
    return "".join(rng.sample(_CONSONANTS, 2)) + f"-{rng.randrange(100, 9999)}"


def _symbol(rng: Random) -> str:
    stem = "".join(rng.sample(_CONSONANTS, rng.choice([2, 3, 3, 4])))
    made = stem + str(rng.randrange(1, 30)) + rng.choice(["", "", "", "A", "B", "L"])
    return made.capitalize() if rng.random() < 0.2 else made


def _gene_words(rng: Random) -> str:
    traits = " ".join(rng.sample(_GENE_TRAITS, 2))
    return f"{traits} {rng.choice(_GENE_CLASSES)} {rng.randrange(1, 9)}"


def _surname(rng: Random) -> str:
    return rng.choice(_SURNAME_STARTS) + rng.choice(_SURNAME_ENDS)
