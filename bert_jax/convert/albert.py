"""ALBERT in Hugging Face transformers: parameters and settings.

D width, E width of the embeddings, F feed-forward width, V vocabulary, P positions, S segments.
"""

from pathlib import Path

from bert_jax.convert import bert, config_json
from bert_jax.convert.architecture import Architecture

# --- Parameters -----------------------------------------------------------------------------------

EMBEDDINGS = (
    ("VE", "embedder/words", "word_embeddings.weight"),
    ("PE", "embedder/positions", "position_embeddings.weight"),
    ("SE", "embedder/segments", "token_type_embeddings.weight"),
    ("E", "embedder_norm", "LayerNorm"),
)
PROJECTION = (("ED", "embedder_dense", "embedding_hidden_mapping_in"),)
BLOCK = (
    ("DD", "attention/query", "attention.query"),
    ("DD", "attention/key", "attention.key"),
    ("DD", "attention/value", "attention.value"),
    ("DD", "attention/out", "attention.dense"),
    ("D", "attention_norm", "attention.LayerNorm"),
    ("DF", "feed_forward/up", "ffn"),
    ("FD", "feed_forward/down", "ffn_output"),
    ("D", "feed_forward_norm", "full_layer_layer_norm"),
)
MLM = (
    ("DE", "dense", "dense"),
    ("E", "norm", "LayerNorm"),
    ("V", "bias", "bias"),
)
LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0."  # the one of all layers
PARTS = (
    ("network", "network/", "albert.embeddings.", EMBEDDINGS),
    ("network", "network/", "albert.encoder.", PROJECTION),
    ("network", "network/blocks_0/", LAYER, BLOCK),
    ("pooler", "network/", "albert.", [("DD", "pooler", "pooler")]),
    ("mlm", "mlm/", "predictions.", MLM),
    ("pair", "", "", [("D2", "pair", "sop_classifier.classifier")]),
)

# --- Settings: keys of AlbertConfig ---------------------------------------------------------------

KEYS = {
    **bert.KEYS,
    "embedding_size": ("embedding_width", 128),
    "hidden_dropout_prob": ("dropout", 0.0),
    "attention_probs_dropout_prob": ("attention_dropout", 0.0),
}
ACTIVATION = "gelu_new"  # by default
FIXED = {
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "position_embedding_type": "absolute",
}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py, for several groups of
    layers, or several blocks in a group."""
    values = {"hidden_act": ACTIVATION} | values
    return config_json.read_keys(values, KEYS, FIXED, path, "hidden_act")


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model and special tokens."""
    ends = {"bos_token_id": vocabulary.cls, "eos_token_id": vocabulary.sep}
    return bert.write_settings(model, vocabulary) | ends


ALBERT = Architecture(
    prefix="Albert",
    model_type="albert",
    title="ALBERT",
    tokenizer="AlbertTokenizer",
    parts=PARTS,
    body=("albert.",),
    bare=("embeddings.", "encoder.", "pooler."),
    buffers=("albert.embeddings.position_ids", "albert.embeddings.token_type_ids"),
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    label_layers={"spans": "qa_outputs"},
    keys=KEYS,
    fixed=FIXED,
    plain={"positions": "learned"},
    sizes=lambda model: {"E": model["embedding_width"]},
    read_settings=read_settings,
    write_settings=write_settings,
)
