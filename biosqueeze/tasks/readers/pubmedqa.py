"""Read PubMedQA's labelled questions (PQA-L) from the authors' files (github.com/pubmedqa/pubmedqa)."""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data.records.record import DataRecord
from biosqueeze.data.records.tables import read_file
from biosqueeze.errors import SqueezeError
from biosqueeze.files.parsing import parse_json, read_text
from biosqueeze.progress import note
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers import rows as _rows
from biosqueeze.tasks.readers.split_overlap import with_test

NAME = "PubMedQA's files"
QUESTIONS, GROUND_TRUTH = "ori_pqal.json", "test_ground_truth.json"
FOLD = "pqal_fold0"
DECISIONS = ("yes", "no", "maybe")
FOLDS = 10
ROLES = _rows.Roles({"first": ("QUESTION",), "second": ("CONTEXTS",), "label": ("final_decision",), "id": ("id",)})


def is_here(directory: Path) -> bool:
    """Return whether a directory has PubMedQA's files: ori_pqal.json, or the output of the authors' split script."""
    return any((directory / name).is_file() for name in (QUESTIONS, "train_set.json", f"{FOLD}/train_set.json"))


def read(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """Read splits, and with train the test split too, to check that the two are disjoint.

    Raises:
        SqueezeError: a file is missing or damaged.
    """
    names = with_test(splits, ("test",))
    if (directory / QUESTIONS).is_file() and not (directory / FOLD / "train_set.json").is_file():
        return _read_questions(directory, names)
    return _read_fold(directory, names)


def _read_fold(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """Read the files of a fold, with test_set.json beside them or one directory above."""
    fold = directory / FOLD if (directory / FOLD).is_dir() else directory
    files = {split: fold / f"{split}_set.json" for split in splits}
    if "test" in files and not files["test"].is_file():
        files["test"] = fold.parent / "test_set.json"
    missing = next((path for path in files.values() if not path.is_file()), None)
    if missing:
        raise SqueezeError(f"there is no {missing}; PubMedQA's preprocess/split_dataset.py pqal writes it")
    note(f"{directory}: PubMedQA: {', '.join(f'{split} {path}' for split, path in files.items())}")
    return {split: _examples(read_file(path)) for split, path in files.items()}


def _read_questions(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """Read all questions, and split them as the authors' script does."""
    records = {str(record.values["id"]): record for record in read_file(directory / QUESTIONS)}
    decisions = {name: _decision(record) for name, record in records.items()}
    test = _test_ids(directory, records)
    parts, official = split_ids(decisions, test)
    how = (
        f"dev is the first of the ten folds of PubMedQA's own script, whose test half equals {GROUND_TRUTH}"
        if official
        else f"dev is a tenth of the questions that are not in {GROUND_TRUTH}, drawn per label, and no official fold"
    )
    note(f"{directory}: PubMedQA: the question and its contexts; {how}")
    return {split: _examples([records[name] for name in parts[split]]) for split in splits}


def split_ids(decisions: Mapping[str, str], test: frozenset[str]) -> tuple[dict[str, list[str]], bool]:
    """Assign the questions to splits.

    The authors' script seeds Python's generator with 0, divides the questions label by label into a half for
    cross-validation and a half for test, and divides the former into ten folds, of which BLURB uses one as dev: 450,
    50 and 500 questions. This function repeats it; if its test half equals the published one, its folds do too.

    Args:
        decisions: the label of every question, in the order of ori_pqal.json.
        test: the ids of the published test split.

    Returns:
        the ids of each split in the order of the file, and whether the test half equals the published one.
    """
    rng = random.Random(0)
    cross_validation, test_half = stratified_parts(decisions, 2, rng)
    official = set(test_half) == test
    if not official:
        cross_validation = [name for name in decisions if name not in test]
    dev = set(stratified_parts({name: decisions[name] for name in cross_validation}, FOLDS, rng)[0])
    parts = {"train": set(cross_validation) - dev, "dev": dev, "test": set(test)}
    return {split: [name for name in decisions if name in part] for split, part in parts.items()}, official


def stratified_parts(decisions: Mapping[str, str], parts: int, rng: random.Random) -> list[list[str]]:
    """Divide ids into shuffled parts with about equal shares of each label; a smaller last part is filled up."""
    parts_of_ids: list[list[str]] = [[] for _ in range(parts)]
    for decision in DECISIONS:
        names = [name for name, label in decisions.items() if label == decision]
        rng.shuffle(names)
        size = math.ceil(len(names) / parts)
        for index, name in enumerate(names):
            parts_of_ids[min(index // size, parts - 1)].append(name)
    if len(parts_of_ids[-1]) != len(parts_of_ids[0]):
        for part in filter(None, parts_of_ids[:-1]):
            moved = rng.choice(part)
            part.remove(moved)
            parts_of_ids[-1].append(moved)
    return parts_of_ids


def _decision(record: DataRecord) -> str:
    decision = str(record.values.get("final_decision"))
    if decision not in DECISIONS:
        raise SqueezeError(
            f"{record.where}: final_decision is {decision!r}, expected one of {', '.join(DECISIONS)}; correct it"
        )
    return decision


def _test_ids(directory: Path, records: Mapping[str, DataRecord]) -> frozenset[str]:
    path = directory / GROUND_TRUTH
    try:
        labels: Any = parse_json(read_text(path))
    except FileNotFoundError as error:
        raise SqueezeError(
            f"there is no {path}, which defines the test split; copy it from PubMedQA's data/, where {QUESTIONS} is"
        ) from error
    except ValueError as error:
        raise SqueezeError(f"{path}: invalid JSON ({error}); download it again") from error
    if not isinstance(labels, dict) or not labels or not labels.keys() <= records.keys():
        raise SqueezeError(f"{path} does not fit {QUESTIONS}: it must map ids of these questions to their labels")
    return frozenset(labels)


def _examples(records: Sequence[DataRecord]) -> list[TextExample]:
    rows = ROLES.rows(records, ROLES.columns(()))
    return [
        TextExample(_rows.pair_of(row), _decision(record), str(row.values["id"]), row.where)
        for row, record in zip(rows, records, strict=True)
    ]
