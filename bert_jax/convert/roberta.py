"""RoBERTa in Hugging Face transformers: parameters and settings.

Its files have a row of positions for each id up to that of padding, which no token reads: the first token has the
position after it. One segment is added to every token.

D width, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert_jax.convert import bert, config_json
from bert_jax.convert.architecture import Architecture
from bert_jax.errors import BadInput

# --- Parameters -----------------------------------------------------------------------------------

POSITIONS = "roberta.embeddings.position_embeddings.weight"
SEGMENTS = "roberta.embeddings.token_type_embeddings.weight"
POOLER = "roberta.pooler."
MLM = (
    ("DD", "dense", "dense"),
    ("D", "norm", "layer_norm"),
    ("V", "bias", "bias"),
)
PARTS = (
    ("network", "network/", "roberta.embeddings.", (*bert.EMBEDDINGS[:2], bert.EMBEDDINGS[3])),
    ("network", "network/blocks_{}/", "roberta.encoder.layer.{}.", bert.BLOCK),
    ("pooler", "network/", POOLER, [("DD", "pooler", "dense")]),
    ("mlm", "mlm/", "lm_head.", MLM),
)


def read_tensors(load: Callable, shapes: dict, values: dict) -> tuple[Callable, dict]:
    """Returns both without the first rows of positions; the segment is added to the others, of which each token has
    one."""
    first = first_position(values)
    shape = shapes.get(POSITIONS, ())
    has_segment = shape and shapes.get(SEGMENTS) == (1, *shape[1:])
    changed = dict(shapes)
    if shape:
        changed[POSITIONS] = (shape[0] - first, *shape[1:])
    if has_segment:
        del changed[SEGMENTS]

    def load_changed(name: str) -> np.ndarray:
        array = load(name)
        if name != POSITIONS:
            return array
        array = array[first:].astype(np.float32)
        return array + load(SEGMENTS) if has_segment else array

    return load_changed, changed


def write_tensors(tensors: dict, vocabulary) -> dict:
    """Returns the tensors with first rows of positions and a segment, which are zero."""
    positions = tensors[POSITIONS]
    first = vocabulary.pad + 1
    return tensors | {
        POSITIONS: np.pad(positions, [(first, 0), (0, 0)]),
        SEGMENTS: np.zeros_like(positions[:1]),
    }


# --- Settings: keys of RobertaConfig --------------------------------------------------------------

KEYS = dict(bert.KEYS)
del KEYS["type_vocab_size"]
# The head has this activation whatever the key says.
FIXED = bert.FIXED | {"type_vocab_size": 1, "hidden_act": "gelu"}
ROWS = "max_position_embeddings"


def first_position(values: dict) -> int:
    """Returns the row of positions of the first token, by config.json."""
    return values.get("pad_token_id", 1) + 1


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    pad = values.get("pad_token_id", 1)
    if type(pad) is not int or pad < 0:
        raise BadInput(f"{path}: pad_token_id is {pad!r}, expected an id")
    rows = config_json.read_number(values, ROWS, path, 0)
    values = values | {ROWS: rows - first_position(values)}
    return config_json.read_keys(values, KEYS, FIXED, path, "hidden_act")


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return bert.write_settings(model, vocabulary) | {
        ROWS: model.max_length + vocabulary.pad + 1,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
    }


def default_keys(length: int, directory: Path) -> list[str]:
    """Returns what a default config with rows of this length must override."""
    return ["task.name=full_sentences"]


ROBERTA = Architecture(
    prefix="Roberta",
    model_type="roberta",
    title="RoBERTa",
    tokenizer="RobertaTokenizer",
    parts=PARTS,
    body=("roberta.",),
    bare=bert.BERT.bare,
    buffers=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"),
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    label_layers={"classifier": "classifier.out_proj", "spans": "qa_outputs"},
    renamed={"classifier": (POOLER, "classifier.")},
    keys=KEYS,
    fixed=FIXED,
    plain={"activation": "gelu", "positions": "learned"},
    read_settings=read_settings,
    write_settings=write_settings,
    read_tensors=read_tensors,
    write_tensors=write_tensors,
    default_keys=default_keys,
)
