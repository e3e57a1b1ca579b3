"""Ranks of a launcher: they count only among several processes, and a crooked variable is explained in one line."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from biosqueeze.errors import UsageError
from biosqueeze.system import processes
from tests.cli.run import Shell


def set_all(monkeypatch: pytest.MonkeyPatch, variables: str) -> Mapping[str, str]:
    values = dict(pair.split("=") for pair in variables.split())
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


@pytest.mark.parametrize(
    "stray", ["RANK=1", "RANK=abc", "PMI_RANK=-1", "WORLD_SIZE=1 RANK=7", "LOCAL_RANK=3", "LOCAL_RANK=abc", "RANK="]
)
def test_rank_without_a_number_of_processes(
    stray: str, pico_bert: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    set_all(monkeypatch, stray)
    assert (processes.count(), processes.index(), processes.is_main()) == (1, 0, True)
    said = shell("shrink", pico_bert, "--layers", 2, "--out", "out")
    assert (said.code, said.path) == (0, "out"), said.err
    assert Path("out/model.safetensors").is_file()


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ("WORLD_SIZE=-1", "WORLD_SIZE"),
        ("WORLD_SIZE=0", "WORLD_SIZE"),
        ("WORLD_SIZE=two", "WORLD_SIZE"),
        ("WORLD_SIZE=1.5", "WORLD_SIZE"),
        (f"WORLD_SIZE={'9' * 5000}", "WORLD_SIZE"),
        ("WORLD_SIZE=2 RANK=2", "RANK"),
        ("WORLD_SIZE=2 RANK=-1", "RANK"),
        ("WORLD_SIZE=2 RANK=abc", "RANK"),
        ("PMI_SIZE=2 PMI_RANK=5", "PMI_RANK"),
        ("WORLD_SIZE=2 RANK=1 LOCAL_RANK=x", "LOCAL_RANK"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_crooked_launcher_variable_is_one_line(
    variables: str, name: str, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    set_all(monkeypatch, variables)
    said = shell("shrink nowhere --layers 2")
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith(f"error: the environment variable {name} is ")


def test_ranks_of_several_processes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, "WORLD_SIZE=4 RANK=3 LOCAL_RANK=1")
    assert (processes.count(), processes.index(), processes.local_index()) == (4, 3, 1)
    assert not processes.is_main()
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(UsageError, match="from 0 to 3"):
        processes.is_main()


@pytest.mark.parametrize(
    ("variables", "code"), [("LOCAL_RANK=1", 0), ("LOCAL_RANK=abc RANK=1", 0), ("WORLD_SIZE=2", 1)]
)
def test_training_with_half_a_launcher(
    variables: str, code: int, pico_bert: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    set_all(monkeypatch, variables)
    Path("text").write_text("the cells of the patients\n" * 20)
    said = shell("distill --student distil --corpus text --steps 1 --out out --precision fp32 --teacher", pico_bert)
    assert said.code == code, said.err
    assert code == 0 or "cannot be joined" in said.err
    assert Path("out").exists() == (code == 0)
