"""Writes a directory for Hugging Face transformers: the weights, config.json and the tokenizer's files."""

import shutil
from pathlib import Path

from safetensors.numpy import save_file

from bert_jax import __version__
from bert_jax.convert import names, settings, tokenizer_files
from bert_jax.tokenizers.special_tokens import Frame, frame_of

# The end of the class in transformers: the first whose heads the model has.
ARCHITECTURES = (
    ({"mlm", "pair"}, "ForPreTraining"),
    ({"replaced"}, "ForPreTraining"),
    ({"mlm"}, "ForMaskedLM"),
    ({"pair"}, "ForNextSentencePrediction"),
    (set(), "Model"),
)


def write(directory: Path, config, vocabulary, tokenizer, params, positions: int) -> list[str]:
    """Writes all files but README.md, with the parts that `params` has. Returns the names of these parts.

    positions: the longest row that the model was trained on, to which transformers cuts a text.
    """
    parts, tensors = names.tensors(params, config, vocabulary.size, "huggingface")
    architecture = names.find_architecture(config.model, config.objective.name)
    tensors = architecture.write_tensors(tensors, vocabulary)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer_files.write_json(directory / "config.json", config_json(config, vocabulary, parts))
    # safetensors creates its file with mode 0600.
    shutil.copymode(directory / "config.json", directory / "model.safetensors")
    has_segments = "type_vocabulary" in config.model
    frame = Frame() if architecture.generates else frame_of(config)
    tokenizer_files.write(directory, tokenizer, positions, has_segments, frame)
    if values := architecture.write_generation(config, vocabulary):
        tokenizer_files.write_json(directory / "generation_config.json", values)
    return parts


def config_json(config, vocabulary, parts: list[str]) -> dict:
    """Returns the content of config.json."""
    end = next(end for heads, end in ARCHITECTURES if heads <= set(parts))
    architecture = names.find_architecture(config.model, config.objective.name)
    values = settings.to_huggingface(config, vocabulary, architecture)
    end, _ = names.find_class(config, end, "")
    if "label" in parts:
        values |= settings.labels_to_huggingface(config)
    return {
        "architectures": [architecture.prefix + end],
        **values,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "bert_jax_version": __version__,
    }
