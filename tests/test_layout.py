"""Which module may import which, checked from the source: a package imports earlier ones, libraries only some files."""

import ast
import configparser
import re
from fnmatch import fnmatch

from kits.paths import ROOT

FILES = sorted([*ROOT.glob("bert_jax/**/*.py"), *ROOT.glob("configs/**/*.py")])

# A subpackage may import the subpackages before it in this list, and the modules in BASE. BASE may import itself and
# storage. Planning and commands may also import the top level; of the top level, only cli may import these two.
PACKAGES = "storage tokenizers data parallel layers models optimizers objectives tasks checkpoints runs".split()
PACKAGES += "convert pages inference planning commands".split()
BASE = {"errors", "prng", "config", "registry", "checks", "step_guard"}
MAX_FILES = 15  # at the top level

# The files that may import a library.
PLACES = {
    "tensorflow": ("bert_jax/data/*", "bert_jax/convert/tensorflow_checkpoint.py"),
    "tensorflow_datasets": ("bert_jax/data/sources/tfds.py",),
    "apache_beam": ("bert_jax/data/preparation/beam.py",),
    "orbax": ("bert_jax/checkpoints/*",),
    "optax": ("bert_jax/optimizer.py", "bert_jax/optimizers/*", "bert_jax/step.py"),
    "flax": tuple(f"bert_jax/{name}/*" for name in ("layers", "models", "objectives", "inference")),
    "fsspec": ("bert_jax/storage/remote.py",),
    "argparse": ("bert_jax/cli.py",),
    "bert_jax.configs": ("configs/*", "bert_jax/config.py"),
}
# These files receive what they use as arguments, and import nothing else of the package.
PURE = {
    "bert_jax/step.py": {"step_guard", "prng"},
    "bert_jax/optimizer.py": {"registry", "models"},
    "bert_jax/step_guard.py": set(),
    "bert_jax/parallel/mesh.py": {"errors"},
    "bert_jax/prng.py": set(),
}

# Batch keys, terms and tasks of one objective, and the files of the package that may name them.
MLM_NAMES = re.compile(r"\b(mlm|nsp)|mlm_|nsp_|masked_")
MLM_PLACES = "objectives/* layers/* models/* convert/* inference/* tasks/* data/masking.py".split()
MLM_PLACES.append("commands/inspect_batch.py")


def imports(source):
    """Yields (line, dotted name) of every import, also in functions and by `import_module`."""
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


def is_upward(path: str, first: str) -> bool:
    """Whether the file at `path` may not import bert_jax.`first`, a subpackage or a module of the top level."""
    parts = path.split("/")
    here = parts[1] if len(parts) > 2 else ""
    file = parts[-1].removesuffix(".py")
    if here:
        below = BASE.union(PACKAGES[: PACKAGES.index(here) + 1])
        is_top = here in ("planning", "commands") and first not in PACKAGES
        return first not in below and not is_top
    if file in BASE:
        return first not in BASE | {"storage"}
    return first in ("planning", "commands") and file not in ("cli", "__main__")


def violations(path, source):
    """Yields a line for every forbidden import of the file at `path`, which is relative to the root."""
    for line, name in imports(source):
        root, _, rest = name.partition(".")
        listed = [key for key in PLACES if name == key or name.startswith(f"{key}.")]
        first = rest.partition(".")[0]
        wrong = not all(any(fnmatch(path, file) for file in PLACES[key]) for key in listed)
        wrong |= name.startswith(".")
        if root == "bert_jax" and not listed and first != "__version__":
            wrong |= is_upward(path, first)
            wrong |= path.startswith("configs/") and first not in ("registry", "checks")
            wrong |= path in PURE and first not in PURE[path]
        if wrong:
            yield f"{path}:{line}: may not import {name}"


def test_packages_import_only_earlier_ones():
    lines = []
    for file in FILES:
        lines += violations(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
    assert not lines, "\n".join(["", *lines])


def test_the_top_level_is_small_and_every_package_is_listed():
    paths = [path for path in ROOT.glob("bert_jax/*") if path.name != "__pycache__"]
    assert sum(path.is_file() for path in paths) <= MAX_FILES
    assert {path.name for path in paths if path.is_dir()} <= set(PACKAGES)


def test_a_forbidden_import_is_found():
    sources = {
        "bert_jax/step.py": "def f():\n    import tensorflow as tf",
        "bert_jax/models/new.py": "from bert_jax.objectives import mlm",
        "bert_jax/storage/new.py": "import_module(f'bert_jax.data.{x}')",
        "bert_jax/config.py": "from bert_jax import train",
    }
    assert all(len(list(violations(*source))) == 1 for source in sources.items())


def names_one_objective(path: str, source: str) -> bool:
    """Whether a file of the package, outside of MLM_PLACES, names what is of the masked-LM objective."""
    is_allowed = any(fnmatch(path, f"bert_jax/{place}") for place in MLM_PLACES)
    return path.startswith("bert_jax/") and not is_allowed and bool(MLM_NAMES.search(source))


def test_what_all_objectives_share_names_none():
    paths = {file.relative_to(ROOT).as_posix(): file for file in FILES}
    texts = {path: file.read_text(encoding="utf-8") for path, file in paths.items()}
    assert not [path for path, text in texts.items() if names_one_objective(path, text)]
    for text in ("x['mlm_loss']", "name == 'nsp'", "batch.masked_weights", "heldout_mlm_loss"):
        assert names_one_objective("bert_jax/runs/new.py", text)
    assert not names_one_objective("bert_jax/runs/new.py", "inspect, unmasked")


def test_every_package_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    folders = [file.parent for file in FILES if file.name == "__init__.py"]
    names = [".".join(folder.relative_to(ROOT).parts) for folder in folders]
    expected = {"bert_jax.configs" if name == "configs" else name for name in names}
    assert expected == set(setup["options"]["packages"].split())
