"""Upload to a Hub that this process serves: what is sent, what is left out, and what goes wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from biosqueeze import card, manifest
from tests.cli.run import Shell
from tests.fake_hub import FakeHub, running_hub
from tests.manifests import write_manifest


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running_hub() as server:
        yield server


@pytest.fixture
def checkpoint(pico_ner: Path, copy_of: Callable[[Path], Path]) -> Path:
    """A checkpoint with a card, results, and what is not for publication."""
    path = copy_of(pico_ner)
    write_manifest(path, head="token-classification")
    written = manifest.read_manifest(path)
    assert written is not None
    (path / "README.md").write_text(card.render(path.name, written, path))
    for name in ("results", "runs", "state-5", "old.partial"):
        (path / name).mkdir()
        (path / name / "x.json").write_text("{}")
    for name in ("metrics.jsonl", "report.html", "train.log", ".hidden", ".lock", "optimizer.pt", "rng_state_0.pth"):
        (path / name).write_text("x")
    return path


def push(hub: FakeHub, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own: the library reads its variables when it is imported."""
    settings = {**hub.settings, **variables}
    command = [sys.executable, "-m", "biosqueeze", "push", *map(str, words)]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)


def test_a_checkpoint_is_uploaded(hub: FakeHub, checkpoint: Path) -> None:
    done = push(hub, checkpoint, "me/tagger", "--private")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{checkpoint}\n"
    assert f"{hub.url}/me/tagger" in done.stderr
    assert (hub.created["name"], hub.created["organization"]) == ("tagger", "me")
    assert "private" in (hub.created.get("visibility"), *(name for name, value in hub.created.items() if value is True))
    unchanged = {"biosqueeze.json", "config.json", "model.safetensors", "results/x.json", "tokenizer.json"}
    assert set(hub.files) == {*unchanged, "README.md", "tokenizer_config.json"}
    for name in unchanged:
        assert hub.files[name] == (checkpoint / name).read_bytes()
    assert 'model="me/tagger"' in hub.files["README.md"].decode()
    assert f'model="{checkpoint.name}"' in (checkpoint / "README.md").read_text()


def test_weights_and_graphs_of_an_earlier_upload_are_deleted(hub: FakeHub, checkpoint: Path) -> None:
    kept = {"LICENSE", "model_notes.txt", "samples/model.safetensors", ".gitattributes"}
    deleted = {"onnx/model_quantized.onnx", "generator/config.json", "model-00001-of-00002.safetensors"}
    deleted |= {"model.safetensors.index.json", "pytorch_model.bin"}
    hub.files.update(dict.fromkeys((*kept, *deleted, "model.safetensors"), b"old"))
    done = push(hub, checkpoint, "me/tagger")
    assert done.returncode == 0, done.stderr
    assert kept <= set(hub.files) and not deleted & set(hub.files)
    assert all(name in done.stderr for name in deleted)
    assert hub.files["model.safetensors"] == (checkpoint / "model.safetensors").read_bytes()


def test_a_name_alone_is_the_users_own(hub: FakeHub, checkpoint: Path) -> None:
    done = push(hub, checkpoint, "tagger", "--json")
    assert json.loads(done.stdout)["repo"] == "me/tagger"
    assert 'model="me/tagger"' in hub.files["README.md"].decode()


def test_a_refused_token_and_no_server_are_explained(hub: FakeHub, checkpoint: Path) -> None:
    done = push(hub, checkpoint, "me/tagger", HF_TOKEN="wrong")
    assert done.returncode == 1
    assert "error: the Hub refused the upload to me/tagger (" in done.stderr
    assert "hf auth whoami" in done.stderr
    done = push(hub, checkpoint, "me/tagger", HF_ENDPOINT="http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the upload to me/tagger failed (" in done.stderr
    assert hub.files == {}


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (({}, 200), "HF_ENDPOINT"),
        (([], 200), "HF_ENDPOINT"),
        (({"url": 5}, 200), "HF_ENDPOINT"),
        (({"error": "busy"}, 503), "later"),
    ],
)
def test_a_server_that_is_no_hub_is_explained(
    hub: FakeHub, checkpoint: Path, answer: tuple[object, int], remedy: str
) -> None:
    hub.answer = answer
    done = push(hub, checkpoint, "me/tagger")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert remedy in done.stderr.splitlines()[-1]


def test_without_a_token_the_way_to_one_is_named(
    shell: Shell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    said = shell("push", checkpoint, "me/tagger")
    assert said.code == 1
    assert "`hf auth login`, or set HF_TOKEN" in said.err


def test_a_plan_lists_files_and_sizes(shell: Shell, checkpoint: Path) -> None:
    said = shell("push", checkpoint, "me/tagger", "--dry-run")
    assert said.code == 0
    size = (checkpoint / "model.safetensors").stat().st_size
    assert f"model.safetensors  {size:,} bytes" in said.err
    assert "upload 7 files to me/tagger, a public repository if it is new" in said.err
    assert "metrics.jsonl" not in said.err


def test_a_plan_lists_the_generator_of_a_discriminator(shell: Shell, checkpoint: Path) -> None:
    (checkpoint / "generator").mkdir()
    (checkpoint / "generator" / "model.safetensors").write_text("x")
    assert "generator/model.safetensors  1 bytes" in shell("push", checkpoint, "me/tagger", "--dry-run").err


@pytest.mark.parametrize("repo", ["a/b/c", "../x", "me/", "a b", ""])
def test_a_repository_needs_a_valid_name(repo: str, shell: Shell, checkpoint: Path) -> None:
    said = shell("push", checkpoint, repo, "--dry-run")
    assert said.code == 2
    assert "cannot name a repository" in said.err
