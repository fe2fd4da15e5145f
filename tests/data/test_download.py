"""Stores at gs://: copied once a host, what was altered fetched again, made whole or not at all. The bucket speaks
Google's JSON API on this machine (bucket.py); gcsfs asks it what it would ask Google."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fsspec.exceptions import FSTimeoutError
from kits.corpora import config_of, make_text
from kits.stores import make_store, random_documents

from bert_jax import cli
from bert_jax.data import download
from bert_jax.data import prepare as preparing
from bert_jax.data import store as stores
from bert_jax.errors import BadInput, Missing
from bert_jax.storage import checksums, remote

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
HttpError = pytest.importorskip("gcsfs.retry").HttpError
STORE = "gs://bucket/stores/one"
TOKENS = "stores/one/train/tokens.npy"


@pytest.fixture
def store(there, tmp_path):
    """A store in the bucket, and the local one it was made from."""
    made = make_store(tmp_path / "made", random_documents(50))
    there.copy(made.path, "stores/one")
    there.asked.clear()
    return made


def contents(place: Path) -> dict[str, bytes]:
    paths = [path for path in place.rglob("*") if path.is_file()]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}


def read(there) -> list[str]:
    """The files whose content was asked for since the last time, each once."""
    names = {name for method, name in there.asked if method == "READ" and name.endswith(".npy")}
    there.asked.clear()
    return sorted(name.removeprefix("stores/one/") for name in names)


def test_a_path_is_used_as_it_is(tmp_path):
    assert download.local(str(tmp_path)) == download.local(tmp_path) == tmp_path


def test_a_store_is_copied_once(there, store, monkeypatch):
    monkeypatch.setattr(remote, "PART", 1000)  # bytes: many parts a file
    place = download.local(STORE)
    assert contents(place) == contents(store.path)
    assert read(there) == sorted(name for name in contents(place) if name.endswith(".npy"))
    assert download.local(f"{STORE}/") == download.local(STORE, hashes=True) == place
    assert read(there) == []
    np.testing.assert_array_equal(
        stores.open_store(place, hashes=True).splits["train"].tokens, store.splits["train"].tokens
    )


def test_what_was_altered_is_fetched_again(there, store):
    place, name = download.local(STORE), "train/tokens.npy"
    read(there)
    data = bytearray((place / name).read_bytes())
    data[200] ^= 1
    (place / name).write_bytes(data)
    assert download.local(STORE) == place and read(there) == []  # sizes alone
    assert download.local(STORE, hashes=True) == place and read(there) == [name]
    (place / name).write_bytes(data[:-1])
    (place / "unigrams.npy").unlink()
    download.local(STORE)
    assert read(there) == [name, "unigrams.npy"]
    assert contents(place) == contents(store.path)


def test_another_store_at_the_address_is_another_copy(there, store, tmp_path):
    first = download.local(STORE)
    other = make_store(tmp_path / "other", random_documents(50, seed=1))
    for name in contents(other.path):
        there.put(f"stores/one/{name}", (other.path / name).read_bytes(), {})
    second = download.local(STORE)
    assert contents(first) == contents(store.path) and contents(second) == contents(other.path)


def test_what_is_altered_in_the_bucket_is_refused(there, store):
    there.flip(TOKENS)
    with pytest.raises(BadInput, match="^gs://bucket/stores/one/train/tokens.npy: altered"):
        download.local(STORE)
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*tokens*part"))


def test_nothing_is_written_outside_of_the_copy(there, store, tmp_path):
    manifest = json.loads(there.text("stores/one/manifest.json"))
    manifest["files"]["../../../escaped"] = {"bytes": 1, "sha256": "0"}
    manifest["digest"] = checksums.manifest_digest(manifest)
    there.put("stores/one/manifest.json", checksums.manifest_text(manifest).encode(), {})
    there.put("stores/escaped", b"x", {})
    with pytest.raises(BadInput, match="lies outside of the directory"):
        download.local(STORE)
    assert not list(tmp_path.rglob("escaped"))


COPY = f"from bert_jax.data import download; print(download.local({STORE!r}))"


def start(*variables: dict) -> list[subprocess.Popen]:
    command = [sys.executable, "-c", COPY]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return [subprocess.Popen(command, env=os.environ | more, **pipes) for more in variables]


def test_processes_of_a_host_copy_once(there, store):
    running = start({}, {})
    said = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert len({output for output, _ in said}) == 1
    assert sum("files of" in errors for _, errors in said) == 1
    assert there.asked.count(("READ", TOKENS)) == 1


def test_a_copy_that_was_killed_goes_on(there, store):
    """The process is killed while the last file comes; those before are not fetched again."""
    last = list(stores.read_manifest(store.path)["files"])[-1]

    def kill(method, name):
        if name.endswith(last) and running and running[0].poll() is None:
            running[0].kill()
            running[0].wait()
        return 0

    running, there.fault = [], kill
    running += start({})
    running[0].communicate(timeout=60)
    assert running[0].returncode == -9
    read(there)
    place = download.local(STORE)
    assert read(there) == [last] and contents(place) == contents(store.path)


def test_what_was_begun_takes_no_room(there, store, monkeypatch):
    """Neither what a kill has left, when the room is counted, nor what could not be read to its end."""
    place = download.local(STORE)
    (place / "train/tokens.npy").unlink()
    left = place / "train/.tokens.npy.part"
    left.write_text("")
    right = download.check_room

    def check(place, size):
        assert not left.exists()
        right(place, size)

    monkeypatch.setattr(download, "check_room", check)
    there.fault = lambda method, name: 403 * (method == "READ" and name == TOKENS)
    with pytest.raises(BadInput, match="Forbidden"):
        download.local(STORE)
    assert not list(place.rglob("*.part"))
    there.fault = lambda method, name: 0
    assert contents(download.local(STORE)) == contents(store.path)


def test_what_a_kill_has_left_where_a_store_is_to_be_made(there):
    there.put("stores/one/.writable", b"", {})
    download.check_free(STORE)
    assert not there.names()
    there.put("stores/one/notes", b"", {})
    with pytest.raises(BadInput, match="no token store, but notes is there"):
        download.check_free(STORE)


def test_a_bucket_that_stumbles_is_asked_again(there, store):
    tokens = "READ", TOKENS
    there.fault = lambda *what: 503 if what == tokens and there.asked.count(tokens) == 1 else 0
    assert contents(download.local(STORE)) == contents(store.path)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("gs://another/stores/one", 0, "gs://another/stores/one/manifest.json: not there"),
        ("gs://bucket/stores/two", 0, "gs://bucket/stores/two/manifest.json: not there"),
        (STORE, 403, f"{STORE}/manifest.json: OSError: Forbidden"),
        (STORE, 401, f"{STORE}/manifest.json: HttpError: .*401"),
        ("gs://", 0, "gs://: names no bucket"),
        ("nosuch://bucket/one", 0, "addresses nosuch:// cannot be read here"),
    ],
)
def test_a_bad_address_is_told_in_a_line(there, store, capsys, name, status, said):
    there.fault = lambda method, name: status
    assert cli.main(["verify", "--store", name]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("bert-jax: ") and errors.count("\n") == 1
    with pytest.raises(BadInput, match=said):
        download.local(name)


def test_out_of_reach_is_not_refused():
    """The next start may reach it; what has nothing to do with an address is let through."""
    for code, kind in ((503, Missing), (429, Missing), (401, BadInput)):
        for context in (remote.reached, remote.told):
            with pytest.raises(kind, match=f"^here: HttpError: late, {code}"), context("here"):
                raise HttpError({"code": code, "message": "late"})
    for context in (remote.reached, remote.told):
        with pytest.raises(Missing), context("here"):
            raise FSTimeoutError
    for error in (KeyError("x"), FileNotFoundError("x"), ValueError("x")):
        with pytest.raises(type(error)), remote.told("here"):
            raise error


def test_a_missing_extra_is_named():
    code = "import sys; sys.modules['gcsfs'] = None; from bert_jax.cli import main; "
    code += f"sys.exit(main(['verify', '--store', '{STORE}']))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    hint = "addresses gs:// cannot be read here: pip install 'bert_jax[gcs]'"
    assert (process.returncode, process.stderr) == (2, f"bert-jax: {STORE}: {hint}\n")


def test_a_store_is_made_at_an_address(there, tmp_path):
    """Bit for bit the one that is made here, its manifest last, and this host's copy at once."""
    made = config_of(tmp_path, make_text(100))
    preparing.prepare(made)
    config = config_of(tmp_path, make_text(100), f"store={STORE}")
    log = []
    preparing.prepare(config, log.append)
    names = {name.removeprefix("stores/one/") for name in there.names()}
    assert {name: there.objects[f"stores/one/{name}"].data for name in names} == contents(
        Path(made.store)
    )
    last = max(there.objects, key=lambda name: there.objects[name].generation)
    assert last == "stores/one/manifest.json"
    there.asked.clear()
    assert preparing.open_or_refuse(config).path == download.local(STORE)
    assert preparing.prepare(config, log.append) and "already prepared" in log[-1]
    assert read(there) == []


def test_a_store_that_could_not_be_copied_is_copied_by_the_next_start(there, tmp_path):
    config, log = config_of(tmp_path, make_text(100), f"store={STORE}"), []
    put = there.put

    def refuse(name, data, condition):
        if name.endswith("unigrams.npy"):
            raise bucket.Refused(403)
        return put(name, data, condition)

    there.put = refuse
    with pytest.raises(BadInput, match=f"^config.store={STORE}: OSError: Forbidden"):
        preparing.prepare(config, log.append)
    assert not download.is_there(STORE)
    there.put = put
    preparing.prepare(config, log.append)
    assert sum("vocabulary:" in line for line in log) == 2  # the first start's two lines
    stores.open_store(download.local(STORE), hashes=True)


def test_something_else_at_the_address_is_refused(there, tmp_path):
    there.put("stores/one/thesis.tex", b"", {})
    config = config_of(tmp_path, make_text(20), f"store={STORE}")
    with pytest.raises(BadInput, match=f"config.store={STORE}: no token store, but thesis.tex is"):
        preparing.prepare(config)
    assert there.names() == ["stores/one/thesis.tex"]
