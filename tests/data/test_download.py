"""Stores at gs:// are downloaded once per host, and altered files again. The bucket is a local server of Google's JSON
API (kits/bucket.py), which gcsfs uses like the real one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from kits.corpora import config_of, files, make_text, read_sources
from kits.damage import flip_bit
from kits.malformed_inputs import refused
from kits.mds import array, encode_shard, write
from kits.stores import make_store, random_documents
from kits.vocabularies import LLM_JP, write_bpe_files, write_named

from bert_jax import config
from bert_jax.data import download
from bert_jax.data.preparation import corpus
from bert_jax.data.preparation import prepare as preparing
from bert_jax.data.vocabulary import tokenizer_from_file
from bert_jax.errors import BadInput
from bert_jax.storage import checksums
from bert_jax.tokenizers import tokenizer as tokenizers

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
gcs = bucket.gcs
STORE = "gs://bucket/stores/one"
TOKENS = "stores/one/train/tokens.npy"


@pytest.fixture
def store(gcs, tmp_path):
    """A store in the bucket; returns the local store that it is a copy of."""
    made = make_store(tmp_path / "made", random_documents(50))
    gcs.copy(made.path, "stores/one")
    gcs.requests.clear()
    return made


def names_read(gcs) -> list[str]:
    """Returns the names of the .npy files read from the bucket since the last call."""
    names = {name for method, name in gcs.requests if method == "READ" and name.endswith(".npy")}
    gcs.requests.clear()
    return sorted(name.removeprefix("stores/one/") for name in names)


def test_a_store_is_downloaded_once(gcs, store):
    copy = download.local(STORE)
    assert files(copy) == files(store.path)
    assert names_read(gcs) == sorted(name for name in files(copy) if name.endswith(".npy"))
    assert download.local(f"{STORE}/") == download.local(STORE, hashes=True) == copy
    assert names_read(gcs) == []


def test_altered_files_are_downloaded_again(gcs, store):
    copy, name = download.local(STORE), "train/tokens.npy"
    names_read(gcs)
    flip_bit(copy / name, 200)
    assert download.local(STORE) == copy and names_read(gcs) == []  # compares sizes only
    assert download.local(STORE, hashes=True) == copy and names_read(gcs) == [name]
    os.truncate(copy / name, 200)
    (copy / "unigrams.npy").unlink()
    (copy / "train/.tokens.npy.part").write_text("left by a killed process")
    download.local(STORE)
    assert names_read(gcs) == [name, "unigrams.npy"]
    assert files(copy) == files(store.path)


def test_files_altered_in_the_bucket_are_refused(gcs, store):
    gcs.flip(TOKENS)
    with pytest.raises(BadInput, match=f"gs://bucket/{TOKENS}"):
        download.local(STORE)
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("train/*tokens*"))


def test_no_file_is_written_outside_of_the_copy(gcs, store, tmp_path):
    manifest = json.loads(gcs.text("stores/one/manifest.json"))
    manifest["files"]["../../../escaped"] = {"bytes": 1, "sha256": "0"}
    text = json.dumps(checksums.sealed(manifest))
    gcs.put("stores/one/manifest.json", text.encode(), {})
    gcs.put("stores/escaped", b"x", {})
    with pytest.raises(BadInput, match="escaped"):
        download.local(STORE)
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.slow
def test_processes_of_a_host_download_once(gcs, store):
    code = f"from bert_jax.data import download; print(download.local({STORE!r}))"
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]
    printed = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0], printed
    assert len({output for output, _ in printed}) == 1
    assert gcs.requests.count(("READ", TOKENS)) == 1


@pytest.mark.parametrize(
    ("name", "status"),
    [("gs://another/stores/one", 0), (STORE, 403), ("gs://", 0), ("nosuch://bucket/one", 0)],
)
def test_a_bad_address_is_an_error_of_one_line(gcs, store, name, status):
    gcs.fault = lambda method, name: status
    assert name in refused("verify", "--store", name)


def test_a_missing_extra_is_named(monkeypatch):
    def without_gcsfs(address):
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(fsspec.core, "url_to_fs", without_gcsfs)
    with pytest.raises(BadInput, match=rf"{STORE}.*\[gcs\]"):
        download.local(STORE)


def test_no_store_is_built_at_an_address(gcs, tmp_path):
    with pytest.raises(BadInput, match=f"config.store='{STORE}"):
        preparing.prepare(config_of(tmp_path, make_text(20), f"store={STORE}"))
    assert gcs.names() == []


def test_a_vocabulary_in_a_bucket_equals_the_local_file(gcs, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    gcs.put("vocab.txt", path.read_bytes(), {})
    one, other, none = (
        config.load("demo", [f"tokenizer.path={name}"])
        for name in (path, "gs://bucket/vocab.txt", "gs://bucket/none.txt")
    )
    assert tokenizer_from_file(one).fingerprint == tokenizer_from_file(other).fingerprint
    with pytest.raises(BadInput, match="gs://bucket/none.txt"):
        tokenizer_from_file(none)


def test_the_settings_of_a_vocabulary_are_downloaded(gcs, tmp_path):
    """Those of transformers and those of a run, which name special tokens."""
    directory = write_named(tmp_path / "model")
    tokenizers.from_file(directory, True).save(tmp_path / "saved")
    for name in ("model", "saved"):
        for path in (tmp_path / name).iterdir():
            gcs.put(f"{name}/{path.name}", path.read_bytes(), {})
        file = f"{name}/tokenizer.json"
        local, remote = (
            tokenizer_from_file(config.load("base", [f"tokenizer.path={place}/{file}"]))
            for place in (tmp_path, "gs://bucket")
        )
        assert local.spellings["cls"] == LLM_JP["cls"]
        assert local.fingerprint == remote.fingerprint


def test_the_tokenizer_of_tokens_in_shards_is_downloaded(gcs, tmp_path):
    tokenizer = tokenizers.train("bytes", (), 0, False)
    tokenizer.save(tmp_path / "saved")
    for path in (tmp_path / "saved").iterdir():
        gcs.put(f"saved/{path.name}", path.read_bytes(), {})
    samples = [[array(tokenizer.encode(["It was."])[0], "uint16")]]
    shard = encode_shard({"input_ids": ("ndarray:uint16", None)}, samples)
    keys = f"corpus.source={write(tmp_path / 'data', shard)}", "corpus.format=mds"
    keys += "corpus.field=input_ids", "tokenizer.path=gs://bucket/saved/tokenizer.json"
    assert read_sources(corpus.open_sources(config_of(tmp_path, [], *keys)))[0] == [["It was."]]


def test_two_files_of_a_vocabulary_are_downloaded(gcs, tmp_path):
    names = ("vocab.json", "merges.txt")
    directory = write_bpe_files(tmp_path, names, is_gpt=True)
    keys = ["tokenizer.add_special=True", "task.masking=token"]
    local = tokenizer_from_file(config.load("demo", [f"tokenizer.path={directory}", *keys]))
    remote = config.load("demo", ["tokenizer.path=gs://bucket/gpt/vocab.json", *keys])
    gcs.put("gpt/vocab.json", (directory / "vocab.json").read_bytes(), {})
    with pytest.raises(BadInput, match="gs://bucket/gpt/vocab.json: .*merges.txt"):
        tokenizer_from_file(remote)
    gcs.put("gpt/merges.txt", (directory / "merges.txt").read_bytes(), {})
    assert tokenizer_from_file(remote).fingerprint == local.fingerprint
    remote.task.masking = "whole_word"
    with pytest.raises(BadInput, match="config.task.masking='whole_word'.*vocab.json"):
        tokenizer_from_file(remote)
