"""Writes a directory for Hugging Face transformers: the weights, config.json and the tokenizer's files."""

import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_jax import __version__
from bert_jax.convert import names, settings, tokenizer_files
from bert_jax.errors import BadInput

# The class of transformers: the first whose heads the model has.
ARCHITECTURES = (
    ({"mlm", "pair"}, "BertForPreTraining"),
    ({"mlm"}, "BertForMaskedLM"),
    ({"pair"}, "BertForNextSentencePrediction"),
    (set(), "BertModel"),
)


def write(directory: Path, config, vocabulary, tokenizer, params, positions: int) -> list[str]:
    """Writes all files but README.md, with the parts of BERT that `params` has. Returns the names of these parts.

    positions: the longest row that the model was trained on, to which transformers cuts a text.
    """
    parts, tensors = collect(config, vocabulary, params)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer_files.write_json(directory / "config.json", config_json(config, vocabulary, parts))
    # safetensors creates its file with mode 0600.
    shutil.copymode(directory / "config.json", directory / "model.safetensors")
    tokenizer_files.write(directory, tokenizer, positions)
    return parts


def config_json(config, vocabulary, parts: list[str]) -> dict:
    """Returns the content of config.json."""
    name, labels = next(name for heads, name in ARCHITECTURES if heads <= set(parts)), {}
    if "label" in parts:
        name = names.LABELERS[config.objective.name].architecture
        labels = settings.labels_to_huggingface(config)
    return {
        "architectures": [name],
        "model_type": "bert",
        **settings.to_huggingface(config.model, vocabulary.size),
        **labels,
        "pad_token_id": vocabulary.pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "bert_jax_version": __version__,
    }


def collect(config, vocabulary, params) -> tuple[list[str], dict[str, np.ndarray]]:
    """Returns the parts that a model has, and its float32 tensors in Hugging Face's names and layout.

    Raises BadInput for NaN or infinite values.
    """
    parts, tensors = [], {}
    for parameter, source in names.with_arrays(params, config.model.layers, config.objective.name):
        array = np.asarray(source, np.float32)[: vocabulary.size if parameter.padded else None]
        # If any element is not finite, neither is the minimum or the maximum. This saves an array of booleans.
        if not np.isfinite([array.min(), array.max()]).all():
            raise BadInput(f"{parameter.huggingface}: the checkpoint has NaN or infinite values")
        transposed = "huggingface" in parameter.transposed
        tensors[parameter.huggingface] = np.ascontiguousarray(array.T if transposed else array)
        parts.append(parameter.part)
    return list(dict.fromkeys(parts)), tensors
