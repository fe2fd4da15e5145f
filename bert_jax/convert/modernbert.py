"""ModernBERT in Hugging Face transformers: parameters and settings.

D width, F feed-forward width, V vocabulary.
"""

from pathlib import Path

from bert_jax.convert import config_json
from bert_jax.convert.architecture import Architecture
from bert_jax.errors import BadInput

# --- Parameters -----------------------------------------------------------------------------------

NETWORK = (
    ("VD", "embedder/words", "embeddings.tok_embeddings.weight"),
    ("D", "embedder_norm/scale", "embeddings.norm.weight"),
    ("D", "final_norm/scale", "final_norm.weight"),
)
BLOCK = (
    ("DD", "attention/query/kernel", "attn.Wqkv.weight", 0, 3),
    ("DD", "attention/key/kernel", "attn.Wqkv.weight", 1, 3),
    ("DD", "attention/value/kernel", "attn.Wqkv.weight", 2, 3),
    ("DD", "attention/out/kernel", "attn.Wo.weight"),
    ("D", "feed_forward_norm/scale", "mlp_norm.weight"),
    ("DF", "feed_forward/up/kernel", "mlp.Wi.weight", 0, 2),
    ("DF", "feed_forward/gate/kernel", "mlp.Wi.weight", 1, 2),
    ("FD", "feed_forward/down/kernel", "mlp.Wo.weight"),
)
NORM = (("D", "attention_norm/scale", "attn_norm.weight"),)
HEAD = (
    ("DD", "dense/kernel", "dense.weight"),
    ("D", "norm/scale", "norm.weight"),
)
# Fine-tuned models have the part `head`, too; see heads.Classifier.
PARTS = (
    ("network", "network/", "model.", NETWORK),
    ("network", "network/blocks_{}/", "model.layers.{}.", BLOCK),
    ("network", "network/blocks_{}/", "model.layers.{}.", NORM, 1),  # none in layer 0
    ("head", "mlm/", "head.", HEAD),
    ("mlm", "mlm/", "decoder.", (("V", "bias", "bias"),)),
)

# --- Settings: keys of ModernBertConfig -----------------------------------------------------------

# Version 5 has `layer_types` and `rope_parameters` instead of the last three.
EVERY = "global_attn_every_n_layers"
KEYS = {
    **config_json.SIZES,
    "initializer_range": ("initializer", 0.02),
    "attention_dropout": ("dropout", 0.0),
    "norm_eps": ("epsilon", 1e-5),
    "local_attention": ("window", 128),
    EVERY: ("full_every", 3),
    "global_rope_theta": ("rotary_base", 160_000.0),
    "local_rope_theta": ("local_rotary_base", 10_000.0),
}
FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "rope_scaling": None,
}
POOLING = {"cls": "first", "mean": "mean"}  # {value of classifier_pooling: of model.pooling}
# {kind of attention: key of its rotary base before version 5}
FULL, LOCAL = "full_attention", "sliding_attention"
BASES = {FULL: "global_rope_theta", LOCAL: "local_rope_theta"}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    values = older_keys(values, path)
    settings = config_json.read_keys(values, KEYS, FIXED, path, "hidden_activation")
    settings["pooling"] = config_json.read_choice(values, "classifier_pooling", path, POOLING)
    return settings


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    activation = config_json.name_of(model.activation)
    bases = {FULL: model.rotary_base, LOCAL: model.local_rotary_base}
    ropes = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
    return {
        "layer_types": layer_types(model.full_every, model.layers),
        "rope_parameters": ropes,
        "hidden_activation": activation,
        "classifier_activation": activation,
        "classifier_pooling": config_json.name_of(model.pooling, POOLING),
        "cls_token_id": vocabulary.cls,
        "bos_token_id": vocabulary.cls,
        "sep_token_id": vocabulary.sep,
        "eos_token_id": vocabulary.sep,
    }


def write_label_settings(config) -> dict:
    """Returns the keys of config.json of a fine-tuned model."""
    pool = config.objective.get("pool", "summary").replace("summary", config.model.pooling)
    return {
        "classifier_pooling": config_json.name_of(pool, POOLING),
        "classifier_dropout": config.objective.dropout,
    }


def older_keys(values: dict, path: Path) -> dict:
    """Returns a config.json whose keys of version 5 have become older ones.

    Raises BadInput, with the path of the file, for other layers, rotary positions or heads than those of
    models/modernbert.py.
    """
    activation = values.get("hidden_activation", "gelu")
    of_head = values.get("classifier_activation", "gelu")
    if of_head != activation:
        raise BadInput(f"{path}: classifier_activation is {of_head!r}, expected {activation!r}")
    older = {}
    if values.get("layer_types") is not None:
        older[EVERY] = read_full_every(values, path)
    ropes = values.get("rope_parameters") or {}
    if not are_default(ropes):
        expected = f"expected {FULL} and {LOCAL} with rope_type 'default'"
        raise BadInput(f"{path}: rope_parameters is {ropes!r}, {expected}")
    for kind, rope in ropes.items():
        if "rope_theta" in rope:
            older[BASES[kind]] = rope["rope_theta"]
    return values | older


def read_full_every(values: dict, path: Path) -> int:
    """Returns N of a config.json whose `layer_types` have full attention in every Nth layer. Raises BadInput."""
    types = values["layer_types"]
    if isinstance(types, list) and len(types) == values.get("num_hidden_layers"):
        second = types.index(FULL, 1) if FULL in types[1:] else len(types)
        for number in (values.get(EVERY, 3), second):
            is_size = type(number) is int and number > 0
            if is_size and layer_types(number, len(types)) == types:
                return number
    expected = f"expected {FULL} in every Nth layer, from the first on"
    raise BadInput(f"{path}: layer_types is {types!r}, {expected}")


def are_default(ropes) -> bool:
    """Returns whether `rope_parameters` have no other rotary positions than those of models/modernbert.py."""
    if not isinstance(ropes, dict) or ropes.keys() - BASES.keys():
        return False
    return all(
        isinstance(rope, dict) and rope.get("rope_type", "default") == "default"
        for rope in ropes.values()
    )


def layer_types(every: int, layers: int) -> list[str]:
    """Returns the kind of attention of each layer."""
    return [LOCAL if number % every else FULL for number in range(layers)]


MODERNBERT = Architecture(
    prefix="ModernBert",
    model_type="modernbert",
    title="ModernBERT",
    tokenizer="PreTrainedTokenizerFast",
    parts=PARTS,
    body=("model.", "head.dense.", "head.norm."),
    bare=("embeddings.", "layers.", "final_norm."),
    buffers=("model.embeddings.position_ids",),
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    keys=KEYS,
    fixed=FIXED,
    pools=("summary", "first", "mean"),
    read_settings=read_settings,
    write_settings=write_settings,
    write_label_settings=write_label_settings,
)
