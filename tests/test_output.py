"""A checkpoint is written completely or not at all, and its history grows."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from biosqueeze import manifest
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import SqueezeError
from biosqueeze.files.saved_states import PROGRESS_FILE, state_folder
from biosqueeze.manifest import TaskRecord
from biosqueeze.options import WritingOptions
from biosqueeze.output import StageRecord, derive_out, inputs_of, open_output
from biosqueeze.stages import shrink


def write_copy(source: Path, out: Path, **flags: bool) -> Path:
    parent = open_checkpoint(str(source))
    with open_output(out, **flags) as output:
        shutil.copytree(source, output.path, dirs_exist_ok=True)
        return output.finish(
            StageRecord(stage="copy", parent=parent, options=WritingOptions(seed=3), metrics={"f1": 0.5})
        ).path


def save_state(directory: Path) -> None:
    folder = state_folder(directory, 1)
    folder.mkdir()
    (folder / PROGRESS_FILE).write_text("{}")


def test_finished_output_has_a_manifest(pico_bert: Path, tmp_path: Path) -> None:
    out = write_copy(pico_bert, tmp_path / "out")
    entry = json.loads((out / manifest.FILE_NAME).read_text())
    assert entry["parent"] == {"name": str(pico_bert), "sha256": open_checkpoint(str(pico_bert)).weights_sha256()}
    assert entry["model"]["sha256"] == open_checkpoint(str(out)).weights_sha256()
    assert entry["history"][0]["options"]["seed"] == 3
    assert entry["environment"]["packages"]["torch"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_history_is_append_only(pico_bert: Path, tmp_path: Path) -> None:
    first = write_copy(pico_bert, tmp_path / "first")
    second = write_copy(first, tmp_path / "second")
    earlier, later = (json.loads((p / manifest.FILE_NAME).read_text())["history"] for p in (first, second))
    assert later[:-1] == earlier
    assert later[-1]["parents"]["parent"]["name"] == str(first)


def test_other_parents_and_the_task_are_recorded(pico_bert: Path, pico_ner: Path, tmp_path: Path) -> None:
    parent, teacher, task = open_checkpoint(str(pico_bert)), open_checkpoint(str(pico_ner)), TaskRecord(name="ner")
    with open_output(tmp_path / "tuned") as output:
        shutil.copytree(pico_ner, output.path, dirs_exist_ok=True)
        record = StageRecord(stage="copy", parent=parent, options=WritingOptions(), task=task)
        tuned = output.finish(replace(record, other_parents=(("teacher", teacher),)))
    assert tuned.task == task
    assert {role: parent.name for role, parent in tuned.history[-1].parents.items()} == {
        "parent": str(pico_bert),
        "teacher": str(pico_ner),
    }
    assert open_checkpoint(str(write_copy(tuned.path, tmp_path / "copy"))).task == task


def test_finished_output_has_no_training_states_and_no_lock(pico_bert: Path, tmp_path: Path) -> None:
    with open_output(tmp_path / "out") as output:
        shutil.copytree(pico_bert, output.path, dirs_exist_ok=True)
        save_state(output.path)
        output.finish(StageRecord(stage="copy", parent=open_checkpoint(str(pico_bert)), options=WritingOptions()))
    expected = {path.name for path in pico_bert.iterdir()} | {manifest.FILE_NAME, "README.md"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected


def test_resume_needs_a_training_state(tmp_path: Path) -> None:
    with pytest.raises(SqueezeError, match="nothing to resume"), open_output(tmp_path / "out", resume=True):
        pass
    assert not list(tmp_path.iterdir())


def test_failure_leaves_no_partial_output(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            (output.path / "model.safetensors").write_bytes(b"half")
            raise SqueezeError("no")

    with pytest.raises(SqueezeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_failure_keeps_a_training_state_for_resume(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            save_state(output.path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / "out.partial" / "state-00000001").is_dir()
    with pytest.raises(SqueezeError, match="--resume"), open_output(tmp_path / "out"):
        pass
    with open_output(tmp_path / "out", resume=True) as output:
        assert (output.path / "state-00000001").is_dir()
    with open_output(tmp_path / "out", force=True) as output:
        assert not (output.path / "state-00000001").exists()


def test_existing_output_needs_force(pico_bert: Path, tmp_path: Path) -> None:
    out = write_copy(pico_bert, tmp_path / "out")
    (out / "results").mkdir()
    with pytest.raises(SqueezeError, match="--force"):
        write_copy(pico_bert, out)
    assert (out / "results").is_dir()
    write_copy(pico_bert, out, force=True)
    assert not (out / "results").exists()


def test_force_replaces_only_checkpoints(pico_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    with pytest.raises(SqueezeError, match="not a checkpoint"):
        write_copy(pico_bert, tmp_path / "thesis", force=True)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"


def test_second_writer_of_an_output_is_refused(tmp_path: Path) -> None:
    with (
        open_output(tmp_path / "out"),
        pytest.raises(SqueezeError, match="another biosqueeze"),
        open_output(tmp_path / "out"),
    ):
        pass


def test_derived_output_is_beside_a_local_input(pico_bert: Path) -> None:
    assert derive_out(open_checkpoint(str(pico_bert)), "4l") == pico_bert.parent / "pico-bert-4l"


def test_derived_output_of_the_current_directory(pico_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pico_bert)
    for name in (".", "./"):
        assert derive_out(open_checkpoint(name), "4l") == pico_bert.parent / "pico-bert-4l"


def test_interrupt_message_names_resume_if_a_state_is_saved(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="--resume"), open_output(tmp_path / "out") as output:
        save_state(output.path)
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as caught, open_output(tmp_path / "other"):
        raise KeyboardInterrupt
    assert not caught.value.args


def test_input_is_never_overwritten(pico_bert: Path, tmp_path: Path) -> None:
    source = write_copy(pico_bert, tmp_path / "source")
    held = open_checkpoint(str(source))
    with (
        pytest.raises(SqueezeError, match="the input itself"),
        open_output(tmp_path / "x" / ".." / "source", (held.path,), force=True),
    ):
        pass
    assert held.weights_sha256()


def test_directory_above_an_input_is_never_replaced(pico_bert: Path, tmp_path: Path) -> None:
    source = write_copy(pico_bert, tmp_path / "run" / "checkpoint-5")
    (tmp_path / "run" / "config.json").write_text("{}")
    with (
        pytest.raises(SqueezeError, match="the input itself or contains it"),
        open_output(tmp_path / "run", (source,), force=True),
    ):
        pass


def test_all_paths_in_options_are_inputs(pico_bert: Path, tmp_path: Path) -> None:
    for name in ("tokenizer", "text.txt"):
        (tmp_path / name).mkdir()
    paths = [str(tmp_path / name) for name in ("tokenizer", "text.txt", "missing")]
    options = shrink.Options(checkpoint=str(pico_bert), tokenizer=paths[0], calibration=paths[1], out=str(tmp_path))
    assert set(inputs_of(options)) == {pico_bert, *map(Path, paths[:2])}
    kept = shrink.Options(checkpoint="org/model", vocab_keep=tuple(paths))
    assert inputs_of(kept, open_checkpoint(str(pico_bert))) == (pico_bert, *map(Path, paths[:2]))


def test_missing_parent_at_the_end_keeps_the_training_state(pico_bert: Path, tmp_path: Path) -> None:
    source = write_copy(pico_bert, tmp_path / "source")
    parent = open_checkpoint(str(source))

    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            shutil.copytree(source, output.path, dirs_exist_ok=True)
            save_state(output.path)
            shutil.rmtree(source)
            output.finish(StageRecord(stage="copy", parent=parent, options=WritingOptions()))

    with pytest.raises((SqueezeError, OSError)):
        fail()
    assert (tmp_path / "out.partial" / "state-00000001").is_dir()


def test_complete_output_is_kept_if_renaming_fails(
    pico_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("biosqueeze.output.publish_directory", refuse)
    with pytest.raises(PermissionError):
        write_copy(pico_bert, tmp_path / "out")
    assert (tmp_path / "out.partial" / manifest.FILE_NAME).is_file()
    assert "out.partial is complete" in " ".join(capfd.readouterr().err.split())


def test_full_disk_keeps_the_training_state(tmp_path: Path) -> None:
    def fail() -> None:
        with open_output(tmp_path / "out") as output:
            save_state(output.path)
            (output.path / "saving").mkdir()
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SqueezeError, match=r"is full; .* --resume"):
        fail()
    assert sorted(path.name for path in (tmp_path / "out.partial").iterdir()) == [".lock", "state-00000001"]
