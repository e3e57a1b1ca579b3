"""A finished training that is killed before it is tidied up is taken over, and never trained again or deleted."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from biosqueeze.files import content_hash
from biosqueeze.output import locked
from biosqueeze.training.best_weights import BestWeights
from biosqueeze.training.resuming.finished import input_hash
from tests import pico
from tests.cli.run import Shell
from tests.kills import killed, removes, renames_to
from tests.training.interruption import press_ctrl_c

QUICK = ("--steps", 5, "--save-every", 2, "--precision", "fp32")


@pytest.fixture
def command(pico_bert: Path, tmp_path: Path) -> tuple[object, ...]:
    """A fine-tuning of five steps with a saved state at the fourth."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train", "dev"):
        words = [word for text in pico.sentences(40) for word in [*text.split(), ""]]
        lines = [f"{word}\t{'B-Disease' if 'tis' in word else 'O'}" if word else "" for word in words]
        (data / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return ("finetune", pico_bert, "--data", data, *QUICK, "--out", "out")


def names(directory: str) -> set[str]:
    return {path.name for path in Path(directory).iterdir()}


@pytest.mark.parametrize(
    "words", [(), ("--resume",), ("--resume", "auto"), ("--resume", "--force"), ("--force",)], ids=str
)
def test_a_finished_training_is_renamed(words: tuple[str, ...], command: tuple, shell: Shell) -> None:
    killed(*command, at=renames_to("out"), log=Path("log"))
    assert not Path("out").exists()
    assert shell(*command, *words, "--dry-run").code == 0
    written = {path: path.read_bytes() for path in Path("out.partial").glob("*.*") if path.is_file()}
    said = shell(*command, *words)
    assert said.code == 0, said.err
    assert said.path == "out"
    assert "was finished by an earlier run" in said.err
    assert all(Path("out", path.name).read_bytes() == content for path, content in written.items() if path.suffix)
    assert not any("state" in name or "lock" in name for name in names("out"))
    assert not Path("out.partial").exists()


def test_a_rename_by_another_process_leaves_no_directory(tmp_path: Path) -> None:
    partial = tmp_path / "out.partial"
    with locked(partial):  # which was renamed between the look at its manifest and the lock
        pass
    assert not partial.exists()
    partial.mkdir()
    (partial / "model.safetensors").touch()
    with locked(partial):
        pass
    assert (partial / "model.safetensors").is_file()


def test_the_finished_training_of_another_request_is_kept(command: tuple, shell: Shell) -> None:
    killed(*command, at=renames_to("out"), log=Path("log"))
    for words in ((), ("--resume",)):
        said = shell(*command, "--lr", 1e-3, *words)
        assert (said.code, "other values of lr; rename it" in said.err) == (1, True), said.err
    assert Path("out.partial/biosqueeze.json").is_file()
    said = shell(*command, "--lr", 1e-3, "--force")
    assert said.code == 0, said.err
    assert json.loads(Path("out/biosqueeze.json").read_text())["history"][0]["options"]["lr"] == 1e-3


def test_a_finished_training_on_other_data_is_kept(command: tuple, shell: Shell) -> None:
    assert shell(*command).code == 0
    assert "by the same request" in shell(*command, "--resume", "auto").err
    data = Path(str(command[3]), "train.tsv")
    data.write_text(data.read_text() + "More\tO\n")
    said = shell(*command, "--resume", "auto")
    assert (said.code, "by the same request" in said.err) == (1, False), said.err
    Path("out").rename("out.partial")
    said = shell(*command, "--resume")
    assert (said.code, "other values of the files of --data; rename it" in said.err) == (1, True), said.err


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_finished_training_with_another_tokenizer_is_kept(
    name: str, command: tuple, copy_of: Callable[[Path], Path], shell: Shell
) -> None:
    """Equal weights are another model with another tokenizer or config."""
    source = copy_of(command[1])
    own = (command[0], source, *command[2:])
    assert shell(*own).code == 0
    assert "by the same request" in shell(*own, "--resume", "auto").err
    (source / name).write_text((source / name).read_text() + "\n")
    said = shell(*own, "--resume", "auto")
    assert (said.code, "by the same request" in said.err) == (1, False), said.err
    Path("out").rename("out.partial")
    assert "other values of the config and tokenizer; rename it" in shell(*own, "--resume").err


@pytest.mark.parametrize("stage", ["finetune", "distill"])
def test_a_training_does_not_go_on_with_another_dev_split(
    stage: str, command: tuple, pico_ner: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"finetune": command, "distill": ("distill", "--teacher", pico_ner, "--student", "distil", *command[2:])}
    with monkeypatch.context() as patched:
        patched.setattr(BestWeights, "update", lambda *_: press_ctrl_c())
        assert shell(*common[stage]).code == 130
    dev = Path(str(command[3]), "dev.tsv")
    dev.write_text(dev.read_text().replace("B-Disease", "O", 1))
    said = shell(*common[stage], "--resume")
    assert (said.code, "was started with other values of dev;" in said.err) == (1, True), said.err


def test_damaged_weights_are_not_taken_over(command: tuple, shell: Shell) -> None:
    killed(*command, at=renames_to("out"), log=Path("log"))
    with Path("out.partial/model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    said = shell(*command, "--resume")
    assert said.code == 0, said.err
    assert "going on from step 4" in said.err


@pytest.mark.parametrize(("words", "code"), [((), 1), (("--resume",), 0), (("--resume", "auto"), 0)], ids=str)
def test_states_are_removed_from_a_finished_output(
    words: tuple[str, ...], code: int, command: tuple, shell: Shell
) -> None:
    killed(*command, at=removes("out/state-*/progress.json"), log=Path("log"))
    assert {"state-00000004", ".lock"} <= names("out")
    before = content_hash(Path("out"))
    assert shell("evaluate out --split dev").code == 0
    said = shell(*command, *words)
    assert said.code == code, said.err
    assert ("exists already" if code else "finished already") in said.err
    assert not {"state-00000004", ".lock"} & names("out")
    assert content_hash(Path("out")) == before


def test_a_state_that_is_half_removed_is_not_resumed(command: tuple, shell: Shell) -> None:
    killed(*command, at=renames_to("out"), log=Path("log"))
    Path("out.partial/biosqueeze.json").unlink()
    Path("out.partial/state-00000004/progress.json").unlink()
    said = shell(*command, "--resume")
    assert (said.code, "nothing to resume" in said.err) == (1, True), said.err
    assert shell(*command).code == 0


def test_resume_auto_starts_resumes_and_ends(command: tuple, shell: Shell) -> None:
    assert shell(*command[:-1], "whole").code == 0
    killed(*command, "--resume", "auto", at=renames_to("out.partial/state-00000004"), log=Path("log"))
    resumed = shell(*command, "--resume", "auto")
    assert (resumed.code, "going on from step 2 of 5" in resumed.err) == (0, True), resumed.err
    assert Path("whole/model.safetensors").read_bytes() == Path("out/model.safetensors").read_bytes()
    repeated = shell(*command, "--resume", "auto", "--json")
    assert (repeated.code, "finished already" in repeated.err) == (0, True), repeated.err
    assert json.loads(repeated.out)["metrics"] == json.loads(Path("out/biosqueeze.json").read_text())["metrics"]
    other = shell(*command, "--resume", "auto", "--seed", 1)
    assert (other.code, "exists already" in other.err) == (1, True), other.err


def test_a_finished_distillation_is_renamed(pico_bert: Path, tmp_path: Path, shell: Shell) -> None:
    Path("text").write_text("\n".join(pico.sentences(60)))
    command = ("distill", "--teacher", pico_bert, "--student", "distil", "--corpus", "text", *QUICK, "--out", "out")
    killed(*command, at=renames_to("out"), log=Path("log"))
    said = shell(*command, "--resume=auto")
    assert (said.code, "was finished by an earlier run" in said.err) == (0, True), said.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("progress.json", b"{"),
        ("progress.json", b"null"),
        ("progress.json", b'{"step": "two"}'),
        ("progress.json", "{}".encode("utf-16")),
        ("model.safetensors", b"x"),
        ("model.safetensors", None),
        ("optimizer.bin", b"x"),
        ("random_states_0.pkl", b"x"),
    ],
)
def test_a_damaged_state_is_explained(name: str, content: bytes | None, command: tuple, shell: Shell) -> None:
    killed(*command, at=renames_to("out.partial/state-00000004"), log=Path("log"))
    path = Path("out.partial/state-00000002", name)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    said = shell(*command, "--resume")
    assert said.code == 1, said.err
    assert "state-00000002" in said.err.splitlines()[-1]


def test_text_beside_another_corpus_json_is_hashed(tmp_path: Path) -> None:
    (tmp_path / "corpus.json").write_text("{}")
    hashes = set[str]()
    for text in ("one", "two"):
        (tmp_path / "a.txt").write_text(text)
        hashes.add(input_hash(tmp_path))
    assert len(hashes) == 2
