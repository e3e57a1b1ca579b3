"""Upload to a Hub that this process serves: what is sent, what is left out, and what goes wrong."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from biosqueeze import card, manifest
from tests.cli.run import Shell
from tests.manifests import write_manifest


class FakeHub(ThreadingHTTPServer):
    """Repositories in memory: what was committed, and the objects that were stored apart."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.created: dict = {}
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_words: object) -> None:
        """Print nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, value: object, code: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self) -> None:
        data = self.body()
        self.server.objects[hashlib.sha256(data).hexdigest()] = data
        self.reply({})

    def do_POST(self) -> None:
        hub, path, data = self.server, self.path.partition("?")[0], self.body()
        if "wrong" in self.headers.get("Authorization", ""):
            self.reply({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            hub.created = json.loads(data)
            self.reply({"url": f"{hub.url}/{hub.created.get('organization') or 'me'}/{hub.created['name']}"})
        elif "/preupload/" in path:
            modes = [
                {"path": f["path"], "uploadMode": "lfs" if "safetensors" in f["path"] else "regular"}
                for f in json.loads(data)["files"]
            ]
            self.reply({"files": [{**mode, "shouldIgnore": False} for mode in modes]})
        elif path.endswith("/objects/batch"):
            objects = json.loads(data)["objects"]
            actions = {"upload": {"href": f"{hub.url}/store"}}
            self.reply({"transfer": "basic", "objects": [{**each, "actions": actions} for each in objects]})
        elif "/commit/" in path:
            self.commit([json.loads(line) for line in data.splitlines()])
        else:
            self.reply({"success": True})

    def commit(self, lines: list[dict]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.objects[value["oid"]]
        self.reply({"success": True, "commitOid": "0" * 40, "commitUrl": f"{self.server.url}/me/x/commit/0"})


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


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
    for name in ("metrics.jsonl", "report.html", "train.log", ".hidden", ".lock"):
        (path / name).write_text("x")
    return path


def push(hub: FakeHub, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own: the library reads its variables when it is imported."""
    settings = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url, "HF_TOKEN": "t", "HF_HUB_DISABLE_XET": "1", **variables}
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


@pytest.mark.parametrize("repo", ["a/b/c", "../x", "me/", "a b", ""])
def test_a_repository_needs_a_valid_name(repo: str, shell: Shell, checkpoint: Path) -> None:
    said = shell("push", checkpoint, repo, "--dry-run")
    assert said.code == 2
    assert "cannot name a repository" in said.err
