"""The Transformer in Hugging Face transformers, where it is MarianMTModel: parameters and settings.

Marian's positions have all sines first; those of layers/positions.py alternate with the cosines. So its hidden states
have another order (`orders`), in which the network computes the same. The alternative, a table of positions in the
file, is lost as soon as transformers saves the model.

A width of the attention, D width, F feed-forward width, V vocabulary.
"""

from pathlib import Path

import numpy as np

from bert_jax.convert import config_json
from bert_jax.convert.architecture import Architecture
from bert_jax.storage import json_file

# --- Parameters -----------------------------------------------------------------------------------

BLOCK = (
    ("DA", "attention/query", "self_attn.q_proj"),
    ("DA", "attention/key", "self_attn.k_proj"),
    ("DA", "attention/value", "self_attn.v_proj"),
    ("AD", "attention/out", "self_attn.out_proj"),
    ("D", "attention_norm", "self_attn_layer_norm"),
    ("DF", "feed_forward/up", "fc1"),
    ("FD", "feed_forward/down", "fc2"),
    ("D", "feed_forward_norm", "final_layer_norm"),
)
CONTEXT = (
    ("DA", "context/query", "encoder_attn.q_proj"),
    ("DA", "context/key", "encoder_attn.k_proj"),
    ("DA", "context/value", "encoder_attn.v_proj"),
    ("AD", "context/out", "encoder_attn.out_proj"),
    ("D", "context_norm", "encoder_attn_layer_norm"),
)
ENCODER = "network/encoder/"
DECODER = "network/decoder/"
PARTS = (
    ("network", ENCODER, "model.", [("VD", "embedder/words", "shared.weight")]),
    ("network", ENCODER + "blocks_{}/", "model.encoder.layers.{}.", BLOCK),
    ("decoder", DECODER + "blocks_{}/", "model.decoder.layers.{}.", BLOCK + CONTEXT),
)

# --- Settings: keys of MarianConfig ---------------------------------------------------------------

KEYS = {
    "encoder_layers": ("layers", 0),
    "decoder_layers": ("decoder_layers", 0),
    "d_model": ("width", 0),
    "encoder_attention_heads": ("heads", 0),
    "encoder_ffn_dim": ("feed_forward", 0),
    "max_position_embeddings": ("max_length", 0),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "activation_dropout": ("hidden_dropout", 0.0),
    "init_std": ("initializer", 0.02),
}
FIXED = {
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "is_encoder_decoder": True,
}
# {size of the decoder: that of the encoder, which it must equal}
SAME = {
    "decoder_attention_heads": "encoder_attention_heads",
    "decoder_ffn_dim": "encoder_ffn_dim",
    "decoder_vocab_size": "vocab_size",
}
# Values of keys that a file lacks, where these are no values of FIXED or SAME.
ABSENT = {"scale_embedding": False, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096}
TOKENS = {
    "decoder_start_token_id": "cls",
    "eos_token_id": "sep",
    "pad_token_id": "pad",
}
BEAMS = 4  # arXiv:1706.03762, section 6.1
MAX_PIECES = 100  # of a text in a default config
EXTRA = "bert_jax_extra_pieces"  # the key of generation_config.json with task.extra_pieces


def sizes(model) -> dict[str, int]:
    return {"A": model["width"]}


def orders(model) -> dict[str, np.ndarray]:
    """Returns the hidden states in Marian's order: the sines, then the cosines."""
    numbers = np.arange(model["width"])
    return {"D": np.concatenate([numbers[::2], numbers[1::2]])}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    values = ABSENT | values
    fixed = FIXED | {ours: values.get(theirs) for ours, theirs in SAME.items()}
    return config_json.read_keys(values, KEYS, fixed, path, "activation_function")


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return {
        "activation_function": config_json.name_of(model.activation),
        "init_std": model.initializer or model.width**-0.5,
        "decoder_attention_heads": model.heads,
        "decoder_ffn_dim": model.feed_forward,
        "decoder_vocab_size": vocabulary.size,
        "forced_eos_token_id": None,  # by default, token 0 ends a text that is too long
        **token_ids(vocabulary),
    }


def token_ids(vocabulary) -> dict[str, int]:
    """Returns the special tokens among the keys of config.json."""
    return {key: getattr(vocabulary, name) for key, name in TOKENS.items()}


def write_generation(config, vocabulary) -> dict:
    """Returns the content of generation_config.json: a beam search as in the paper.

    transformers divides log-probabilities by n^length_penalty, and has no limit that depends on the source: EXTRA is
    for `read_limit`. It lacks objective.length_rule=gnmt, which approaches n^length_penalty, up to a constant
    factor, for large n.
    """
    return {
        **token_ids(vocabulary),
        "num_beams": BEAMS,
        "length_penalty": config.objective.length_penalty,
        "early_stopping": "never",  # ends a search once no open hypothesis can become better
        "max_length": config.model.max_length + 1,  # with the begin token
        EXTRA: config.task.get("extra_pieces", 0),
    }


def default_keys(length: int, directory: Path) -> list[str]:
    """Returns what a default config with rows of this length must override for the model of a directory."""
    return [
        "objective.name=translation",
        "task.name=translation",
        f"task.max_pieces={min(MAX_PIECES, length - 2)}",
        f"task.extra_pieces={read_limit(directory)}",
    ]


def read_limit(directory: Path) -> int:
    """Returns the task.extra_pieces of an export; 0 of another model."""
    return json_file.read_optional(directory / "generation_config.json").get(EXTRA, 0)


MARIAN = Architecture(
    prefix="Marian",
    model_type="marian",
    tokenizer="MarianTokenizer",
    parts=PARTS,
    body=("model.",),
    bare=("shared.", "encoder.", "decoder."),
    buffers=("final_logits_bias",),
    zeros=("final_logits_bias",),
    tied={
        "lm_head.weight": "model.shared.weight",
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
    },
    keys=KEYS,
    fixed=FIXED,
    tokens=TOKENS,
    plain={"norm": "post", "epsilon": 1e-5},
    objectives={"translation": ("MTModel", "translation")},
    sizes=sizes,
    orders=orders,
    read_settings=read_settings,
    write_settings=write_settings,
    write_generation=write_generation,
    default_keys=default_keys,
)
