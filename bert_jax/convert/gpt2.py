"""GPT-2 in Hugging Face transformers: parameters and settings.

D width, F feed-forward width, V vocabulary, P positions.
"""

from pathlib import Path

from bert_jax.convert import config_json
from bert_jax.convert.architecture import Architecture

# --- Parameters -----------------------------------------------------------------------------------

NETWORK = (
    ("VD", "embedder/words", "wte.weight"),
    ("PD", "embedder/positions", "wpe.weight"),
    ("D", "final_norm", "ln_f"),
)
BLOCK = (
    ("DD", "attention/query/kernel", "attn.c_attn.weight", 0, 3),
    ("DD", "attention/key/kernel", "attn.c_attn.weight", 1, 3),
    ("DD", "attention/value/kernel", "attn.c_attn.weight", 2, 3),
    ("D", "attention/query/bias", "attn.c_attn.bias", 0, 3),
    ("D", "attention/key/bias", "attn.c_attn.bias", 1, 3),
    ("D", "attention/value/bias", "attn.c_attn.bias", 2, 3),
    ("DD", "attention/out", "attn.c_proj"),
    ("D", "attention_norm", "ln_1"),
    ("DF", "feed_forward/up", "mlp.c_fc"),
    ("FD", "feed_forward/down", "mlp.c_proj"),
    ("D", "feed_forward_norm", "ln_2"),
)
PARTS = (
    ("network", "network/", "transformer.", NETWORK),
    ("network", "network/blocks_{}/", "transformer.h.{}.", BLOCK),
)

# --- Settings: keys of GPT2Config -----------------------------------------------------------------

COMMON = {
    "n_layer": ("layers", 0),
    "n_embd": ("width", 0),
    "n_head": ("heads", 0),
    "n_positions": ("max_length", 0),
    "resid_pdrop": ("dropout", 0.1),
    "attn_pdrop": ("attention_dropout", 0.1),
    "layer_norm_epsilon": ("epsilon", 1e-5),
    "initializer_range": ("initializer", 0.02),
}
KEYS = COMMON | {"n_inner": ("feed_forward", 0)}
FIXED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
# Values of keys that a file lacks.
ABSENT = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "activation_function": "gelu_new"}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    values = ABSENT | values
    if values.get("n_inner") is None:
        values["n_inner"] = 4 * config_json.read_number(values, "n_embd", path, 0)
    fixed = FIXED | {"embd_pdrop": values["resid_pdrop"]}
    return config_json.read_keys(values, KEYS, fixed, path, "activation_function")


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return {
        "activation_function": config_json.name_of(model.activation),
        **write_common(model, vocabulary),
    }


def write_common(model, vocabulary) -> dict:
    """Returns the keys of config.json that GPT has, too."""
    return {
        "n_ctx": model.max_length,  # which other programs read
        "embd_pdrop": model.dropout,
        "bos_token_id": vocabulary.begin,
        "eos_token_id": vocabulary.sep,
    }


def write_generation(config, vocabulary) -> dict:
    """Returns the content of generation_config.json."""
    pad = vocabulary.sep if vocabulary.pad is None else vocabulary.pad
    return {
        "bos_token_id": vocabulary.begin,
        "eos_token_id": vocabulary.sep,
        "pad_token_id": pad,
        "max_length": config.model.max_length,
    }


def default_keys(length: int, directory: Path) -> list[str]:
    """Returns what a default config with rows of this length must override."""
    return ["objective.name=causal_lm", "task.name=token_blocks", "corpus.sentences=none"]


GPT2 = Architecture(
    prefix="GPT2",
    model_type="gpt2",
    title="GPT-2",
    tokenizer="GPT2Tokenizer",
    parts=PARTS,
    is_transposed=False,
    body=("transformer.",),
    bare=("wte.", "wpe.", "h.", "ln_f."),
    buffers=("transformer.h.{}.attn.bias", "transformer.h.{}.attn.masked_bias"),  # of older files
    tied={"lm_head.weight": "transformer.wte.weight"},
    # Of its other classes, whose heads are not read.
    label_layers={
        "classifier": "score",
        "spans": "qa_outputs",
        "multiple_choice": "multiple_choice_head",
    },
    keys=KEYS,
    fixed=FIXED,
    plain={"norm": "pre", "positions": "learned"},
    objectives={"causal_lm": ("LMHeadModel", "text-generation")},
    read_settings=read_settings,
    write_settings=write_settings,
    write_generation=write_generation,
    default_keys=default_keys,
)
