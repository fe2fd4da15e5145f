"""Whatever happens to a store is named, by the file; and nothing is named in a sound one."""

import json
import shutil

import numpy as np
import pytest
from kits.damage import DAMAGES, make_manifest, names
from kits.doors import refused
from kits.saved_world import rewrite
from kits.small import small_config, write_corpus

from bert_jax.cli import main
from bert_jax.commands.verify_store import describe, verify
from bert_jax.data import integrity, prepare, row_index, sentence_pairs
from bert_jax.data import store as stores


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory):
    """A store made by prepare, with cached rows beside it."""
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=400)
    keys = f"corpus.source={directory}/corpus.txt", f"store={directory}/store"
    prepare.prepare(small_config(*keys), lambda line: None)
    store = stores.open_store(directory / "store")
    indexes = row_index.of_pairs(store, "train", sentence_pairs.Rules(1, 0, 32, "nsp", 0.1))
    indexes.open(0)
    indexes.rows_per_epoch()
    return store.path


@pytest.fixture
def store(sound_store, tmp_path):
    return shutil.copytree(sound_store, tmp_path / "store")


def found(store) -> list[str]:
    """The lines of problems."""
    values = verify(store, print)
    lines = describe(values)
    assert values["sound"] == (not values["problems"]) and all("\n" not in line for line in lines)
    return lines[: len(values["problems"])]


def files(lines) -> list[str]:
    return [line.partition(": ")[0] for line in lines]


def test_a_sound_store_and_a_lost_file(store, capsys):
    assert found(store) == []
    assert main(["verify", "--store", str(store)]) == 0
    (store / "unigrams.npy").unlink()
    capsys.readouterr()
    assert main(["verify", "--store", str(store), "--json", "-"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert not values["sound"]
    assert values["problems"] == [{"file": "unigrams.npy", "problem": "missing"}]


@pytest.mark.parametrize(
    "number", [*range(14), *(pytest.param(n, marks=pytest.mark.full) for n in range(14, 50))]
)
def test_random_damages(store, number):
    draw, damage = np.random.default_rng(number), DAMAGES[number % len(DAMAGES)]
    before = {name: (store / name).read_bytes() for name in names(store)}
    damaged = damage(store, draw)
    assert before != {name: (store / name).read_bytes() for name in names(store)}
    lines = found(store)
    for name in damaged:
        assert any(name in line for line in lines), lines
    if "make_manifest" not in damage.__name__:
        # And no file is accused that nothing happened to. What arrays say of each other names one of the two.
        words = "SHA-256", "bytes, ", "missing from", "surplus"
        accused = {line.partition(": ")[0] for line in lines if any(w in line for w in words)}
        assert accused <= set(damaged), lines


# --- What a manifest made anew does not hide ------------------------------------------------------


def put(place, value):
    def edit(array):
        array[place] = value
        return array

    return edit


@pytest.mark.parametrize("part", [16, 1 << 22])
@pytest.mark.parametrize(
    "name, edit, detail",
    [
        ("train/tokens.npy", put(7, 60000), "at 7"),
        ("heldout/tokens.npy", put(7, 4), "[MASK]"),
        ("train/tokens.npy", lambda array: array.astype(np.int64), "int64"),
        ("train/tokens.npy", lambda array: array[:0], "shape (0,)"),
        ("train/sentence_ends.npy", put(16, 0), "number 16"),
        ("train/document_ends.npy", lambda array: array[:-1], "train/sentence_ends.npy"),
        ("unigrams.npy", put((..., 9), 12345), "piece 9: 12345"),
        ("unigrams.npy", lambda array: array.reshape(-1)[:-1], "pieces"),
    ],
)
def test_content_is_checked_whatever_the_manifest_says(
    store, monkeypatch, name, edit, detail, part
):
    """In one part or in many, at whose borders damage is found as well."""
    monkeypatch.setattr(integrity, "PART", part)
    assert found(store) == []
    np.save(store / name, edit(np.load(store / name)))
    make_manifest(store)
    lines = found(store)
    assert any(line.startswith(f"{name}: ") and detail in line for line in lines), lines
    assert not any("SHA-256" in line for line in lines)


@pytest.mark.parametrize("part", [16, 1 << 22])
def test_heldout_documents_that_are_trained_on(store, monkeypatch, part):
    """A training document, the fifth, becomes the first held-out one."""
    monkeypatch.setattr(integrity, "PART", part)
    tokens, ends, documents = stores.open_store(store).splits["train"][1:4]
    first, last = documents[3], documents[4]
    start, end = ends[first - 1], ends[last - 1]
    one = tokens[start:end], ends[first:last] - start, [last - first]
    others = [np.load(store / f"heldout/{array}.npy") for array in stores.ARRAYS]
    for name, mine, theirs, shift in zip(
        stores.ARRAYS, one, others, (0, end - start, last - first), strict=True
    ):
        theirs = (theirs + shift).astype(theirs.dtype)
        np.save(store / f"heldout/{name}.npy", np.concatenate([mine, theirs]))
    make_manifest(store)
    lines = [line for line in found(store) if line.startswith("heldout/tokens.npy: 1 ")]
    assert lines and "number 0" in lines[0] and "number 4" in lines[0]


# --- The manifest, cached rows ----------------------------------------------------------------------


def test_manifests_that_are_not_as_they_were(store):
    path = store / "manifest.json"
    for text in ("{", "[]", "\xed\xa0\x80", path.read_text() + "\n"):
        path.write_text(text, "latin-1")
        assert files(found(store)) == ["manifest.json"]
    rewrite(store, {"format": 1})
    assert files(found(store))[0] == "manifest.json"


def test_cached_rows_are_named_and_no_fault_of_the_store(store):
    path = next((store / "index").glob("*.npy"))
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes([255] * 8) + content[1008:])
    assert verify(store, print)["rebuilt"] == [f"index/{path.name}"]
    path.write_bytes(content[:-8])
    next((store / "index").glob("*.json")).write_text("{")
    values = verify(store, print)
    assert values["sound"] and len(values["rebuilt"]) == 2


def test_what_is_no_store(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / ("x" * 300)):
        assert str(path) in refused("verify", "--store", path)
