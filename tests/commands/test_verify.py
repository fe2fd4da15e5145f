"""Whatever happens to a store is named, by the file; and nothing is named in a sound one."""

import json
import shutil

import numpy as np
import pytest
from kits.damage import DAMAGES, exchange, make_manifest, names
from kits.small import small_config, write_corpus

from bert_jax.cli import main
from bert_jax.commands.verify_store import describe, verify
from bert_jax.data import index, integrity, prepare, rows
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.storage import checksums


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory):
    """A store made by prepare, with cached rows beside it."""
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=400)
    keys = f"corpus.source={directory}/corpus.txt", f"store={directory}/store"
    prepare.prepare(small_config(*keys), lambda line: None)
    store = stores.open_store(directory / "store")
    indexes = index.of_pairs(store, "train", rows.Rules(1, 0, 32, "nsp", 0.1))
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


def test_a_sound_store(store, capsys):
    assert found(store) == []
    assert main(["verify", "--store", str(store)]) == 0
    assert "sound" in capsys.readouterr().out


@pytest.mark.parametrize("number", range(50))
def test_random_damages(store, number):
    draw = np.random.default_rng(number)
    before = {name: (store / name).read_bytes() for name in names(store)}
    damaged = DAMAGES[number % len(DAMAGES)](store, draw)
    after = {name: (store / name).read_bytes() for name in names(store)}
    assert before != after
    lines = found(store)
    for name in damaged:
        assert any(name in line for line in lines), lines
    if "make_manifest" not in DAMAGES[number % len(DAMAGES)].__name__:
        # And no file is accused that nothing happened to. What arrays say of each other names one of the two.
        words = "SHA-256", "bytes, ", "missing from", "surplus"
        accused = {line.partition(": ")[0] for line in lines if any(w in line for w in words)}
        assert accused <= set(damaged), lines
    assert main(["verify", "--store", str(store)]) == 1


# --- What a manifest made anew does not hide ------------------------------------------------------


def change(store, name, edit) -> list[str]:
    """Problems after edit(array) and a new manifest: none is one of size or SHA-256."""
    array = np.load(store / name)
    np.save(store / name, edit(array))
    make_manifest(store)
    return found(store)


def put(place, value):
    def edit(array):
        array[place] = value
        return array

    return edit


@pytest.mark.parametrize(
    "name, edit, words",
    [
        (
            "train/tokens.npy",
            put(7, 60000),
            "1 ids beyond the vocabulary of 104 pieces, the first at 7",
        ),
        ("heldout/tokens.npy", put(7, 4), "1 times the special piece [MASK]"),
        ("train/tokens.npy", lambda array: array.astype(np.int64), "an array of int64"),
        ("train/tokens.npy", lambda array: array[:, None], "shape"),
        ("train/tokens.npy", lambda array: array[:0], "shape (0,)"),
        ("train/sentence_ends.npy", put(0, 0), "does not rise at number 0"),
        ("train/document_ends.npy", lambda array: array[:-1], "train/sentence_ends.npy has"),
        ("train/sentence_ends.npy", lambda array: array[:-1], "train/tokens.npy has"),
        ("unigrams.npy", put((..., 9), 12345), "piece 9: 12345, counted"),
        ("unigrams.npy", lambda array: array.reshape(-1)[:-1], "but the vocabulary has 104 pieces"),
    ],
)
def test_content_is_checked_whatever_the_manifest_says(store, name, edit, words):
    words = words.replace(
        "104", str(json.loads((store / "manifest.json").read_text())["vocabulary"])
    )
    lines = change(store, name, edit)
    assert any(line.startswith(f"{name}: ") and words in line for line in lines), lines
    assert not any("SHA-256" in line for line in lines)


def test_parts_meet(store, monkeypatch):
    """Checked in parts of a few items a store is as sound, and damage on a border is found."""
    monkeypatch.setattr(integrity, "PART", 16)
    assert found(store) == []
    ends = np.load(store / "train/sentence_ends.npy")
    lines = change(store, "train/sentence_ends.npy", put(16, ends[15]))
    assert "train/sentence_ends.npy: does not rise at number 16" in lines


def test_counts_of_the_manifest(store):
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["sources"][0]["documents"]["train"] += 1
    manifest["vocabulary"] += 1
    (store / "manifest.json").unlink()
    shutil.rmtree(store / "index")
    stores.write_manifest(store, manifest)
    lines = found(store)
    assert [line.partition(":")[0] for line in lines] == ["tokenizer", "manifest.json"]


@pytest.mark.parametrize("part", [16, 1 << 22])
def test_heldout_documents_that_are_trained_on(store, monkeypatch, part):
    """A training document, the fifth, becomes the first held-out one."""
    monkeypatch.setattr(integrity, "PART", part)
    tokens, ends, documents = stores.open_store(store).splits["train"][1:4]
    first, last = documents[3], documents[4]
    start, end = ends[first - 1], ends[last - 1]
    one = tokens[start:end], ends[first:last] - start, [last - first]
    others = [np.load(store / f"heldout/{array}.npy") for array in stores.ARRAYS]
    shifts = (None, end - start, last - first)
    for name, mine, theirs, shift in zip(stores.ARRAYS, one, others, shifts, strict=True):
        theirs = theirs if shift is None else theirs + shift
        np.save(store / f"heldout/{name}.npy", np.concatenate([mine, theirs]))
    make_manifest(store)
    lines = found(store)
    message = "heldout/tokens.npy: 1 held-out documents are trained on, too: number 0 is number 4"
    assert any(line.startswith(message) for line in lines), lines


