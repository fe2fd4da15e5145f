"""Finds the model of a config, and what its file says about its parameters.

registry.ModelPart names what such a file has; its `make(config, vocabulary_size, **fields)` returns a network.

The network is the field `network` of an objective's module: its parameters are in the subtree `network` of all, beside
those of heads. The layers of a subtree of the body are its parts `blocks_0`, `blocks_1`, ...
"""

from collections.abc import Iterable

import jax
from flax import linen as nn

from bert_jax.layers import counts
from bert_jax.parallel.mesh import RULES, by_path, match, path_name
from bert_jax.registry import part_of

NETWORK = "network"  # the field of the module of an objective
# (path pattern, whether weight decay applies): the first match wins. Biases and scales of layer norms are excluded, as
# in the original BERT.
DECAY = (
    (r"(^|/)(bias|scale)$", False),
    (r"(^|/)(kernel|words|positions|segments|weights)$", True),
)


def make(config, vocabulary_size: int, **fields) -> nn.Module:
    """Returns the network that `config.model.name` names. The file name is the registry.

    fields: what the objective and the program decide about it, such as causal=True; see attention_spec.Spec.
    """
    return part_of(config, "model").make(config, vocabulary_size, **fields)


def body(config) -> tuple[str, ...]:
    """Returns the BODY of the model's file, as subtrees of all parameters."""
    return tuple(map(in_network, part_of(config, "model").BODY))


def parameters(config, params, vocabulary: int) -> dict[str, int]:
    """Returns the numbers of parameters of the model and of its body, under their keys in run.json."""
    inside = tuple(f"{subtree}/" for subtree in body(config))
    return {
        "parameters": counts.count(params, vocabulary),
        "body_parameters": counts.count(params, vocabulary, inside),
    }


def in_network(subtree: str) -> str:
    """Returns a subtree of the network as a subtree of all parameters."""
    return f"{NETWORK}/{subtree}".rstrip("/")


def taken(config, name: str) -> dict[str, str]:
    """Returns {subtree of the body of another model: subtree of this one}, by the TAKES of the model's file; of all
    parameters."""
    subtrees = part_of(config, "model").TAKES.get(name, {})
    return {in_network(source): in_network(target) for source, target in subtrees.items()}


def shardings(config) -> tuple:
    """Returns the RULES of the model's file, and then those of mesh.py."""
    return (*part_of(config, "model").RULES, *RULES)


def decayed(config, params):
    """Returns a tree of bools: whether weight decay applies to a parameter, by the first rule that matches its path.

    Raises BadInput for a parameter that no rule names.
    """
    rules = (*part_of(config, "model").DECAY, *DECAY)
    return jax.tree.map_with_path(lambda path, _: match(path_name(path), rules)[1], params)


def subtree_of(path: str, body: Iterable[str]) -> str:
    """Returns the subtree of the body that a parameter belongs to; '' if it belongs to a head."""
    return next((subtree for subtree in body if path.startswith(f"{subtree}/")), "")


def layers_above(config, params):
    """Returns a tree of ints: the number of layers above the one that a parameter belongs to.

    The layers are, from the top: the heads with the pooler, each block of a subtree of the body, and its embeddings.
    The norm after the last block belongs to it. Each subtree is counted by itself: the last blocks of an encoder and of
    a decoder have one layer above.
    """
    subtrees = body(config)
    blocks = {}
    for path in by_path(params):
        subtree, part = split(path, subtrees)
        if part.startswith("blocks_"):
            blocks.setdefault(subtree, set()).add(part)

    def above(path, _):
        subtree, part = split(path_name(path), subtrees)
        if not subtree or part == "pooler":
            return 0
        if part == "final_norm":
            return 1
        count = len(blocks.get(subtree, ()))
        if part.startswith("blocks_"):
            return count - int(part.removeprefix("blocks_"))
        return 1 + count

    return jax.tree.map_with_path(above, params)


def split(path: str, body: Iterable[str]) -> tuple[str, str]:
    """Returns the subtree of the body that a parameter belongs to, and the part of it, such as 'blocks_0'."""
    subtree = subtree_of(path, body)
    part = path.removeprefix(f"{subtree}/").partition("/")[0]
    return subtree, part
