"""Suggestions for unknown names: typing errors and the words of other tools get one, other words get none."""

import pytest

from biosqueeze import registry
from biosqueeze.cli.main import cli
from biosqueeze.suggestions import suggest
from tests.cli.run import Shell

COMMANDS = [*registry.names("stages"), "run"]

MEANT = [
    ("finetune", "--learning-rate", "it is --lr here"),
    ("finetune", "--learning_rate", "it is --lr here"),
    ("finetune", "--LR", "Did you mean '--lr'?"),
    ("finetune", "--output-dir", "it is --out here"),
    ("finetune", "--num-train-epochs", "it is --epochs here"),
    ("finetune", "--epoch", "Did you mean '--epochs'?"),
    ("finetune", "--per-device-train-batch-size", "it is --batch-size here"),
    ("finetune", "--batchsize", "Did you mean '--batch-size'?"),
    ("finetune", "--batch_size", "Did you mean '--batch-size'?"),
    ("finetune", "--model-name-or-path", "CHECKPOINT is given without a flag here"),
    ("finetune", "--model", "CHECKPOINT is given without a flag here"),
    ("finetune", "--checkpoint", "CHECKPOINT is given without a flag here"),
    ("finetune", "--train-file", "it is --data here"),
    ("finetune", "--dataset", "it is --data here"),
    ("finetune", "--max-seq-length", "it is --max-length here"),
    ("finetune", "--gradient-accumulation-steps", "it is --accumulate here"),
    ("finetune", "--overwrite-output-dir", "it is --force here"),
    ("finetune", "--resume-from-checkpoint", "it is --resume here"),
    ("finetune", "--report-to", "it is --tracker here"),
    ("finetune", "--sede", "Did you mean '--seed'?"),
    ("finetune", "--patiance", "Did you mean '--patience'?"),
    ("distill", "--teacher-model", "it is --teacher here"),
    ("distill", "--temprature", "Did you mean '--temperature'?"),
    ("distill", "--mlm-probability", "it is --mask-rate here"),
    ("distill", "--train-file", "it is --corpus here"),
    ("distill", "--teecher", "Did you mean '--teacher'?"),
    ("shrink", "--num-hidden-layers", "it is --layers here"),
    ("shrink", "--intermediate-size", "it is --ffn here"),
    ("shrink", "--layer", "Did you mean '--layers'?"),
    ("evaluate", "--dta", "Did you mean '--data'?"),
    ("predict", "--output-file", "it is --out here"),
    ("bench", "--bacth-size", "Did you mean '--batch-size'?"),
    ("quantize", "--mehtod", "Did you mean '--method'?"),
    ("export", "--tolerence", "Did you mean '--tolerance'?"),
    ("benchmark", "--siute", "Did you mean '--suite'?"),
    ("run", "--sett", "Did you mean '--set'?"),
]
NONSENSE = (
    *("banana", "potato", "xyzzy", "foo", "qux", "zz", "elephant", "weather", "42", "python", "kubernetes", "je"),
    *("purple", "sandwich", "helicopter", "cheese", "guitar", "november", "quicksand", "umbrella", "ab", "oxygen"),
    *("philosophy",),
)


@pytest.mark.parametrize(("command", "flag", "says"), MEANT)
def test_the_meant_option_is_named(command: str, flag: str, says: str, shell: Shell) -> None:
    said = shell(command, flag, "1")
    assert says in said.err
    assert (said.code, said.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_nonsense_gets_no_suggestion(command: str, shell: Shell) -> None:
    for word in NONSENSE:
        said = shell(command, f"--{word}")
        assert said.err == f"error: No such option '--{word}'. (see biosqueeze {command} --help)\n"


def test_nonsense_is_no_command_and_no_task() -> None:
    for choices in (cli.list_commands(None), registry.names("tasks"), registry.names("objectives")):  # type: ignore[arg-type]
        assert [word for word in NONSENSE if suggest(word, choices)] == []


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("token-classification", "It is 'ner' here."),
        ("text-classification", "It is 'classification' here."),
        ("multi-label", "It is 'classification' here."),
        ("question_answering", "It is 'qa' here."),
        ("NER", "Did you mean 'ner'?"),
    ],
)
def test_tasks_of_other_tools_are_known(task: str, says: str, shell: Shell) -> None:
    assert says in shell("tasks inspect demo:ner --task", task).err


def test_choices_and_commands_are_suggested(shell: Shell) -> None:
    assert "Did you mean 'onnx-dynamic'?" in shell("quantize x --method ONNX_dynamic").err
    assert "It is 'finetune' here." in shell("train").err


def test_every_option_of_a_command_is_found_by_its_own_name() -> None:
    for name in registry.names("stages"):
        flags = [option for parameter in cli.get_command(None, name).params for option in parameter.opts]  # type: ignore
        assert [found.name for flag in flags if (found := suggest(flag, flags))] == flags
