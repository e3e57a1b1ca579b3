"""Data of a classification in small: texts with labels, as files. All texts are ours."""

from pathlib import Path

from biosqueeze.tasks import Formulation, open_task

ALL = ("train", "dev", "test")
TEXTS = {
    "train": ["The receptor binds a small peptide.", "Tumours of the liver grow slowly.", "No drug was given at all."],
    "dev": ["Cells of the marrow were stained."],
    "test": ["A kinase was found in plasma.", "Mice were kept in the dark."],
}


def read(source, splits=ALL, scheme="", **form):
    return open_task("classification", Formulation(**form), scheme).read(str(source), splits)


def write(directory: Path, suffix: str, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return directory


def table(labels: dict[str, list[str]], separator: str = "\t", header: str = "text\tlabel\n") -> dict[str, str]:
    """The texts with these labels, as one file for each split."""
    rows = {split: zip(TEXTS[split], labels[split], strict=True) for split in ALL}
    return {split: header + "".join(separator.join(row) + "\n" for row in items) for split, items in rows.items()}
