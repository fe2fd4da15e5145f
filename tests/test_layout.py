"""Who may import whom, read from the source: the line of sight that DESIGN draws stays a line."""

import ast
import configparser
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted([*ROOT.glob("bert_jax/**/*.py"), *ROOT.glob("configs/**/*.py")])

MODEL = ("flax", "jax", "numpy", "bert_jax.axes", "bert_jax.hash", "bert_jax.errors")
MODEL += ("bert_jax.models",)
STEP = ("jax", "numpy", "optax", "bert_jax.axes", "bert_jax.hash", "bert_jax.errors")
STEP += ("bert_jax.guard",)
DATA = ("numpy", "ml_collections", "tensorflow", "tensorflow_datasets", "bert_jax.data")
DATA += ("bert_jax.tokenizer", "bert_jax.tokenizers", "bert_jax.batch", "bert_jax.hash")
DATA += ("bert_jax.errors", "bert_jax.regular", "bert_jax.whole")
DATA += ("bert_jax.remote", "bert_jax.staged")
DATA += ("bert_jax.config", "datasketch", "absl")
TOKENIZERS = ("numpy", "tokenizers", "sentencepiece", "bert_jax.errors", "bert_jax.regular")
TOKENIZERS += ("bert_jax.tokenizers", "google.protobuf")
CONFIG = ("ml_collections", "bert_jax.errors", "bert_jax.regular", "bert_jax.remote")
WIRING = ("jax", "flax", "numpy", "optax", "orbax", "ml_collections", "tensorboardX", "tqdm")
WIRING += ("tensorstore",)
WIRING += ("bert_jax", "safetensors")

# What a file may import beside the standard library. The first pattern that fits counts.
ALLOWED = {
    "configs/*": ("ml_collections", "bert_jax.configs"),
    "bert_jax/models/*": MODEL,
    "bert_jax/objectives/*": (*MODEL, "bert_jax.objectives"),
    "bert_jax/tasks/*": (*MODEL, "bert_jax.objectives", "bert_jax.tasks", "bert_jax.tokenizer"),
    "bert_jax/data/preparing/beam.py": (*DATA, "apache_beam"),
    "bert_jax/data/*": DATA,
    "bert_jax/convert/google.py": (*WIRING, "tensorflow"),
    "bert_jax/convert/sentencepiece.py": ("bert_jax.errors", "bert_jax.tokenizers"),
    # These receive the objective, the optimizer and the mesh, and know no model, config or data.
    "bert_jax/step.py": STEP,
    "bert_jax/metrics.py": (*STEP, "bert_jax.topology"),
    "bert_jax/sharding.py": STEP,
    "bert_jax/optimizer.py": STEP,
    "bert_jax/guard.py": ("jax",),
    "bert_jax/schedule.py": STEP,
    "bert_jax/batch.py": STEP,
    "bert_jax/axes.py": ("jax",),
    "bert_jax/program.py": ("numpy",),
    "bert_jax/hash.py": ("numpy",),
    "bert_jax/errors.py": (),
    "bert_jax/regular.py": (),
    "bert_jax/remote.py": ("fsspec", "bert_jax.errors"),
    "bert_jax/mirror.py": ("bert_jax",),
    "bert_jax/lease.py": ("bert_jax",),
    "bert_jax/workdir.py": ("bert_jax.errors", "bert_jax.regular", "bert_jax.staged", "etils"),
    "bert_jax/staged.py": ("bert_jax.remote", "bert_jax.data.store", "bert_jax.errors"),
    "bert_jax/config.py": (*CONFIG, "bert_jax.config_checks", "bert_jax.configs"),
    "bert_jax/config_checks.py": CONFIG,
    "bert_jax/tokenizer.py": TOKENIZERS,
    "bert_jax/tokenizers/*": TOKENIZERS,
    "bert_jax/words.py": ("numpy", "bert_jax.hash", "bert_jax.tokenizer"),
    "bert_jax/*": WIRING,
}

