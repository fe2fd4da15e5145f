"""Setup of a process: the compilation cache, and where and when the initial state is computed."""

import os
import stat
import subprocess
import sys

import jax
import pytest
from kits.runs import assert_same_bits
from kits.small import VOCABULARY, mesh_keys, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.parallel import init_on_host
from bert_jax.runs import jax_setup


@pytest.fixture
def unset():
    """JAX without the tests' compilation cache, which is restored afterwards."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_programs_are_cached_in_the_users_cache_directory(unset, tmp_path, monkeypatch, variable):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    jax_setup.start(configs.base())
    place = tmp_path / ("bert_jax" if variable == "XDG_CACHE_HOME" else ".cache/bert_jax")
    assert jax.config.jax_compilation_cache_dir == str(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700, "its files are executed"


def test_a_cache_that_cannot_be_created_is_refused_only_if_it_was_configured(
    unset, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").touch()
    named = small_config(f"compilation_cache={tmp_path}/file/cache")
    with pytest.raises(BadInput, match=f"config.compilation_cache={tmp_path}/file/cache"):
        jax_setup.start(named)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    jax_setup.start(configs.base())
    assert not jax.config.jax_compilation_cache_dir
    assert f"{tmp_path}/file" in capsys.readouterr().err


FINETUNE = "finetune", "--config", "glue:sst2", "--config.init_from=x", "--workdir", "run"
BENCHMARK = pytest.param(("benchmark", "--config", "demo"), marks=pytest.mark.full)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [FINETUNE, BENCHMARK])
def test_a_platform_that_is_not_there_is_named(arguments):
    command = [sys.executable, "-m", "bert_jax", *arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cuda"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 2 and line.startswith("bert-jax: JAX_PLATFORMS=cuda: ")


@pytest.mark.slow
def test_initial_states_are_the_same_wherever_they_are_computed():
    """During compilation, afterwards, and on the host as for GPUs; values and shardings."""
    config = jax_setup.start(small_config(*mesh_keys((2, 2, 2))))
    design = build.design(config, build.make_mesh(config, configs.phases(config)), VOCABULARY)
    host = init_on_host.lower_on_host(design.initialize, design.mesh, design.shardings).compile()()
    for init_state in (True, False):
        made = build.build(config, design.mesh, VOCABULARY, init_state=init_state)
        assert_same_bits(made.initialize(), host)
    assert jax.tree.map(lambda leaf: leaf.sharding, host) == design.shardings
