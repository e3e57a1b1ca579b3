"""Options become the words of a command line that sets the same values again."""

import click
import pytest

from biosqueeze import registry
from biosqueeze.cli.command import stage_command
from biosqueeze.command_line import option_defaults, option_flags


def test_values_become_flags() -> None:
    options = {"lr": 1e-5, "label_all_pieces": True, "force": False, "column": ("text=a", "label=b"), "steps": None}
    assert option_flags(options, option_defaults("finetune")) == [
        *("--lr", "1e-05", "--label-all-pieces", "--column", "text=a", "--column", "label=b")
    ]


def test_defaults_that_are_on_can_be_switched_off() -> None:
    assert option_flags({"embeddings": False}, {"embeddings": True}) == ["--no-embeddings"]
    assert option_flags({"embeddings": True}, {"embeddings": True}) == ["--embeddings"]
    assert option_flags({"force": False}, {"force": False}) == []
    assert option_defaults("quantize")["embeddings"] is True
    assert option_defaults("no-such-stage") == {}


@pytest.mark.parametrize("stage", registry.names("stages"))
def test_click_accepts_the_flag_of_every_switch(stage: str) -> None:
    defaults = option_defaults(stage)
    switches = {name: not default for name, default in defaults.items() if isinstance(default, bool)}
    command = stage_command(stage, registry.load("stages", stage))
    known = {word for p in command.params if isinstance(p, click.Option) for word in (*p.opts, *p.secondary_opts)}
    assert set(option_flags(switches, defaults)) <= known