# And who alone may import these.
ONLY = {
    "argparse": ("bert_jax/arguments.py",),
    "bert_jax.arguments": ("bert_jax/main.py",),
    "bert_jax.main": ("bert_jax/__main__.py",),
    "bert_jax.configs": ("configs/*", "bert_jax/config.py"),
}


def imports(source):
    """(line, dotted name) of every import, also inside functions and by `import_module`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            name = node.args[0]
            if isinstance(name, ast.JoinedStr):  # f"bert_jax.models.{name}" is in bert_jax.models
                name = name.values[0]
            if called in ("import_module", "__import__") and isinstance(name, ast.Constant):
                yield node.lineno, name.value.rstrip(".")


def within(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def fits(path, patterns):
    return any(fnmatch(path, pattern) for pattern in patterns)


def offences(path, source):
    """One line for every import that the file at `path` (relative to the root) may not do."""
    allowed = next(names for pattern, names in ALLOWED.items() if fnmatch(path, pattern))
    for line, name in imports(source):
        allowed_here = name.split(".")[0] in sys.stdlib_module_names or within(name, allowed)
        reserved = any(within(name, [key]) and not fits(path, ONLY[key]) for key in ONLY)
        if reserved or not allowed_here:
            yield f"{path}:{line}: may not import {name}"


def test_imports_go_one_way():
    found = []
    for file in FILES:
        path = file.relative_to(ROOT).as_posix()
        found += offences(path, file.read_text(encoding="utf-8"))
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("bert_jax/step.py", "import tensorflow as tf", "tensorflow"),
        ("bert_jax/step.py", "def f():\n    from bert_jax import config", "bert_jax.config"),
        ("bert_jax/step.py", "from bert_jax.objectives import mlm", "bert_jax.objectives.mlm"),
        ("bert_jax/models/new.py", "import bert_jax.objectives.mlm", "bert_jax.objectives.mlm"),
        ("bert_jax/models/new.py", "from . import bert", "..bert"),
        ("bert_jax/objectives/new.py", "import_module(f'bert_jax.data.{x}')", "bert_jax.data"),
        ("bert_jax/data/new.py", "import jax.numpy as jnp", "jax.numpy"),
        ("bert_jax/new.py", "import tensorflow_datasets", "tensorflow_datasets"),
        ("bert_jax/new.py", "from bert_jax.configs import demo", "bert_jax.configs.demo"),
        ("bert_jax/new.py", "import argparse", "argparse"),
        ("bert_jax/config.py", "import jax", "jax"),
        ("configs/new.py", "from bert_jax import config", "bert_jax.config"),
    ],
)
def test_an_import_the_other_way_is_found(path, source, name):
    line = 1 + source.count("\n")
    assert list(offences(path, source)) == [f"{path}:{line}: may not import {name}"]


def test_an_import_along_the_way_is_not():
    source = "import os, jax\nfrom bert_jax import hash\nfrom bert_jax.hash import fold"
    assert not list(offences("bert_jax/step.py", source))
    source = "importlib.import_module(f'bert_jax.configs.{name}')"
    assert not list(offences("bert_jax/config.py", source))


def test_the_loop_imports_without_tensorflow():
    """Accelerator images often have none. What makes batches from a store needs it."""
    names = []
    for file in FILES:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        needs = within(name, ("bert_jax.data", "bert_jax.__main__"))
        if name.startswith("bert_jax") and not needs:
            names.append(name)
    code = f"import importlib, sys; sys.modules['tensorflow'] = None; names = {names}\n"
    code += "for name in names: importlib.import_module(name)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def test_every_package_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    folders = [file.parent for file in FILES if file.name == "__init__.py"]
    names = [".".join(folder.relative_to(ROOT).parts) for folder in folders]
    expected = {"bert_jax.configs" if name == "configs" else name for name in names}
    assert expected == set(setup["options"]["packages"].split())
