"""Configs are Python and say so; all else is data: no pickles, nothing executed, nothing read or written outside."""

import ast
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from fuzz.attempts import listing
from kits.places import ROOT
from kits.saved_world import World, rewrite
from kits.small import SMALL, overrides, write_corpus

from bert_jax import config
from bert_jax.cli import main
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.storage import checksums

# What runs what it reads. `runpy` is how a config that is Python is executed, at the user's word, in one place.
EXECUTING = ("pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "runpy")
CALLS = ("eval", "exec", "compile", "system", "popen")


def used(path: Path) -> set[str]:
    """The names of what a file imports or calls, of those that execute."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
        elif isinstance(node, ast.Call):
            # `re.compile`, and a compiled program's own, are something else.
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            plain = isinstance(node.func, ast.Name) or name != "compile"
            found |= {name} if plain else set()
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.add(f"allow_pickle={ast.unparse(node.value)}")
    return found & {*EXECUTING, *CALLS, "allow_pickle=True"}


def test_nothing_executes_what_it_reads_but_a_python_config():
    files = sorted((ROOT / "bert_jax").rglob("*.py"))
    found = {file.relative_to(ROOT).as_posix(): used(file) for file in files}
    assert {name: names for name, names in found.items() if names} == {
        "bert_jax/config.py": {"runpy"},
        # Messages between the processes of one command, which it has written itself.
        "bert_jax/data/preparation/beam.py": {"pickle"},
        "bert_jax/planning/child_process.py": {"pickle"},
    }


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from runpy import run_path",
        "eval(x)",
        "os.system(x)",
        "f(allow_pickle=True)",
    ],
)
def test_it_would_be_seen(tmp_path, source):
    (tmp_path / "x.py").write_text(source)
    assert used(tmp_path / "x.py")


class Trap:
    """Unpickled, it leaves a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    world.save(0, 10, world.saved)
    return world


def make_manifest(directory, manifest) -> None:
    """As whoever wants to harm would: sound in itself."""
    del manifest["files"], manifest["format"]
    (directory / "manifest.json").unlink()
    stores.write_manifest(directory, manifest)


def pickled(path, trap) -> None:
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.array([Trap(trap)], object), allow_pickle=True)
    with pytest.raises(ValueError):
        np.load(path)
    assert pickle.dumps(Trap(trap)) and not trap.exists()


def test_a_pickle_in_a_store_is_not_opened(made, tmp_path, capsys):
    store, trap = shutil.copytree(made.settings["store"], tmp_path / "store"), tmp_path / "trap"
    manifest = stores.read_manifest(store)
    pickled(store / "train/tokens.npy", trap)
    make_manifest(store, manifest)
    command = ["inspect", *made.arguments("--step", 0, store=store)]
    assert main(command) == 2
    assert main(["verify", "--store", str(store)]) == 1
    assert "train/tokens.npy" in capsys.readouterr().out and not trap.exists()


def test_a_pickle_among_saved_batches_is_not_opened(made, tmp_path, capsys):
    saved, trap = shutil.copytree(made.saved, tmp_path / "saved"), tmp_path / "trap"
    manifest = json.loads((saved / "manifest.json").read_text())
    name = manifest["phases"]["short"]["train"]["blocks"][0]["file"]
    pickled(saved / name, trap)
    manifest["files"][name] = {
        "bytes": (saved / name).stat().st_size,
        "sha256": checksums.digest(saved / name),
    }
    rewrite(saved, manifest)
    assert main(["inspect", *made.arguments("--step", 0, batches=saved)]) == 2
    assert name in capsys.readouterr().err and not trap.exists()


OUTSIDE = ["../outside", "/etc/hostname", "train/../../outside", "a/../../outside", "link"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["store", "saved"])
def test_paths_of_manifests_stay_inside(made, tmp_path, capsys, kind, name):
    place = shutil.copytree(
        made.settings["store"] if kind == "store" else made.saved, tmp_path / "x"
    )
    outside = tmp_path / "outside"
    outside.write_text("secret")
    if name == "link":
        (place / "link").symlink_to(outside)
    manifest = json.loads((place / "manifest.json").read_text())
    known = {"bytes": outside.stat().st_size, "sha256": checksums.digest(outside)}
    manifest["files"][name] = known
    rewrite(place, manifest)
    changes = {"store" if kind == "store" else "batches": place}
    assert main(["inspect", *made.arguments("--step", 0, **changes)]) == 2
    assert "lies outside of the directory" in capsys.readouterr().err


def test_the_config_of_a_run_is_data(tmp_path):
    """Python under its name is not executed."""
    trap = tmp_path / "trap"
    path = tmp_path / "config.json"
    for text in (
        f"__import__('os').mkdir({str(trap)!r})",
        f'{{"seed": "__import__(\'os\').mkdir({trap})"}}',
    ):
        path.write_text(text)
        with pytest.raises(BadInput):
            config.load(str(path))
    values = json.loads(json.dumps(config.load("demo").to_dict()))
    for key in ("model", "objective"):
        for name in ("os", "..evil", "__init__", "layers", "base", "a.b", "/tmp/x"):
            changed = json.loads(json.dumps(values))
            changed[key]["name"] = name
            path.write_text(json.dumps(changed))
            with pytest.raises(BadInput, match=f"config.{key}.name"):
                config.load(str(path))
    assert not trap.exists()


def test_overrides_are_literals(tmp_path):
    trap = tmp_path / "trap"
    for key in ("seed", "bands", "corpus.weights", "optimizer.clip", "filter.duplicates"):
        with pytest.raises(BadInput):
            config.load("demo", [f"{key}=__import__('os').mkdir({str(trap)!r})"])
    assert not trap.exists()


def test_nothing_is_written_outside(tmp_path, monkeypatch):
    """A whole run: its workdir, its store and the cache of compiled programs, and nothing else."""
    home, here, spare = (tmp_path / name for name in ("home", "here", "spare"))
    for place in (home, here, spare):
        place.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(spare))
    monkeypatch.chdir(here)
    write_corpus(tmp_path / "corpus.txt", documents=40)
    few = {"phases.main.steps": 2, "log.every": 1, "checkpoint.every": 1, "evaluate.every": 0}
    places = {"corpus.source": tmp_path / "corpus.txt", "store": tmp_path / "store"}
    keys = [f"--config.{key}" for key in overrides(SMALL | few | places)]
    before = listing(tmp_path)
    run = tmp_path / "run"
    assert main(["pretrain", "--config", "demo", *keys, "--workdir", str(run)]) == 0
    assert main(["evaluate", "--workdir", str(run)]) == 0
    assert main(["predict", "--model", str(run), "the [MASK]"]) == 0
    new = listing(tmp_path).keys() - before.keys()
    assert {Path(name).parts[0] for name in new} == {"run", "store"}
