"""Filling the cache: interruptions at any time, damaged and partial files, full disks, several processes."""

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

from biosqueeze.distillation.teachers.cache import fill as fill_module
from biosqueeze.distillation.teachers.cache import store as store_module
from biosqueeze.distillation.teachers.cache.fill import fill_cache
from biosqueeze.distillation.teachers.cache.plan import open_teacher_cache
from biosqueeze.errors import SqueezeError
from tests.distillation.teachers.cache.caching import (
    CountingTeacher,
    cache_request,
    live,
    masked,
    mlm_losses,
    model_of,
)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Replace Ctrl-C by an event that a test sets."""
    event = threading.Event()

    @contextmanager
    def handler() -> Iterator[threading.Event]:
        yield event

    monkeypatch.setattr(fill_module, "interrupt_handler", handler)
    return event


def test_interrupted_pass_continues(text: Path, tmp_path: Path, interrupt: threading.Event) -> None:
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)
    first = CountingTeacher(live(config), after=lambda count: interrupt.set() if count > 10 else None)
    with pytest.raises(KeyboardInterrupt, match=r"of 40 items are stored in .*the same command continues"):
        fill_cache(open_teacher_cache(request), first)
    interrupt.clear()
    assert 10 < len(first.items) < 40
    second = CountingTeacher(live(config))
    fill_cache(open_teacher_cache(request), second)
    assert sorted(first.items + second.items) == list(range(40))
    assert open_teacher_cache(request).complete


def test_killed_pass_continues_from_written_files(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_module, "FILE_SECONDS", 0.0)
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)

    def dies(count: int) -> None:
        if count > 20:
            raise RuntimeError("killed")

    first, second = CountingTeacher(live(config), after=dies), CountingTeacher(live(config))
    with pytest.raises(RuntimeError, match="killed"):
        fill_cache(open_teacher_cache(request), first)
    cache = open_teacher_cache(request)
    stored = len(cache.store)
    assert 0 < stored < len(first.items)
    (cache.store.folder / "outputs-0123.partial").write_bytes(b"half a file")
    fill_cache(cache, second)
    assert len(second.items) == 40 - stored
    assert not list(cache.store.folder.glob("*.partial"))


@pytest.mark.parametrize("damage", ["cut", "zeros", "nothing", "noise", "gone"])
def test_damaged_files_are_computed_again(
    damage: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fill_module, "FILE_BYTES", 1)
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)
    fill_cache(open_teacher_cache(request), live(config))
    before = open_teacher_cache(request)
    files = sorted(before.store.folder.glob("outputs-*.arrow"))
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
    cache, teacher = open_teacher_cache(request), CountingTeacher(live(config))
    assert ("is damaged" in capfd.readouterr().err) == (damage != "gone")
    fill_cache(cache, teacher)
    assert 0 < len(teacher.items) < 40
    for item in range(40):
        was, now = before.store.find(0, item), cache.store.find(0, item)
        assert was is not None
        assert now is not None
        assert was.checksum == now.checksum
        np.testing.assert_allclose(was.arrays["hidden.3"], now.arrays["hidden.3"], rtol=1e-2, atol=1e-3)


def test_full_disk_keeps_written_files(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_module, "FILE_BYTES", 1)
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)
    write, written = store_module.write_batch, []

    def write_twice(path: Path, batch) -> None:
        if len(written) == 2:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write(path, batch)

    monkeypatch.setattr(store_module, "write_batch", write_twice)
    with pytest.raises(SqueezeError, match=r"is full; .* so far are stored"):
        fill_cache(open_teacher_cache(request), live(config))
    assert not list((tmp_path / "cache").glob("*/*.partial"))
    monkeypatch.setattr(store_module, "write_batch", write)
    cache, teacher = open_teacher_cache(request), CountingTeacher(live(config))
    stored = len(cache.store)
    assert stored > 0
    fill_cache(cache, teacher)
    assert len(teacher.items) == 40 - stored


def test_exhausted_memory_keeps_earlier_outputs(text: Path, tmp_path: Path) -> None:
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)

    def exhausts(count: int) -> None:
        if count > 20:
            raise RuntimeError("out of memory")

    first = CountingTeacher(live(config), after=exhausts)
    with pytest.raises(SqueezeError, match="the outputs computed so far are stored"):
        fill_cache(open_teacher_cache(request), first)
    assert 10 < len(open_teacher_cache(request).store) < len(first.items)


def test_too_small_disk_raises_before_writing(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Usage:
        free: int = 1000

    monkeypatch.setattr(fill_module.shutil, "disk_usage", lambda folder: Usage())
    config = mlm_losses()
    with pytest.raises(SqueezeError, match=r"takes about .* MB, but only 0\.0 MB are free"):
        fill_cache(open_teacher_cache(cache_request(tmp_path / "cache", masked(text), config)), live(config))


@pytest.mark.parametrize("part", [1, fill_module.FILE_BYTES])
def test_expected_size_is_about_right(
    part: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fill_module, "FILE_BYTES", part)
    config = mlm_losses()
    cache = open_teacher_cache(cache_request(tmp_path / "cache", masked(text), config))
    fill_cache(cache, live(config))
    notes = capfd.readouterr().err
    expected = float(notes.split("cache: about ")[1].split(" MB")[0])
    assert expected == pytest.approx(cache.store.bytes / 1e6, rel=0.4)
    assert f"teacher cache: {cache.store.bytes / 1e6:.1f} MB in {cache.store.folder}, kept" in notes
    meta = json.loads((cache.store.folder / "meta.json").read_text())
    assert meta["outputs"] == 40
    assert meta["megabytes"] == pytest.approx(cache.store.bytes / 1e6, abs=1e-3)
    assert (meta["rows"], meta["top"], meta["temperature"], meta["hidden"]) == ("top", 64, 2.0, [0, 3])
    assert (meta["masking seed"], meta["mask rate"], meta["precision"]) == (0, 0.15, "fp32")


def test_processes_share_the_work(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = mlm_losses()
    request = cache_request(tmp_path / "cache", masked(text), config)
    other, index = CountingTeacher(live(config)), [0]
    monkeypatch.setattr(fill_module.processes, "count", lambda: 2)
    monkeypatch.setattr(fill_module.processes, "index", lambda: index[0])

    def meanwhile(_seconds: float) -> None:
        """Run the other process while this one waits, when this one's share is complete."""
        index[0] = 1
        fill_module._fill_share(open_teacher_cache(request), other)
        index[0] = 0

    monkeypatch.setattr(fill_module.time, "sleep", meanwhile)
    first = CountingTeacher(live(config))
    cache = open_teacher_cache(request)
    fill_cache(cache, first)
    assert cache.complete
    assert (len(first.items), len(other.items)) == (20, 20)
    assert sorted(first.items + other.items) == list(range(40))


def test_states_beyond_fp16_raise(text: Path, tmp_path: Path) -> None:
    config, teacher = mlm_losses(), model_of()
    with torch.no_grad():
        teacher.bert.encoder.layer[2].output.LayerNorm.weight.mul_(1e6)
    with pytest.raises(SqueezeError, match=r"hidden states at depth 3 reach .*, more than fp16 holds"):
        fill_cache(open_teacher_cache(cache_request(tmp_path / "cache", masked(text), config)), live(config, teacher))
    assert not list((tmp_path / "cache").glob("*/*.arrow"))
