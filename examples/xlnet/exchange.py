"""XLNet in Hugging Face transformers: parameters and settings.

D width, H heads, K head size, F feed-forward width, V vocabulary.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert_jax.convert import config_json
from bert_jax.convert.architecture import Architecture

# --- Parameters -----------------------------------------------------------------------------------

NETWORK = (
    ("VD", "embedder/words", "word_embedding.weight"),
    ("D", "mask_embedding", "mask_emb", 0, 1),
)
BLOCK = (
    ("DD", "attention/query/kernel", "rel_attn.q", 0, 1),
    ("DD", "attention/key/kernel", "rel_attn.k", 0, 1),
    ("DD", "attention/value/kernel", "rel_attn.v", 0, 1),
    ("DD", "attention/out/kernel", "rel_attn.o", 0, 1),
    ("DD", "attention/distance/kernel", "rel_attn.r", 0, 1),
    ("HK", "attention/content_bias", "rel_attn.r_w_bias"),
    ("HK", "attention/distance_bias", "rel_attn.r_r_bias"),
    ("HK", "attention/segment_bias", "rel_attn.r_s_bias"),
    ("2HK", "attention/segment_keys", "rel_attn.seg_embed", 0, 1),
    ("D", "attention_norm", "rel_attn.layer_norm"),
    ("DF", "feed_forward/up", "ff.layer_1"),
    ("FD", "feed_forward/down", "ff.layer_2"),
    ("D", "feed_forward_norm", "ff.layer_norm"),
)
PARTS = (
    ("network", "network/", "transformer.", NETWORK),
    ("network", "network/blocks_{}/", "transformer.layer.{}.", BLOCK),
    ("pooler", "network/", "sequence_summary.", [("DD", "pooler", "summary")]),
    ("lm", "lm/", "lm_loss.", [("V", "bias", "bias")]),
)
MASK = "transformer.mask_emb"
# Matrices with heads as an axis, [D, H, K]: those of inputs, and that of outputs.
INPUT = re.compile(r"rel_attn\.[qkvr]$")
OUTPUT = re.compile(r"rel_attn\.o$")


def sizes(model) -> dict[str, int]:
    """Returns the sizes of the axes of heads."""
    return {"H": model["heads"], "K": model["width"] // model["heads"]}


def read_tensors(load: Callable, shapes: dict, values: dict) -> tuple[Callable, dict]:
    """Returns the tensors of files as matrices in the layout of linear layers, [outputs, inputs], and the embedding of
    predicted tokens as a vector."""

    def load_matrix(name: str):
        array = load(name)
        if INPUT.search(name):
            return array.reshape(len(array), -1).T
        if OUTPUT.search(name):
            return array.reshape(len(array), -1)
        return array.reshape(-1) if name == MASK else array

    def shape_of(name: str, shape: tuple) -> tuple:
        if name == MASK and shape[:2] == (1, 1):
            return shape[2:]
        if len(shape) != 3 or not (INPUT.search(name) or OUTPUT.search(name)):
            return shape
        width, heads, size = shape
        return (heads * size, width) if INPUT.search(name) else (width, heads * size)

    return load_matrix, {name: shape_of(name, shape) for name, shape in shapes.items()}


def write_tensors(tensors: dict, vocabulary) -> dict:
    """Returns the tensors of files, see `read_tensors`."""
    written = {}
    for name, array in tensors.items():
        if INPUT.search(name) or OUTPUT.search(name):
            heads = tensors[name[:-1] + "r_w_bias"].shape
            matrix = array.T if INPUT.search(name) else array
            array = np.ascontiguousarray(matrix.reshape(-1, *heads))  # as files have it
        written[name] = array.reshape(1, 1, -1) if name == MASK else array
    return written


# --- Settings: keys of XLNetConfig ----------------------------------------------------------------

KEYS = {
    "n_layer": ("layers", 0),
    "d_model": ("width", 0),
    "n_head": ("heads", 0),
    "d_inner": ("feed_forward", 0),
    "dropout": ("dropout", 0.1),
    "initializer_range": ("initializer", 0.02),
    "layer_norm_eps": ("epsilon", 1e-12),
    # Keys that transformers lacks.
    "bert_jax_max_length": ("max_length", 512),
    "bert_jax_attention_dropout": ("attention_dropout", 0.1),
}
FIXED = {
    "attn_type": "bi",
    "bi_data": False,
    "clamp_len": -1,
    "same_length": False,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    # There, one rate is that of probabilities, too.
    values = {"bert_jax_attention_dropout": values.get("dropout", 0.1)} | values
    settings = config_json.read_keys(values, KEYS, FIXED, path, "ff_activation")
    return settings | {"type_vocabulary": 3}


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return {
        "d_head": model.width // model.heads,
        "ff_activation": config_json.name_of(model.activation),
        "bos_token_id": vocabulary.begin,
        "eos_token_id": vocabulary.sep,
    }


def default_keys(length: int, directory: Path) -> list[str]:
    """Returns what a default config with rows of this length must override."""
    return ["objective.name=xlnet.objective", "task.name=xlnet.task"]


XLNET = Architecture(
    prefix="XLNet",
    model_type="xlnet",
    title="XLNet (which bert_jax pretrains without a memory)",
    tokenizer="XLNetTokenizer",
    parts=PARTS,
    body=("transformer.",),
    bare=("word_embedding.", "mask_emb", "layer."),
    tied={"lm_loss.weight": "transformer.word_embedding.weight"},
    label_layers={"classifier": "logits_proj"},
    keys=KEYS,
    fixed=FIXED,
    objectives={
        "xlnet.objective": ("LMHeadModel", "feature-extraction"),
        "classifier": ("ForSequenceClassification", "text-classification"),
        "token_classifier": ("ForTokenClassification", "token-classification"),
    },
    sizes=sizes,
    read_tensors=read_tensors,
    write_tensors=write_tensors,
    read_settings=read_settings,
    write_settings=write_settings,
    default_keys=default_keys,
)
