"""PubMedQA's labelled questions (PQA-L), from the authors' own files (github.com/pubmedqa/pubmedqa)."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biosqueeze.data.tables import DataRecord, read_file
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note
from biosqueeze.tasks.encoding.sequences import TextExample
from biosqueeze.tasks.readers import rows as _rows

NAME = "PubMedQA's files"
QUESTIONS, GROUND_TRUTH = "ori_pqal.json", "test_ground_truth.json"
FOLD = "pqal_fold0"
DECISIONS = ("yes", "no", "maybe")
FOLDS = 10
ROLES = _rows.Roles({"first": ("QUESTION",), "second": ("CONTEXTS",), "label": ("final_decision",), "id": ("id",)})


def is_here(directory: Path) -> bool:
    """Whether these are PubMedQA's files: ori_pqal.json, or what the authors' script splits it into."""
    return any((directory / name).is_file() for name in (QUESTIONS, "train_set.json", f"{FOLD}/train_set.json"))


def read(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """The splits that are asked for, and test too where it must be told apart from train.

    Raises:
        SqueezeError: a file is missing or damaged.
    """
    looked = _rows.to_read(splits, ("test",))
    if (directory / QUESTIONS).is_file() and not (directory / FOLD / "train_set.json").is_file():
        return _dealt(directory, looked)
    return _folded(directory, looked)


def _folded(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """The files of a fold, with test_set.json beside them or one directory above."""
    fold = directory / FOLD if (directory / FOLD).is_dir() else directory
    files = {split: fold / f"{split}_set.json" for split in splits}
    if "test" in files and not files["test"].is_file():
        files["test"] = fold.parent / "test_set.json"
    lacking = next((path for path in files.values() if not path.is_file()), None)
    if lacking:
        raise SqueezeError(f"there is no {lacking}; PubMedQA's preprocess/split_dataset.py pqal writes it")
    note(f"{directory}: PubMedQA: {', '.join(f'{split} {path}' for split, path in files.items())}")
    return {split: _examples(read_file(path)) for split, path in files.items()}


def _dealt(directory: Path, splits: Sequence[str]) -> dict[str, list[TextExample]]:
    """All questions, split here as the authors' script splits them."""
    records = {str(record.values["id"]): record for record in read_file(directory / QUESTIONS)}
    decisions = {name: _decision(record) for name, record in records.items()}
    test = _test_ids(directory, records)
    parts, ours = split_ids(decisions, test)
    how = (
        f"dev is the first of the ten folds of PubMedQA's own script, whose test half is {GROUND_TRUTH} to the id"
        if ours
        else f"dev is a tenth of what is not in {GROUND_TRUTH}, drawn label by label, and no official fold"
    )
    note(f"{directory}: PubMedQA: the question and its contexts; {how}")
    return {split: _examples([records[name] for name in parts[split]]) for split in splits}


def split_ids(decisions: Mapping[str, str], test: frozenset[str]) -> tuple[dict[str, list[str]], bool]:
    """Which questions are in which split.

    The authors' script seeds Python's generator with 0, deals the questions label by label into a half for
    cross-validation and a half for test, and deals the former into ten folds, of which BLURB takes one for dev: 450,
    50 and 500 questions. The same is done here, and if its test half is the published one, its folds are too.

    Args:
        decisions: the label of every question, in the order of ori_pqal.json.
        test: the ids of the published test split.

    Returns:
        the ids of each split in the order of the file, and whether the test half came out as published.
    """
    rng = random.Random(0)
    learned, held_out = deal(decisions, 2, rng)
    same = set(held_out) == test
    if not same:
        learned = [name for name in decisions if name not in test]
    dev = set(deal({name: decisions[name] for name in learned}, FOLDS, rng)[0])
    train = set(learned) - dev
    parts = {"train": train, "dev": dev, "test": set(test)}
    return {split: [name for name in decisions if name in part] for split, part in parts.items()}, same


def deal(decisions: Mapping[str, str], parts: int, rng: random.Random) -> list[list[str]]:
    """Ids in shuffled parts with about the same share of each label, evened out if the last falls short."""
    dealt: list[list[str]] = [[] for _ in range(parts)]
    for decision in DECISIONS:
        names = [name for name, other in decisions.items() if other == decision]
        rng.shuffle(names)
        size = math.ceil(len(names) / parts)
        for place, name in enumerate(names):
            dealt[min(place // size, parts - 1)].append(name)
    if len(dealt[-1]) != len(dealt[0]):
        for part in filter(None, dealt[:-1]):
            moved = rng.choice(part)
            part.remove(moved)
            dealt[-1].append(moved)
    return dealt


def _decision(record: DataRecord) -> str:
    decision = str(record.values.get("final_decision"))
    if decision not in DECISIONS:
        raise SqueezeError(
            f"{record.where}: final_decision is {decision!r}, where {', '.join(DECISIONS)} were expected; mend it"
        )
    return decision


def _test_ids(directory: Path, records: Mapping[str, DataRecord]) -> frozenset[str]:
    path = directory / GROUND_TRUTH
    try:
        truth: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SqueezeError(
            f"there is no {path}, which says what is in test; it lies beside {QUESTIONS} in PubMedQA's data/"
        ) from error
    except ValueError as error:
        raise SqueezeError(f"{path} is not JSON ({error}); fetch it again") from error
    if not isinstance(truth, dict) or not truth or not truth.keys() <= records.keys():
        raise SqueezeError(f"{path} does not fit {QUESTIONS}: it must map ids of questions there to their labels")
    return frozenset(truth)


def _examples(records: Sequence[DataRecord]) -> list[TextExample]:
    rows = ROLES.rows(records, ROLES.columns(()))
    return [
        TextExample(_rows.pair_of(row), _decision(record), str(row.values["id"]), row.where)
        for row, record in zip(rows, records, strict=True)
    ]
