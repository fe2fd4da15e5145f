"""Configs are Python and say so; all else is data: no pickles, nothing executed, nothing read or written outside."""

import json
import os
import shutil

import numpy as np
import pytest
from kits.doors import refused
from kits.saved_world import World, rewrite

from bert_jax import config
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.storage import checksums


class Trap:
    """Unpickled, it makes a directory."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    world.save(0, 10, world.saved)
    return world


@pytest.fixture(params=["store", "batches"])
def opened(request, sound, tmp_path):
    """(directory, inspect): a copy of the store or of the saved batches, and the command that opens it."""
    original = sound.saved if request.param == "batches" else sound.settings["store"]
    place = shutil.copytree(original, tmp_path / "copy")
    return place, ["inspect", *sound.arguments("--step", 0, **{request.param: place})]


def add(place, name: str, path) -> None:
    """The manifest knows a file by that name."""
    known = {"bytes": path.stat().st_size, "sha256": checksums.digest(path)}
    files = json.loads((place / "manifest.json").read_text())["files"]
    rewrite(place, {"files": files | {name: known}})


def test_a_pickle_is_not_opened(opened, tmp_path):
    """Under a manifest as whoever wants to harm would make it: sound in itself."""
    (place, command), trap = opened, tmp_path / "trap"
    is_store = (place / "unigrams.npy").exists()
    path = sorted(place.glob("train/*.npy" if is_store else "short/0*.npz"))[0]
    if is_store:
        np.save(path, np.array([Trap(trap)], object))
    else:
        np.savez(path, tokens=np.array([Trap(trap)], object))
    add(place, path.relative_to(place).as_posix(), path)
    assert path.name in refused(*command) and not trap.exists()
    if is_store:
        assert main(["verify", "--store", str(place)]) == 0 and not trap.exists()
    found = np.load(path, allow_pickle=True)  # so it would have
    assert is_store or found["tokens"].size
    assert trap.exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../outside", "link"])
def test_paths_of_manifests_stay_inside(opened, tmp_path, name):
    (place, command), outside = opened, tmp_path / "outside"
    outside.write_text("secret")
    (place / "link").symlink_to(outside)
    add(place, name, outside)
    assert name in refused(*command)
    if (place / "unigrams.npy").exists():
        assert main(["verify", "--store", str(place)]) == 1


def test_the_config_of_a_run_is_data(tmp_path):
    """Python under its name is not executed, names of files are names, overrides are literals."""
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
    for key in ("seed", "expected_loss", "optimizer.clip"):
        with pytest.raises(BadInput):
            config.load("demo", [f"{key}={code}"])
    assert not trap.exists()
