"""The pass that asks the teacher: it can be stopped anywhere, and nothing half-written or damaged is trusted."""

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from biosqueeze.distillation.teacher_cache import fill as asking
from biosqueeze.distillation.teacher_cache import store as answers_on_disk
from biosqueeze.distillation.teacher_cache.fill import ask
from biosqueeze.distillation.teacher_cache.plan import open_answers
from biosqueeze.errors import SqueezeError
from tests.distillation.teacher_cache.caching import (
    Counting,
    inquiry,
    live,
    masked,
    mlm_recipe,
    model_of,
)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set by a test where a user would press Ctrl-C."""
    event = threading.Event()

    @contextmanager
    def politely() -> Iterator[threading.Event]:
        yield event

    monkeypatch.setattr(asking, "interrupt_handler", politely)
    return event


def test_an_interrupted_pass_goes_on(text: Path, tmp_path: Path, interrupt: threading.Event) -> None:
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    first = Counting(live(recipe), after=lambda count: interrupt.set() if count > 10 else None)
    with pytest.raises(KeyboardInterrupt, match=r"of 40 answers of the teacher are kept in .*the same command goes on"):
        ask(open_answers(asked), first)
    interrupt.clear()
    assert 10 < len(first.items) < 40
    second = Counting(live(recipe))
    ask(open_answers(asked), second)
    assert sorted(first.items + second.items) == list(range(40))
    assert open_answers(asked).complete


def test_a_killed_pass_goes_on_from_what_was_written(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PART_SECONDS", 0.0)
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)

    def dies(count: int) -> None:
        if count > 20:
            raise RuntimeError("killed")

    first, second = Counting(live(recipe), after=dies), Counting(live(recipe))
    with pytest.raises(RuntimeError, match="killed"):
        ask(open_answers(asked), first)
    answers = open_answers(asked)
    kept = len(answers.store)
    assert 0 < kept < len(first.items)
    (answers.store.folder / "answers-0123.partial").write_bytes(b"half a file")
    ask(answers, second)
    assert len(second.items) == 40 - kept
    assert not list(answers.store.folder.glob("*.partial"))


@pytest.mark.parametrize("damage", ["cut", "zeros", "nothing", "noise", "gone"])
def test_damaged_files_are_never_trusted(
    damage: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "PART_BYTES", 1)
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    ask(open_answers(asked), live(recipe))
    before = open_answers(asked)
    files = sorted(before.store.folder.glob("answers-*.arrow"))
    assert len(files) > 2
    content = files[1].read_bytes()
    damaged = {
        "cut": content[: len(content) // 2],
        "zeros": bytes(len(content)),
        "nothing": b"",
        "noise": b"noise" * 99,
    }
    files[1].unlink()
    if damage != "gone":
        files[1].write_bytes(damaged[damage])
    capfd.readouterr()
    answers, teacher = open_answers(asked), Counting(live(recipe))
    assert ("is damaged" in capfd.readouterr().err) == (damage != "gone")
    ask(answers, teacher)
    assert 0 < len(teacher.items) < 40
    for item in range(40):
        was, now = before.store.find(0, item), answers.store.find(0, item)
        assert was is not None
        assert now is not None
        assert was.asked == now.asked
        np.testing.assert_allclose(was.arrays["hidden.3"], now.arrays["hidden.3"], rtol=1e-2, atol=1e-3)


def test_a_full_disk_keeps_what_was_written(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PART_BYTES", 1)
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    write, written = answers_on_disk._write, []

    def write_twice(path: Path, batch) -> None:
        if len(written) == 2:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write(path, batch)

    monkeypatch.setattr(answers_on_disk, "_write", write_twice)
    with pytest.raises(SqueezeError, match="is full"):
        ask(open_answers(asked), live(recipe))
    assert not list((tmp_path / "kept").glob("*/*.partial"))
    monkeypatch.setattr(answers_on_disk, "_write", write)
    answers, teacher = open_answers(asked), Counting(live(recipe))
    kept = len(answers.store)
    assert kept > 0
    ask(answers, teacher)
    assert len(teacher.items) == 40 - kept


def test_what_the_disk_does_not_hold_is_not_begun(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Usage:
        free: int = 1000

    monkeypatch.setattr(asking.shutil, "disk_usage", lambda folder: Usage())
    recipe = mlm_recipe()
    with pytest.raises(SqueezeError, match=r"take about .* MB, but only 0\.0 MB are free"):
        ask(open_answers(inquiry(tmp_path / "kept", masked(text), recipe)), live(recipe))


@pytest.mark.parametrize("part", [1, asking.PART_BYTES])
def test_the_size_that_is_announced_is_about_what_comes(
    part: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "PART_BYTES", part)
    recipe = mlm_recipe()
    answers = open_answers(inquiry(tmp_path / "kept", masked(text), recipe))
    ask(answers, live(recipe))
    said = capfd.readouterr().err
    coming = float(said.split("answers: about ")[1].split(" MB")[0])
    assert coming == pytest.approx(answers.store.bytes / 1e6, rel=0.4)
    assert f"the teacher's answers: {answers.store.bytes / 1e6:.1f} MB in {answers.store.folder}, kept" in said
    meta = json.loads((answers.store.folder / "meta.json").read_text())
    assert meta["answers"] == 40
    assert meta["megabytes"] == pytest.approx(answers.store.bytes / 1e6, abs=1e-3)
    assert (meta["rows"], meta["top"], meta["temperature"], meta["hidden"]) == ("top", 64, 2.0, [0, 3])
    assert (meta["masking seed"], meta["mask rate"], meta["precision"]) == (0, 0.15, "fp32")


def test_processes_share_the_asking(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = mlm_recipe()
    asked = inquiry(tmp_path / "kept", masked(text), recipe)
    other, index = Counting(live(recipe)), [0]
    monkeypatch.setattr(asking.processes, "count", lambda: 2)
    monkeypatch.setattr(asking.processes, "index", lambda: index[0])

    def meanwhile(_seconds: float) -> None:
        """What the other process does while this one waits; it starts so late that this one's share is there."""
        index[0] = 1
        asking._ask(open_answers(asked), other)
        index[0] = 0

    monkeypatch.setattr(asking.time, "sleep", meanwhile)
    mine = Counting(live(recipe))
    answers = open_answers(asked)
    ask(answers, mine)
    assert answers.complete
    assert (len(mine.items), len(other.items)) == (20, 20)
    assert sorted(mine.items + other.items) == list(range(40))


def test_states_that_fp16_does_not_hold_are_refused(text: Path, tmp_path: Path) -> None:
    recipe, teacher = mlm_recipe(), model_of()
    with torch.no_grad():
        teacher.bert.encoder.layer[2].output.LayerNorm.weight.mul_(1e6)
    with pytest.raises(SqueezeError, match=r"hidden states at depth 3 reach .*, more than fp16 holds"):
        ask(open_answers(inquiry(tmp_path / "kept", masked(text), recipe)), live(recipe, teacher))
    assert not list((tmp_path / "kept").glob("*/*.arrow"))
