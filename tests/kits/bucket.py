"""An emulated Google Cloud Storage bucket on this machine: the part of its JSON API that gcsfs and TensorStore use.

The variables of `bucket.environment()` direct both to it."""

import base64
import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # as in remote.py
import gcsfs  # noqa: E402, F401
import pytest
from etils.epath import backend, gpath

NAME = "bucket"
OBJECT = re.compile(r"/(?:download/)?storage/v1/b/([^/]+)/o/([^/]+)")
LISTING = re.compile(r"/storage/v1/b/([^/]+)/o/?")
UPLOAD = re.compile(r"/(?:resumable/)?upload/storage/v1/b/([^/]+)/o/?")
MOVE = re.compile(r"/storage/v1/b/[^/]+/o/([^/]+)/moveTo/o/([^/]+)")
ANY = re.compile(r"/storage/v1/b/([^/]+)/?")


class Object(NamedTuple):
    data: bytes
    generation: int


class Refused(Exception):
    """An error response. Argument: the HTTP status."""


class Bucket:
    """An emulated bucket, served until the process ends. Tests may read and damage its `objects`.

    requests: [(method, object or prefix)]; the method of a download is READ. fault: (method, name) -> the HTTP status
    of an error to respond with, or 0; it may also delay the request.
    """

    def __init__(self):
        self.objects: dict[str, Object] = {}
        self.lock = threading.RLock()
        self.generation = 0
        self.requests = []
        self.fault = lambda method, name: 0
        self.uploads = {}  # resumable ones: {id: (name, condition)}
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.bucket = self
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def environment(self) -> dict[str, str]:
        """Returns the variables with which a process reaches this bucket as gs://bucket."""
        return {"STORAGE_EMULATOR_HOST": self.url, "TENSORSTORE_GCS_HTTP_URL": self.url}

    def text(self, name: str) -> str:
        return self.objects[name].data.decode()

    def names(self, prefix: str = "") -> list[str]:
        with self.lock:
            return sorted(name for name in self.objects if name.startswith(prefix))

    def flip(self, name: str) -> None:
        """Changes a byte in the middle of an object."""
        data = bytearray(self.objects[name].data)
        data[len(data) // 2] ^= 1
        self.put(name, bytes(data), {})

    def put(self, name: str, data: bytes, condition: dict) -> dict:
        with self.lock:
            self.check(name, condition)
            self.generation += 1
            self.objects[name] = Object(data, self.generation)
            return self.metadata(name)

    def move(self, name: str, new_name: str, condition: dict) -> dict:
        """Renames an object before the client is answered, who may list the bucket at once."""
        with self.lock:
            metadata = self.put(new_name, self.get(name, {}).data, condition)
            del self.objects[name]
            return metadata

    def copy(self, directory: Path, prefix: str) -> None:
        """Uploads all files of a directory."""
        for path in directory.rglob("*"):
            if path.is_file():
                name = path.relative_to(directory).as_posix()
                self.put(f"{prefix}/{name}", path.read_bytes(), {})

    def get(self, name: str, condition: dict) -> Object:
        with self.lock:
            if name not in self.objects:
                raise Refused(404)
            self.check(name, condition)
            return self.objects[name]

    def check(self, name: str, condition: dict) -> None:
        """Raises Refused if a condition on an object's generation does not hold; generation 0: no such object."""
        generation = self.objects[name].generation if name in self.objects else 0
        if int(condition.get("ifGenerationMatch", generation)) != generation:
            raise Refused(412)

    def metadata(self, name: str) -> dict:
        data, generation = self.objects[name]
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        return {
            "name": name,
            "bucket": NAME,
            "size": str(len(data)),
            "generation": str(generation),
            "md5Hash": md5,
            "updated": "2026-01-01T00:00:00.000Z",
            "timeCreated": "2026-01-01T00:00:00.000Z",
        }

    def listing(self, query: dict) -> dict:
        """Returns a listing, all in one page."""
        prefix = query.get("prefix", "")
        mark = query.get("delimiter") or "\0"
        items = []
        prefixes = set()
        with self.lock:
            for name in self.names(prefix):
                folder, is_below, _ = name[len(prefix) :].partition(mark)
                if is_below:
                    prefixes.add(prefix + folder + mark)
                else:
                    items.append(self.metadata(name))
        return {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_) -> None:
        pass  # the client has disconnected


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(address.query).items()}
        bucket = self.server.bucket
        match = OBJECT.fullmatch(address.path)
        name = unquote(match[2]) if match else query.get("name") or query.get("prefix", "")
        method = "READ" if query.get("alt") == "media" else self.command
        bucket.requests.append((method, name))
        try:
            if status := bucket.fault(method, name):
                raise Refused(status)
            self.route(address.path, query, body)
        except Refused as refused:
            status = refused.args[0]
            error = {"error": {"code": status, "message": f"emulated status {status}"}}
            self.answer(json.dumps(error).encode(), status)

    do_GET = do_POST = do_PUT = do_DELETE = do

    def route(self, path: str, query: dict, body: bytes) -> None:
        bucket = self.server.bucket
        named = re.search(r"/b/([^/]+)", path)
        if not named or unquote(named[1]) != NAME:
            raise Refused(404)
        if UPLOAD.fullmatch(path):
            self.upload(query, body)
        elif match := MOVE.fullmatch(path):
            self.json(bucket.move(unquote(match[1]), unquote(match[2]), query))
        elif match := OBJECT.fullmatch(path):
            self.object(unquote(match[2]), query)
        elif LISTING.fullmatch(path):
            self.json(bucket.listing(query))
        elif ANY.fullmatch(path):
            self.json({"kind": "storage#bucket", "name": NAME, "location": "US"})
        else:
            raise Refused(404)

    def object(self, name: str, query: dict) -> None:
        bucket = self.server.bucket
        with bucket.lock:
            stored = bucket.get(name, query)
            if self.command == "DELETE":
                del bucket.objects[name]
        if self.command == "DELETE":
            self.answer(b"", 204)
        elif query.get("alt") == "media":
            self.media(stored)
        else:
            self.json(bucket.metadata(name))

    def media(self, stored: Object) -> None:
        size = len(stored.data)
        headers = {"x-goog-generation": str(stored.generation)}
        requested = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not requested:
            self.answer(stored.data, 200, headers)
            return
        first = int(requested[1]) if requested[1] else max(0, size - int(requested[2]))
        last = min(int(requested[2]), size - 1) if requested[1] and requested[2] else size - 1
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self.answer(stored.data[first : last + 1], 206, headers)

    def upload(self, query: dict, body: bytes) -> None:
        bucket = self.server.bucket
        if "upload_id" in query:
            # The files of tests are small: each is uploaded in one part.
            name, condition = bucket.uploads[query["upload_id"]]
            self.json(bucket.put(name, body, condition))
        elif query["uploadType"] == "resumable":
            number = str(len(bucket.uploads))
            bucket.uploads[number] = query.get("name") or json.loads(body)["name"], query
            url = f"{bucket.url}/upload/storage/v1/b/{NAME}/o?upload_id={number}"
            self.answer(b"{}", 200, {"Location": url})
        elif query["uploadType"] == "media":  # by TensorStore
            self.json(bucket.put(query["name"], body, query))
        else:
            metadata, data = parts(self.headers["Content-Type"], body)
            self.json(bucket.put(metadata["name"], data, query))

    def json(self, values: dict) -> None:
        self.answer(json.dumps(values).encode(), 200, {"Content-Type": "application/json"})

    def answer(self, data: bytes, status: int, headers: dict | None = None) -> None:
        with contextlib.suppress(ConnectionError):  # the client may have been killed
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            if status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_) -> None:
        pass


