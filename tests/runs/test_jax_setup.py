"""What a start sets up: where compiled programs are kept, and that the first state may be computed meanwhile."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from jax._src import lru_cache
from kits.running import assert_same_bits
from kits.small import VOCABULARY, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.runs import jax_setup


@pytest.fixture
def unset():
    """JAX without the tests' cache, whose place is put back."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_programs_are_kept_where_users_expect_them(unset, tmp_path, monkeypatch, variable):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    jax_setup.start(configs.base())
    place = tmp_path / ("bert_jax" if variable == "XDG_CACHE_HOME" else ".cache/bert_jax")
    assert jax.config.jax_compilation_cache_dir == str(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700, "what lies there is executed"


def test_jax_own_place_comes_first(unset, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    jax_setup.start(configs.base())
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
    assert not (tmp_path / "here").exists()


def test_a_place_that_cannot_be_made(unset, tmp_path, monkeypatch, capsys):
    """Refused where it was asked for, told where it was not."""
    (tmp_path / "file").touch()
    named = small_config(f"compilation_cache={tmp_path}/file/cache")
    with pytest.raises(BadInput, match="config.compilation_cache=.*: .*/file/cache: Not a dir"):
        jax_setup.start(named)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    jax_setup.start(configs.base())
    assert not jax.config.jax_compilation_cache_dir
    assert "file/bert_jax: Not a directory: what is compiled is not kept" in capsys.readouterr().err


def test_a_program_that_is_damaged_is_written_again(unset, tmp_path):
    """By a process that has compiled it; the next one reads it. The place is that of JAX's own variable."""
    script = (
        "import jax; from bert_jax import config; from bert_jax.runs import jax_setup; jax_setup.start(config.base());"
        "print(jax.jit(lambda x: x + 1)(jax.numpy.arange(3)))"
    )
    given = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PLATFORMS": "cpu",
    }

    def start() -> str:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stderr

    start()
    entries = {path: path.read_bytes() for path in tmp_path.glob("*-cache")}
    assert entries
    for path, content in entries.items():
        path.write_bytes(content[: len(content) // 2])
    assert "Error reading persistent compilation cache entry" in start()
    assert all(len(path.read_bytes()) > len(content) / 2 for path, content in entries.items())
    assert not start()


@pytest.mark.parametrize("most", [-1, 1000])
def test_an_entry_is_there_until_the_next_is_whole(tmp_path, monkeypatch, most):
    """Also of a cache of limited size, where each has a time beside it."""
    jax_setup.replace_damaged()
    cache, seen = lru_cache.LRUCache(str(tmp_path), max_size=most), []
    cache.put("a", b"sound")

    def write_half(path, value):
        Path(path).write_bytes(value[: len(value) // 2])
        seen.append((tmp_path / "a-cache").read_bytes())
        raise OSError("full")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(type(cache.path), "write_bytes", write_half)
        cache.put("a", b"another")
    assert seen == [b"sound"] and cache.get("a") == b"sound"
    cache.put("a", b"another")
    assert cache.get("a") == b"another"
    cache.put("b", b"x" * 999)  # and "a" has to go, where there is no room for both
    assert cache.get("a") == (None if most > 0 else b"another")
    names = {path.name for path in tmp_path.iterdir()} - {".lockfile"}
    assert names == ({"b-cache", "b-atime"} if most > 0 else {"a-cache", "b-cache"})


@pytest.mark.parametrize("name", ["_CACHE_SUFFIX", "LRUCache"])
def test_other_names_in_jax_break_nothing(monkeypatch, name):
    cache = lru_cache.LRUCache
    put = cache.put
    monkeypatch.delattr(lru_cache, name)
    jax_setup.replace_damaged()
    assert cache.put is put


def test_a_state_that_was_begun_is_the_same():
    config = jax_setup.start(small_config())
    mesh = build.make_mesh(config, configs.phases(config))
    states = [
        build.build(config, mesh, VOCABULARY, begin=begin).initialize() for begin in (True, False)
    ]
    assert_same_bits(*states)


def test_pytorch_is_not_imported_for_tensorboard(tmp_path):
    """A torch that is there, and would be found out."""
    (tmp_path / "torch.py").write_text("print('imported')\n")
    code = "from bert_jax.runs import tensorboard; print('between'); import torch"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["between", "imported"]
