"""Biomedical terms whose pieces are shown, as in table 1 of Gu et al. 2021 (PubMedBERT), and files of such terms."""

from pathlib import Path

from biosqueeze.data.lines import numbered_lines
from biosqueeze.errors import SqueezeError

# Half of them are in every vocabulary of biomedical text; the others are common in some of its fields alone.
BIOMEDICAL_TERMS = (
    "diabetes",
    "hypertension",
    "carcinoma",
    "lymphoma",
    "nephropathy",
    "thrombocytopenia",
    "hypercholesterolemia",
    "osteoarthritis",
    "insulin",
    "aspirin",
    "metformin",
    "lidocaine",
    "naloxone",
    "simvastatin",
    "chloramphenicol",
    "methotrexate",
    "kinase",
    "acetyltransferase",
    "phosphorylation",
    "promoter",
    "cytokine",
    "BRCA1",
    "TP53",
    "mRNA",
    "hepatocyte",
    "cardiomyocyte",
    "oropharyngeal",
    "endothelium",
    "placebo",
    "randomized",
)


def read_terms(file: Path) -> tuple[str, ...]:
    """Read a file of terms, one a line; blank lines are left out.

    Raises:
        SqueezeError: it does not exist, is not text, or holds no term.
    """
    if not file.is_file():
        raise SqueezeError(f"there is no file {file}; give a text file with one term a line")
    terms = tuple(dict.fromkeys(text.strip() for _, text in numbered_lines(file) if text.strip()))
    if not terms:
        raise SqueezeError(f"{file} holds no term; write one on each line")
    return terms
