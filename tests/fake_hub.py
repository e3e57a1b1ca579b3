"""A Hugging Face Hub that this process serves, for uploads."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class FakeHub(ThreadingHTTPServer):
    """Repositories in memory: what was committed, and the objects that were stored apart.

    Args:
        folder: where the files of the last commit are written too.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._folder = folder
        self.answer: tuple[object, int] | None = None  # to everything
        self.created: dict = {}
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables with which huggingface_hub uses this server."""
        return {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": self.url, "HF_TOKEN": "t", "HF_HUB_DISABLE_XET": "1"}

    def show(self) -> None:
        """Write the files that were committed to the folder."""
        for name, content in self.files.items() if self._folder else ():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_bytes(content)


@contextmanager
def running_hub(folder: Path | None = None) -> Iterator[FakeHub]:
    """Serve a Hub in a thread."""
    with FakeHub(folder) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


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

    def do_GET(self) -> None:
        if "/tree/" in self.path:
            self.reply([{"type": "file", "path": name, "size": 1, "oid": "0"} for name in self.server.files])
        else:
            self.reply({"error": "not found"}, 404)

    def do_PUT(self) -> None:
        data = self.body()
        self.server.objects[hashlib.sha256(data).hexdigest()] = data
        self.reply({})

    def do_POST(self) -> None:
        hub, path, data = self.server, self.path.partition("?")[0], self.body()
        if hub.answer is not None:
            self.reply(*hub.answer)
        elif "wrong" in self.headers.get("Authorization", ""):
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
            elif line["key"] == "deletedFile":
                del self.server.files[value["path"]]
        self.server.show()
        self.reply({"success": True, "commitOid": "0" * 40, "commitUrl": f"{self.server.url}/me/x/commit/0"})
