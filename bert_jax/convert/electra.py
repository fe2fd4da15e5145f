"""ELECTRA in Hugging Face transformers: parameters and settings of a discriminator, or of a generator.

D width, E width of the embeddings, N the same if it is not D, F feed-forward width, V vocabulary, P positions,
S segments.
"""

import math
from pathlib import Path

from bert_jax.convert import albert, bert, config_json
from bert_jax.convert.architecture import Architecture
from bert_jax.storage import json_file

# --- Parameters -----------------------------------------------------------------------------------

POOLER = "electra.pooler"  # renamed: it is in fine-tuned models alone
REPLACED = (
    ("DD", "replaced_dense", "dense"),
    ("D1", "replaced", "dense_prediction"),
)
MLM = (
    *((axes, path, f"generator_predictions.{name}") for axes, path, name in albert.MLM[:2]),
    ("V", "bias", "generator_lm_head.bias"),
)
PARTS = (
    ("network", "network/", "electra.embeddings.", albert.EMBEDDINGS),
    ("network", "network/blocks_{}/", "electra.encoder.layer.{}.", bert.BLOCK),
    ("network", "network/", "electra.", [("ND", "embedder_dense", "embeddings_project")]),
    ("pooler", "network/", "", [("DD", "pooler", POOLER)]),
    ("mlm", "mlm/", "", MLM),
    ("replaced", "", "discriminator_predictions.", REPLACED),
)

# --- Settings: keys of ElectraConfig --------------------------------------------------------------

WIDTH = "embedding_size"
# Some heads have this activation whatever the key says; the other keys are of models for multiple choice.
FIXED = bert.FIXED | {
    "hidden_act": "gelu",
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "gelu",
}


def read_settings(values: dict, path: Path) -> dict:
    """Returns the keys of config.model of a config.json. Raises BadInput, see config_json.py."""
    settings = config_json.read_keys(values, bert.KEYS, FIXED, path, "hidden_act")
    width = config_json.read_number(values, WIDTH, path, 128)
    settings["embedding_width"] = 0 if width == settings["width"] else width
    return settings


def write_settings(model, vocabulary) -> dict:
    """Returns the keys of config.json of a config.model."""
    return {WIDTH: model.embedding_width or model.width}


def sizes(model) -> dict:
    """Returns {axis: size} of axes of its own."""
    narrow = model["embedding_width"]
    return {"E": narrow or model["width"], "N": narrow, "1": 1}


def default_keys(length: int, directory: Path) -> list[str]:
    """Returns what a default config must override for the discriminator, or the generator, in a directory.

    The generator of a discriminator is not in it. Its size is a quarter, or the next larger share that fits.
    """
    values = json_file.read(directory / "config.json")
    if values.get("architectures") == ["ElectraForMaskedLM"]:
        return []
    sizes = math.gcd(values["num_attention_heads"], values["intermediate_size"])
    divisor = max(number for number in (1, 2, 3, 4) if sizes % number == 0)
    return ["objective.name=replaced_tokens", f"objective.generator={divisor}"]


ELECTRA = Architecture(
    prefix="Electra",
    model_type="electra",
    title="ELECTRA",
    tokenizer="ElectraTokenizer",
    parts=PARTS,
    body=("electra.",),
    bare=("embeddings.", "encoder.", "embeddings_project."),
    buffers=("electra.embeddings.position_ids", "electra.embeddings.token_type_ids"),
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    label_layers={"classifier": "classifier.out_proj", "spans": "qa_outputs"},
    renamed={
        "classifier": (POOLER, "classifier.dense"),
        "multiple_choice": (POOLER, "sequence_summary.summary"),
    },
    keys=bert.KEYS,
    fixed=FIXED,
    pretraining=("mlm", "replaced_tokens"),
    plain={"activation": "gelu", "positions": "learned"},
    sizes=sizes,
    read_settings=read_settings,
    write_settings=write_settings,
    default_keys=default_keys,
)
