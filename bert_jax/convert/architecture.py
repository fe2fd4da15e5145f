"""Declares what transformers has for a model of bert_jax: classes, names of parameters, and settings."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bert_jax.registry import Interface, nothing


def read_unchanged(load: Callable, shapes: dict, values: dict) -> tuple[Callable, dict]:
    """Returns the tensors of files that have those of `parts` alone."""
    return load, shapes


def write_unchanged(tensors: dict, vocabulary) -> dict:
    """Returns the tensors of `parts`, of which there are no others in files."""
    return tensors


@dataclass(frozen=True, kw_only=True)
class Architecture(Interface):
    """An architecture of transformers whose network is a model of bert_jax.

    prefix: beginning of its classes in transformers.
    model_type: in its config.json.
    title: its name in a model card, by default `prefix`.
    tokenizer: class of a tokenizer in transformers whose files name none.

    parts: parameters: (part, scope in bert_jax, in transformers, rows); {} is the number of a layer, from 0 or from the
        number at the end on. The part `decoder` has as many layers as `decoder_layers` says. A row is (axes, name in
        bert_jax, in transformers) of a tensor, of a dense layer with `kernel` and `bias`, or of a norm with `scale` and
        `bias`. If parameters share a tensor, stacked along its outputs, their place in it and their number follow; 0, 1
        for a tensor whose name does not end with `weight` or `bias`.
    is_transposed: whether kernels of two axes have the layout of PyTorch's linear layers. Those of three axes have
        that of bert_jax.
    body: beginnings of the names outside of heads; the first is that of the network.
    bare: beginnings of names in a network without heads, which lack that of the network.
    buffers: tensors in files that are no parameters; {} is a number.
    zeros: those among them that must be zero, because the model here has none.
    tied: {name of a tensor: that of its copy}: the output matrix is the word embeddings.
    label_layers: {objective: the layer of its labels}; "classifier" for others.
    renamed: {objective: (part of a name, what replaces it)} in the class of the objective.

    keys: {key of config.json: (key of config.model, default)}; the default is 0 for a required key.
    fixed: {key of config.json that changes the model: the supported value}.
    tokens: {key of config.json: name of the special token whose id it must be}.
    plain: {key of config.model: the one value that transformers has, without a key in config.json}.
    choices: (model) -> {key of config.model: the values that transformers has}, besides `plain`.
    pools: values of objective.pool that transformers has.
    objectives: {objective: (end of its class in transformers, its task in usage.md)} of all that transformers has; by
        default those of `pretraining`, whose class depends on the heads, and names.LABELERS.
    pretraining: objectives.
    objective: objective.name of its models, if that is another than a default config has.
    sizes: (model) -> {axis: size} of axes of its own; parameters with an axis of size 0 do not exist.
    orders: (model) -> {axis: the numbers along it in the order of transformers}.

    read_tensors: (name -> array, {name: shape}, config.json) of the tensors of files -> the first two, of those of
        `parts`.
    write_tensors: ({name: array} of the tensors of `parts`, vocabulary) -> the same of the tensors of files.
    read_settings: (config.json, its path) -> keys of config.model besides `plain`.
    write_settings: (model, vocabulary) -> keys of config.json besides `keys` and `fixed`.
    write_label_settings: (config) -> the same of a fine-tuned model.
    write_generation: (config, vocabulary) -> content of generation_config.json.
    default_keys: (length, directory) -> overrides of a default config with rows of a length, for the model in a
        directory.
    """

    prefix: str
    model_type: str
    title: str = ""
    tokenizer: str

    parts: tuple
    is_transposed: bool = True
    body: tuple
    bare: tuple
    buffers: tuple = ()
    zeros: tuple = ()
    tied: dict
    label_layers: dict = field(default_factory=dict)
    renamed: dict = field(default_factory=dict)

    keys: dict
    fixed: dict
    tokens: dict = field(default_factory=dict)
    plain: dict = field(default_factory=dict)
    choices: Callable = nothing
    pools: tuple = ("summary",)
    objectives: dict = field(default_factory=dict)
    pretraining: tuple = ("mlm",)
    objective: str = ""
    sizes: Callable = nothing
    orders: Callable = nothing

    read_tensors: Callable = read_unchanged
    write_tensors: Callable = write_unchanged
    read_settings: Callable
    write_settings: Callable
    write_label_settings: Callable = nothing
    write_generation: Callable = nothing
    default_keys: Callable = nothing

    @property
    def generates(self) -> bool:
        """Whether its models generate texts, which have no frame."""
        return "causal_lm" in self.objectives
