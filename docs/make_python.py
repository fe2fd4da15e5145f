"""Prints docs/python.md: the Python interface, with the signatures and descriptions of its functions.

python docs/make_python.py > docs/python.md
"""

import inspect

import bert_jax
from bert_jax.inference.interface import AttentionWeights, Model

HEAD = """# Python

Made by `python docs/make_python.py > docs/python.md` from `bert_jax/inference/interface.py`. This interface stays: a
change is announced in [Changes](../CHANGELOG.md).

```python
import bert_jax

model = bert_jax.load("runs/mine")
vectors = model.encode(["A first sentence.", "A second one."], pool="mean")  # float32[2, width]
```

`import bert_jax` imports neither JAX nor TensorFlow, `load` imports JAX, and only a TensorFlow checkpoint needs
TensorFlow. A model computes what the [commands](commands.md) compute, by the same code, and changes no setting of the
process: several models may be open, also in threads. Programs are compiled at the first call, for each length of rows
(multiples of 32 tokens) and for other options; JAX keeps them for later processes if its variable
`JAX_COMPILATION_CACHE_DIR` is set. Long lists of texts are sorted by length, and computed in batches, with a progress
bar on a terminal, and in a notebook that has ipywidgets. Errors are exceptions, `bert_jax.errors.BadInput`, with the
text that a command prints.
"""


MODULES = "collections.abc", "numpy", "pathlib", "typing"
MODULES += "bert_jax.inference.interface", "bert_jax.inference.attention"


def section(name: str, function) -> str:
    """Returns the signature and the description of a function."""
    signature = str(inspect.signature(function)).replace("(self, ", "(").replace("'", '"')
    signature = signature.replace('"Model"', "Model")
    for module in MODULES:
        signature = signature.replace(f"{module}.", "")
    return f"## {name}\n\n    {name}{signature}\n\n{inspect.getdoc(function)}\n"


def page() -> str:
    """Returns docs/python.md."""
    parts = [HEAD, section("bert_jax.load", bert_jax.load)]
    for name, method in vars(Model).items():
        if not name.startswith("_") and name != "check" and inspect.isfunction(method):
            parts.append(section(f"model.{name}", method))
    parts.append(section("AttentionWeights", AttentionWeights))
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
