"""A directory that Hugging Face transformers opens: the weights, config.json and the tokenizer's files."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_jax.convert import names, settings, tokenizer_files
from bert_jax.errors import BadInput

# The class that has all of a model's parts: the first whose heads are there.
ARCHITECTURES = (
    ({"mlm", "pair"}, "BertForPreTraining"),
    ({"mlm"}, "BertForMaskedLM"),
    ({"pair"}, "BertForNextSentencePrediction"),
    (set(), "BertModel"),
)


def write(directory: Path, config, vocabulary, tokenizer, params) -> list[str]:
    """Writes the directory's files, all but README.md, with what `params` has of a BERT; returns its parts."""
    parts, tensors = collect(config, vocabulary, params)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer_files.write_json(directory / "config.json", config_json(config, vocabulary, parts))
    tokenizer_files.write(directory, tokenizer, config.model.max_length)
    return parts


def config_json(config, vocabulary, parts: list[str]) -> dict:
    return {
        "architectures": [next(name for heads, name in ARCHITECTURES if heads <= set(parts))],
        "model_type": "bert",
        **settings.to_huggingface(config.model, vocabulary.size),
        "pad_token_id": vocabulary.pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def collect(config, vocabulary, params) -> tuple[list[str], dict[str, np.ndarray]]:
    """The parts that a model has and its tensors as they lie in the file, by the names of Hugging Face."""
    parts, tensors = [], {}
    for parameter, source in names.present(params, config.model.layers):
        array = np.asarray(source, np.float32)[: vocabulary.size if parameter.padded else None]
        # Of the extremes one is not finite where any element is not; no array of booleans is made.
        if not np.isfinite([array.min(), array.max()]).all():
            raise BadInput(f"{parameter.huggingface}: the checkpoint's values are not finite")
        transposed = "huggingface" in parameter.transposed
        tensors[parameter.huggingface] = np.ascontiguousarray(array.T if transposed else array)
        parts.append(parameter.part)
    return list(dict.fromkeys(parts)), tensors
