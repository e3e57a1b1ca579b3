"""The dev split of a training."""

from types import SimpleNamespace
from typing import Any

import pytest

from biosqueeze.finetuning.dev_evaluation import DevSet
from biosqueeze.tasks import open_task

A, NONE = frozenset("a"), frozenset()


@pytest.mark.parametrize(
    ("gold", "is_said"),
    [
        ([A, NONE], False),
        ([A, A], True),
        ([NONE, NONE], True),
        ([("O", "O"), ("O",)], True),
        ([("O", "B-X"), ("O",)], False),
        (["a", "a"], True),
        (["a", "b"], False),
    ],
)
def test_a_split_with_one_label_is_warned_of(gold: list[Any], is_said: bool, capsys: pytest.CaptureFixture) -> None:
    examples = [SimpleNamespace(gold=each) for each in gold]
    DevSet(open_task("ner"), examples, [], ("a",), 0).warn_of_one_label()
    assert ("the same label everywhere" in capsys.readouterr().err) is is_said
