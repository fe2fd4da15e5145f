"""GPT in Hugging Face transformers: parameters and settings, with those that it shares with GPT-2.

D width, V vocabulary, P positions.
"""

from dataclasses import replace
from pathlib import Path

from bert_jax.convert import config_json, gpt2
from bert_jax.convert.gpt2 import BLOCK, GPT2

# --- Parameters -----------------------------------------------------------------------------------

EMBEDDINGS = (
    ("VD", "embedder/words", "tokens_embed.weight"),
    ("PD", "embedder/positions", "positions_embed.weight"),
)
PARTS = (
    ("network", "network/", "transformer.", EMBEDDINGS),
    ("network", "network/blocks_{}/", "transformer.h.{}.", BLOCK),
)

# --- Settings: keys of OpenAIGPTConfig ------------------------------------------------------------

FIXED = {"tie_word_embeddings": True}
ABSENT = {"resid_pdrop": 0.1, "embd_pdrop": 0.1}  # values of keys that a file lacks
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}  # its gelu is the tanh approximation


def choices(model) -> dict[str, tuple]:
    """Returns {key of config.model: the values that GPT has}."""
    return {
        "activation": tuple(ACTIVATIONS.values()),
        "feed_forward": (4 * model.width,),
    }


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    values = ABSENT | values
    fixed = FIXED | {"embd_pdrop": values["resid_pdrop"]}
    settings = config_json.read_keys(values, gpt2.COMMON, fixed, path, "afn", ACTIVATIONS)
    return settings | {"feed_forward": 4 * settings["width"]}


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return {
        "afn": config_json.name_of(model.activation, ACTIVATIONS),
        **gpt2.write_common(model, vocabulary),
    }


GPT = replace(
    GPT2,
    prefix="OpenAIGPT",
    model_type="openai-gpt",
    title="GPT",
    tokenizer="OpenAIGPTTokenizer",
    parts=PARTS,
    bare=("tokens_embed.", "positions_embed.", "position_ids", "h."),
    buffers=("transformer.position_ids", "transformer.h.{}.attn.bias"),  # of older files
    tied={"lm_head.weight": "transformer.tokens_embed.weight"},
    keys=gpt2.COMMON,
    fixed=FIXED,
    plain={"norm": "post", "positions": "learned"},
    choices=choices,
    read_settings=read_settings,
    write_settings=write_settings,
)
