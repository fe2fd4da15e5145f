"""`export --push`: a stand-in for the hub receives every file bit for bit; its refusals name the way out."""

import base64
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kits.processes import environment
from kits.runs import make_run

TOKEN = "hf_secret"


class Hub(BaseHTTPRequestHandler):
    """The requests of an upload. Files arrive in the lines of a commit, in base64."""

    def do_POST(self):
        self.server.tokens.add(self.headers["Authorization"])
        data = self.body()
        if self.server.refuses:
            return self.answer({"error": "no write access"}, 403)
        if self.path == "/api/repos/create":
            name = json.loads(data)
            assert name["visibility"] == "private"
            return self.answer(
                {"url": f"{self.server.address}/{name['organization']}/{name['name']}"}
            )
        if "/preupload/" in self.path:
            files = [entry["path"] for entry in json.loads(data)["files"]]
            modes = [
                {"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in files
            ]
            return self.answer({"files": modes})
        if "/commit/" in self.path:
            for line in data.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.server.files[entry["value"]["path"]] = content
            return self.answer(
                {"commitUrl": f"{self.server.address}/a/b/commit/1", "commitOid": "1"}
            )
        self.answer({"errors": [], "warnings": []})  # of /api/validate-yaml

    def do_GET(self):
        self.answer({"id": "a/b", "sha": "0", "siblings": []})

    def body(self) -> bytes:
        if self.headers["Transfer-Encoding"] != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, values: dict, code: int = 200) -> None:
        data = json.dumps(values).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    with ThreadingHTTPServer(("localhost", 0), Hub) as server:
        server.address = f"http://localhost:{server.server_port}"
        server.files, server.tokens, server.refuses = {}, set(), False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def push(directory, address: str) -> subprocess.CompletedProcess:
    make_run(directory / "run")
    paths = ["--model", directory / "run", "--output", directory / "out", "--push", "owner/name"]
    variables = {"HF_ENDPOINT": address, "HF_TOKEN": TOKEN, "HF_HOME": str(directory / "home")}
    variables |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DEBUG": ""}
    command = [sys.executable, "-m", "bert_jax", "export", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(1, **variables))
    assert TOKEN not in done.stdout + done.stderr
    return done


def test_every_file_arrives(hub, tmp_path):
    done = push(tmp_path, hub.address)
    assert done.returncode == 0, done.stderr
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert "model.safetensors" in hub.files and hub.tokens == {f"Bearer {TOKEN}"}
    card = (tmp_path / "out/README.md").read_text()
    assert "model='owner/name')" in card and f"hf upload owner/name {tmp_path}" not in card
    assert re.search(r"hf upload owner/name \S+ \.", card)
    assert done.stdout.rstrip().endswith(f"pushed to {hub.address}/owner/name")


def test_a_refusal_is_one_line_and_keeps_the_export(hub, tmp_path):
    hub.refuses = True
    done = push(tmp_path, hub.address)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "--push owner/name: " in done.stderr and "403" in done.stderr
    assert f"hf upload --private owner/name {tmp_path}/out" in done.stderr
    assert (tmp_path / "out/model.safetensors").is_file() and not hub.files
