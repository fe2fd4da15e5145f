"""Only .py configs are executed. All other files are data: no pickle is opened, nothing outside is read."""

import json
import os
import shutil

import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.saved_batches import World, rewrite

from bert_jax import config
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.storage import checksums


class Trap:
    """An object that creates a directory when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    world.save(0, 10, world.saved)
    return world


@pytest.fixture(params=["store", "batches"])
def opened(request, intact, tmp_path):
    """(directory, command): a copy of the store or of the saved batches, and the command that opens it."""
    original = intact.saved if request.param == "batches" else intact.settings["store"]
    directory = shutil.copytree(original, tmp_path / "copy")
    return directory, ["inspect", *intact.arguments("--step", 0, **{request.param: directory})]


def add(directory, name: str, path) -> None:
    """Adds a file to the manifest under this name."""
    entry = {"bytes": path.stat().st_size, "sha256": checksums.digest(path)}
    files = json.loads((directory / "manifest.json").read_text())["files"]
    rewrite(directory, {"files": files | {name: entry}})


def test_a_pickle_is_not_opened(opened, tmp_path):
    """The manifest is consistent, as an attacker would write it."""
    (directory, command), trap = opened, tmp_path / "trap"
    is_store = (directory / "unigrams.npy").exists()
    path = sorted(directory.glob("train/*.npy" if is_store else "short/0*.npz"))[0]
    if is_store:
        np.save(path, np.array([Trap(trap)], object))
    else:
        np.savez(path, tokens=np.array([Trap(trap)], object))
    add(directory, path.relative_to(directory).as_posix(), path)
    assert path.name in refused(*command) and not trap.exists()
    if is_store:
        assert main(["verify", "--store", str(directory)]) == 0 and not trap.exists()
    arrays = np.load(path, allow_pickle=True)  # shows that the trap works
    assert is_store or arrays["tokens"].size
    assert trap.exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../outside", "link"])
def test_paths_outside_of_the_directory_are_refused(opened, tmp_path, name):
    (directory, command), outside = opened, tmp_path / "outside"
    outside.write_text("secret")
    (directory / "link").symlink_to(outside)
    add(directory, name, outside)
    assert name in refused(*command)
    if (directory / "unigrams.npy").exists():
        assert main(["verify", "--store", str(directory)]) == 1


def test_a_saved_config_is_not_executed(tmp_path):
    """Python in config.json is not executed, names of modules are checked, overrides are literals."""
    trap, path = tmp_path / "trap", tmp_path / "config.json"
    code = f"__import__('os').mkdir({str(trap)!r})"
    for text in (code, json.dumps({"seed": code})):
        path.write_text(text)
        with pytest.raises(BadInput):
            config.load(str(path))
    for key in ("model", "objective"):
        for name in ("os", "..evil", "__init__", "layers", "base", "a.b", "/tmp/x"):
            values = config.load("demo").to_dict()
            values[key]["name"] = name
            path.write_text(json.dumps(values))
            with pytest.raises(BadInput, match=f"config.{key}.name"):
                config.load(str(path))
    for key in ("seed", "profile.steps", "optimizer.clip"):
        with pytest.raises(BadInput):
            config.load("demo", [f"{key}={code}"])
    assert not trap.exists()
