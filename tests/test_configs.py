"""Every file of configs/ is a config that runs could start from."""

from pathlib import Path

import pytest

from bert_jax import config

FOLDER = Path(__file__).parent.parent / "configs"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in ("__init__", "base"))


def keys(tree, prefix=""):
    """The dotted names of all keys. What a phase is called is up to a config."""
    for key, value in tree.items():
        if hasattr(value, "items"):
            yield from keys(value, f"{prefix}{'*' if prefix == 'phases.' else key}.")
        else:
            yield prefix + key


def test_there_are_configs():
    assert {"demo", "bert_tiny", "bert_base"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_config_is_found_by_name_and_by_path(name):
    by_name, by_path = config.load(name, []), config.load(str(FOLDER / f"{name}.py"), [])
    assert by_name.to_json() == by_path.to_json()


@pytest.mark.parametrize("name", NAMES)
def test_config_has_the_keys_of_base(name):
    assert set(keys(config.load(name, []))) == set(keys(config.base()))


@pytest.mark.parametrize("name", NAMES)
def test_config_is_a_document(name):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert f"--config {name} " in source, "the docstring should say how to run it"
