"""BERT and ModernBERT with causal attention in Hugging Face transformers: `is_decoder`, and `ModernBertDecoder`.

D width, F feed-forward width, V vocabulary.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from bert_jax.convert import bert, gpt2, modernbert

# The local layers of ModernBertDecoder attend to local_attention / 2 tokens, each token itself among them; here it is
# one more than half of the window.
EXTRA_WINDOW = 2


# An architecture that generates texts as GPT-2 does.
decoder_of = partial(
    replace,
    objective="causal_lm",
    write_generation=gpt2.write_generation,
    default_keys=gpt2.default_keys,
)


def ends(vocabulary) -> dict:
    """Returns the keys of config.json of what begins and ends a text."""
    return {"bos_token_id": vocabulary.begin, "eos_token_id": vocabulary.sep}


# --- BERT -----------------------------------------------------------------------------------------


def read_bert(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    return bert.read_settings(values | {"is_decoder": False}, path)


def write_bert(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return bert.write_settings(model, vocabulary) | ends(vocabulary)


BERT = decoder_of(
    bert.BERT,
    parts=(*bert.PARTS[:3], ("lm", "lm/", "cls.predictions.", bert.MLM)),
    fixed=bert.FIXED | {"is_decoder": True},
    objectives=gpt2.GPT2.objectives,
    read_settings=read_bert,
    write_settings=write_bert,
)

# --- ModernBERT -----------------------------------------------------------------------------------

BLOCK = (
    ("DD", "attention/query/kernel", "attn.q_proj.weight"),
    ("DD", "attention/key/kernel", "attn.k_proj.weight"),
    ("DD", "attention/value/kernel", "attn.v_proj.weight"),
    *modernbert.BLOCK[3:],
)


def read_modernbert(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    settings = modernbert.read_settings(values, path)
    settings["window"] -= EXTRA_WINDOW
    return settings


def write_modernbert(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    settings = modernbert.write_settings(model, vocabulary) | ends(vocabulary)
    return settings | {"local_attention": model.window + EXTRA_WINDOW}


MODERNBERT = decoder_of(
    modernbert.MODERNBERT,
    prefix="ModernBertDecoder",
    model_type="modernbert-decoder",
    body=("model.",),
    objectives={"causal_lm": ("ForCausalLM", "text-generation")},
    parts=(
        modernbert.PARTS[0],
        ("network", "network/blocks_{}/", "model.layers.{}.", BLOCK),
        modernbert.PARTS[2],
        ("lm", "lm/", "lm_head.", modernbert.HEAD),
        ("lm", "lm/", "decoder.", (("V", "bias", "bias"),)),
    ),
    read_settings=read_modernbert,
    write_settings=write_modernbert,
)
