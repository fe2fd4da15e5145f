"""The decoder in a program whose kernels have the layout of bert_jax, and whose layers have one for queries, keys and
values: parameters and settings.

A width of the attention, D width, F feed-forward width, V vocabulary, P positions.
"""

from bert_jax.convert import config_json
from bert_jax.convert.architecture import Architecture

EMBEDDINGS = (
    ("VD", "embedder/words", "wte.weight"),
    ("PD", "embedder/positions", "wpe", 0, 1),
    ("D", "final_norm", "ln_f"),
)
BLOCK = (
    ("D", "attention_norm", "ln_1"),
    ("DA", "attention/query/kernel", "attn.c_attn.weight", 0, 3),
    ("DA", "attention/key/kernel", "attn.c_attn.weight", 1, 3),
    ("DA", "attention/value/kernel", "attn.c_attn.weight", 2, 3),
    ("A", "attention/query/bias", "attn.c_attn.bias", 0, 3),
    ("A", "attention/key/bias", "attn.c_attn.bias", 1, 3),
    ("A", "attention/value/bias", "attn.c_attn.bias", 2, 3),
    ("AD", "attention/out", "attn.c_proj"),
    ("D", "feed_forward_norm", "ln_2"),
    ("DF", "feed_forward/up", "mlp.c_fc"),
    ("FD", "feed_forward/down", "mlp.c_proj"),
)

KEYS = {
    "n_layer": ("layers", 0),
    "n_embd": ("width", 0),
    "n_head": ("heads", 0),
    "n_inner": ("feed_forward", 0),
    "n_positions": ("max_length", 0),
    "resid_pdrop": ("dropout", 0.1),
    "initializer_range": ("initializer", 0.02),
    "layer_norm_epsilon": ("epsilon", 1e-5),
}
FIXED = {"scale_attn_weights": True}


def sizes(model):
    return {"A": model["heads"] * (model["width"] // model["heads"])}


def read_settings(values, path):
    return config_json.read_keys(values, KEYS, FIXED, path, "activation_function")


def write_settings(model, vocabulary):
    name = config_json.name_of(model.activation)
    return {"activation_function": name, "eos_token_id": vocabulary.sep}


DECODER = Architecture(
    prefix="Decoder",
    model_type="made-up-decoder",
    tokenizer="PreTrainedTokenizerFast",
    parts=(
        ("network", "network/", "transformer.", EMBEDDINGS),
        ("network", "network/blocks_{}/", "transformer.h.{}.", BLOCK),
    ),
    is_transposed=False,
    body=("transformer.",),
    bare=("wte.", "wpe", "h.", "ln_f."),
    buffers=("transformer.h.{}.attn.mask",),
    tied={"lm_head.weight": "transformer.wte.weight"},
    label_layers={"classifier": "score"},
    keys=KEYS,
    fixed=FIXED,
    objectives={"external.generation": ("ForCausalLM", "text-generation")},
    sizes=sizes,
    read_settings=read_settings,
    write_settings=write_settings,
)