def parts(content_type: str, body: bytes) -> tuple[dict, bytes]:
    """Returns the metadata and the data of a multipart upload."""
    mark = b"--" + re.search(r'boundary="?([^";]+)', content_type)[1].encode()
    _, first, second, _ = re.split(rb"\r?\n?" + re.escape(mark) + rb"(?:--)?\r?\n?", body)
    values, data = (re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1] for part in (first, second))
    return json.loads(values), data


@pytest.fixture
def gcs(tmp_path, monkeypatch):
    """An empty Bucket, which this process and its children reach as gs://bucket.

    Local copies of stores are in tmp_path/cache, those of runs in tmp_path/tmp; asserts that the latter were
    deleted.
    """
    bucket = of_process()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for key, value in bucket.environment().items():
        monkeypatch.setenv(key, value)
    # Another test may have made epath cache this before the variable was set.
    monkeypatch.setenv("EPATH_USE_TF", "false")
    gpath._is_tf_installed.cache_clear()
    forget()
    yield bucket
    forget()
    bucket.fault = lambda method, name: 0
    bucket.objects.clear()
    bucket.requests.clear()
    assert not list((tmp_path / "tmp").glob("bert_jax-*"))


def forget() -> None:
    """Makes epath open a new file system, with the timeouts of this test."""
    backend.fsspec_backend._get_filesystem.cache_clear()


@functools.cache
def of_process() -> Bucket:
    """Returns the one Bucket for all tests of this process: libraries cache its URL."""
    return Bucket()
