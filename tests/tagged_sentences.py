"""A small task of tagged words, and pico encoders that are fine-tuned on it until they are good at it."""

from pathlib import Path

import pytest

from tests import pico


@pytest.fixture(scope="session")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sentences in which words ending in `ma` or `tis` are diseases."""
    folder = tmp_path_factory.mktemp("tags")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        rows = []
        for sentence in pico.sentences(60, seed=seed):
            words = sentence.rstrip(".").split()
            rows += [f"{w}\t{'B-Disease' if w.lower().endswith(('ma', 'tis')) else 'O'}" for w in words]
            rows += ["sepsis\tB-Disease", "syndrome\tI-Disease", ""]
        (folder / f"{split}.tsv").write_text("\n".join(rows))
    return folder


def tune(family: str, tags: Path, root: Path) -> Path:
    """Fine-tune a pico encoder of the family on the tags."""
    from biosqueeze.stages import finetune

    source = pico.save(family, root / f"untuned-{family}", head="base")
    options = finetune.Options(
        checkpoint=str(source),
        data=str(tags),
        epochs=20,
        lr=5e-3,
        precision="fp32",
        max_length=64,
        out=str(root / f"tuned-{family}"),
    )
    return finetune.run(options).path


@pytest.fixture(scope="session")
def tuned(tags: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that is fine-tuned on the tags."""
    return tune("bert", tags, tmp_path_factory.mktemp("tuned"))
