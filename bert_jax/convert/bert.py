"""BERT in Hugging Face transformers and in Google's code: parameters and settings.

D width, F feed-forward width, V vocabulary, P positions, S segments.
"""

from pathlib import Path

from bert_jax.convert import config_json
from bert_jax.convert.architecture import Architecture

# --- Parameters -----------------------------------------------------------------------------------

EMBEDDINGS = (
    ("VD", "embedder/words", "word_embeddings.weight"),
    ("PD", "embedder/positions", "position_embeddings.weight"),
    ("SD", "embedder/segments", "token_type_embeddings.weight"),
    ("D", "embedder_norm", "LayerNorm"),
)
BLOCK = (
    ("DD", "attention/query", "attention.self.query"),
    ("DD", "attention/key", "attention.self.key"),
    ("DD", "attention/value", "attention.self.value"),
    ("DD", "attention/out", "attention.output.dense"),
    ("D", "attention_norm", "attention.output.LayerNorm"),
    ("DF", "feed_forward/up", "intermediate.dense"),
    ("FD", "feed_forward/down", "output.dense"),
    ("D", "feed_forward_norm", "output.LayerNorm"),
)
MLM = (
    ("DD", "dense", "transform.dense"),
    ("D", "norm", "transform.LayerNorm"),
    ("V", "bias", "bias"),
)
PARTS = (
    ("network", "network/", "bert.embeddings.", EMBEDDINGS),
    ("network", "network/blocks_{}/", "bert.encoder.layer.{}.", BLOCK),
    ("pooler", "network/", "bert.", [("DD", "pooler", "pooler.dense")]),
    ("mlm", "mlm/", "cls.predictions.", MLM),
    ("pair", "", "cls.", [("D2", "pair", "seq_relationship")]),
)

# --- Settings: keys of BertConfig -----------------------------------------------------------------

EPSILON = "layer_norm_eps"
ORIGINAL_EPSILON = 1e-12  # Google's BERT has it in its code
KEYS = {
    **config_json.SIZES,
    "type_vocab_size": ("type_vocabulary", 2),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "initializer_range": ("initializer", 0.02),
    EPSILON: ("epsilon", ORIGINAL_EPSILON),
}
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    return config_json.read_keys(values, KEYS, FIXED, path, "hidden_act")


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return {"hidden_act": config_json.name_of(model.activation)}


BERT = Architecture(
    prefix="Bert",
    model_type="bert",
    title="BERT",
    tokenizer="BertTokenizer",
    parts=PARTS,
    body=("bert.",),
    bare=("embeddings.", "encoder.", "pooler."),
    buffers=("bert.embeddings.position_ids", "bert.embeddings.token_type_ids"),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    label_layers={"spans": "qa_outputs"},
    keys=KEYS,
    fixed=FIXED,
    plain={"norm": "post", "gated": False, "positions": "learned"},
    read_settings=read_settings,
    write_settings=write_settings,
)

# --- bert_config.json of Google's code ------------------------------------------------------------


def from_google(values: dict) -> dict:
    """Converts bert_config.json to config.json."""
    values = {"model_type": "bert"} | values | {EPSILON: ORIGINAL_EPSILON}
    if values.get("hidden_act", "gelu") == "gelu":  # the tanh approximation
        values["hidden_act"] = "gelu_new"
    return values


def to_google(values: dict) -> dict:
    """Converts config.json, of the values in names.exportable, to bert_config.json."""
    left_out = {"model_type", "pad_token_id", EPSILON, *FIXED}
    values = {key: value for key, value in values.items() if key not in left_out}
    return values | {"hidden_act": values["hidden_act"].removesuffix("_new")}