def test_swapped_files_are_told_from_altered_ones(store):
    exchange(store / "train/tokens.npy", store / "heldout/tokens.npy")
    lines = found(store)
    assert any("train/tokens.npy: " in x and "belongs in heldout/tokens.npy" in x for x in lines)
    assert any("heldout/tokens.npy: " in x and "belongs in train/tokens.npy" in x for x in lines)


# --- The manifest, places outside, cached rows ----------------------------------------------------


def test_a_manifest_that_only_looks_the_same(store):
    path = store / "manifest.json"
    path.write_text(path.read_text() + "\n")
    assert [line.partition(": ")[0] for line in found(store)] == ["manifest.json"]
    manifest = json.loads(path.read_text())
    for text in ("{", "[]", "\ud800".encode("utf-8", "surrogatepass").decode("latin1")):
        path.write_text(text)
        assert [line.partition(": ")[0] for line in found(store)] == ["manifest.json"]
    manifest["format"] = 1
    path.write_text(checksums.manifest_text(manifest))
    assert "not a token store of format 2" in found(store)[0]


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside.npy", "train/../../outside.npy"])
def test_places_outside_of_the_store(store, name):
    (store.parent / "outside.npy").write_bytes(b"secret")
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 6, "sha256": checksums.digest(store.parent / "outside.npy")}
    manifest["digest"] = checksums.manifest_digest(manifest)
    (store / "manifest.json").write_text(checksums.manifest_text(manifest))
    assert found(store) == [f"{name}: lies outside of the directory"]
    with pytest.raises(BadInput, match="outside of the directory"):
        stores.open_store(store)


def test_links_out_of_the_store(store):
    tokens = store / "train/tokens.npy"
    tokens.rename(store.parent / "tokens.npy")
    tokens.symlink_to("../../tokens.npy")
    assert "train/tokens.npy: lies outside of the directory" in found(store)
    with pytest.raises(BadInput, match="tokens.npy: lies outside of the directory"):
        stores.open_store(store)
    shutil.move(store, store.parent / "moved")  # a store that is itself a link is no harm
    (store.parent / "moved/train/tokens.npy").unlink()
    (store.parent / "tokens.npy").rename(store.parent / "moved/train/tokens.npy")
    store.symlink_to(store.parent / "moved")
    assert found(store) == []
    stores.open_store(store)


def test_cached_rows_are_named_and_no_fault_of_the_store(store):
    path = next((store / "index").glob("*.npy"))
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes([255] * 8) + content[1008:])
    assert verify(store, print)["rebuilt"] == [f"index/{path.name}"]
    path.write_bytes(content[:-8])
    next((store / "index").glob("*.json")).write_text("{")
    values = verify(store, print)
    assert values["sound"] and len(values["rebuilt"]) == 2
    assert f"index/{path.name}: damaged, will be built again" in describe(values)


def test_what_cannot_be_read(store, monkeypatch):
    digest = checksums.digest

    def refuse(path):
        if path.name == "unigrams.npy":
            raise PermissionError(13, "Permission denied", str(path))
        return digest(path)

    with monkeypatch.context() as patch:
        patch.setattr(checksums, "digest", refuse)
        assert found(store) == ["unigrams.npy: cannot be read (Permission denied)"]
    manifest = json.loads((store / "manifest.json").read_text())
    long, circle = "x" * 300, "circle"
    manifest["files"] |= dict.fromkeys((long, circle), {"bytes": 6, "sha256": ""})
    manifest["digest"] = checksums.manifest_digest(manifest)
    (store / "manifest.json").write_text(checksums.manifest_text(manifest))
    (store / circle).symlink_to(circle)
    assert f"{long}: cannot be read (File name too long)" in found(store)
    problems = list(integrity.check(store, None, None, print))
    assert not problems
    monkeypatch.setattr(integrity, "SPLITS", (long,))
    problems = list(integrity.open_split(store, long, None))
    assert {problem.text for problem in problems} == {"cannot be read (File name too long)"}
    with pytest.raises(BadInput, match="cannot be read .File name too long"):
        verify(store / long, print)


def test_surplus_directories(store):
    (store / "empty").mkdir()
    (store / "train/link").symlink_to(store / "heldout")
    assert found(store) == [
        "empty: surplus: an empty directory",
        "train/link: surplus: not a file of this store",
    ]


def test_what_is_no_store(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "nowhere"):
        assert main(["verify", "--store", str(path)]) == 2
        assert "no token store" in capsys.readouterr().err


def test_as_json(store, capsys):
    (store / "unigrams.npy").unlink()
    assert main(["verify", "--store", str(store), "--json", "-"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["problems"][0] == {
        "file": "unigrams.npy",
        "problem": "missing",
    }
    assert not values["sound"] and len(values["problems"]) == 1
