"""Reads a Hugging Face directory of a BERT: config.json, safetensors, tokenizer files. Executes nothing in it."""

import json
import re
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.convert import settings as config_json
from bert_jax.convert.external_model import Source
from bert_jax.errors import BadInput
from bert_jax.runs import workdir
from bert_jax.tokenizers import huggingface, wordpiece
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import SPECIAL

WEIGHTS, SHARDS = "model.safetensors", "model-?????-of-?????.safetensors"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

# float32 represents every value of these types exactly.
FLOATS = ("F32", "F16", "BF16")
BUFFERS = re.compile(r"(bert\.)?embeddings\.(position_ids|token_type_ids)")
LABELERS = ("classifier.", "qa_outputs.")  # layers of fine-tuned models
DECODER = "cls.predictions.decoder"
TIED = {f"{DECODER}.weight": "bert.embeddings.word_embeddings.weight"}
TIED |= {f"{DECODER}.bias": "cls.predictions.bias"}


def matches(directory: Path) -> bool:
    """Returns whether a directory is in Hugging Face's format: it has such weights, or config.json and no weights."""
    path = directory / "config.json"
    if any(any(directory.glob(name)) for name in (WEIGHTS, SHARDS, *PICKLES)):
        return True
    others = any(directory.glob("*.ckpt*.index"))
    return not others and path.is_file() and "model_type" in workdir.read_json(path)


def read(directory: Path) -> Source:
    """Reads settings, tokenizer and tensor names. Raises BadInput for a model that bert_jax does not support."""
    directory = Path(directory)
    path = directory / "config.json"
    values = workdir.read_json(path)
    settings = config_json.from_huggingface(values, path)
    files = find_files(directory)
    tensors = rename(files, directory)
    load = Loader(files, tensors)
    check_tied(directory, tensors, load)
    shapes = {name: load.shape(name) for name in tensors if name not in TIED}
    pieces = config_json.read_size(values, "vocab_size", path)
    tokenizer = read_tokenizer(directory)
    return Source(directory, "huggingface", settings, pieces, tokenizer, shapes, load)


# --- Tensors --------------------------------------------------------------------------------------


def find_files(directory: Path) -> dict[str, Path]:
    """Returns {name of a tensor in its file: file}, from one safetensors file or from shards. Raises BadInput if a
    shard is missing."""
    paths = [*directory.glob(WEIGHTS)] or sorted(directory.glob(SHARDS))
    if not paths:
        refuse_other_formats(directory)
    if paths[0].name != WEIGHTS and f"{len(paths):05d}" != paths[0].stem[-5:]:
        raise BadInput(f"{paths[0]}: {len(paths)} shards are here, its name tells another number")
    files = {}
    for path in paths:
        with open_weights(path) as file:
            files |= dict.fromkeys(file.keys(), path)
    return files


def refuse_other_formats(directory: Path) -> None:
    """Raises BadInput: the directory has no safetensors."""
    pickle = next((name for name in PICKLES if (directory / name).exists()), None)
    if pickle:
        raise BadInput(
            f"{directory / pickle}: a PyTorch pickle can execute code, so it is not opened; if you trust it, load it"
            " in transformers and save it with save_pretrained, which writes safetensors"
        )
    raise BadInput(f"{directory}: no {WEIGHTS}")


def open_weights(path: Path):
    """Opens a memory-mapped safetensors file. Raises BadInput for a damaged header or size."""
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadInput(f"{path}: not a complete safetensors file ({reason})") from None


def rename(files: dict[str, Path], directory: Path) -> dict[str, str]:
    """Returns {name in names.py: name in the file}. Accepts older names and a bare encoder; skips buffers and the
    layers of fine-tuned models."""
    is_bare = "embeddings.word_embeddings.weight" in files
    tensors = {}
    for stored in files:
        if BUFFERS.fullmatch(stored) or stored.startswith(LABELERS):
            continue
        name = stored
        if is_bare and stored.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{stored}"
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name in tensors:
            raise BadInput(f"{directory}: {tensors[name]} and {stored} are the same tensor")
        tensors[name] = stored
    if f"{DECODER}.bias" in tensors:
        # Some files have the bias under both names, others under this one alone.
        tensors.setdefault("cls.predictions.bias", tensors[f"{DECODER}.bias"])
    return tensors


def check_tied(directory: Path, tensors: dict[str, str], load: "Loader") -> None:
    """Raises BadInput if the MLM head has an output matrix of its own: here it is the word embeddings."""
    for head, shared in TIED.items():
        # Bits are compared, since NaN is reported later.
        if {head, shared} <= tensors.keys() and load(head).tobytes() != load(shared).tobytes():
            raise BadInput(
                f"{directory}: {tensors[head]} is not {tensors[shared]}; models whose output matrix is"
                " not tied to the word embeddings are not supported"
            )


class Loader:
    """A reader of shapes and values of tensors, by their names in names.py. The files stay memory-mapped."""

    def __init__(self, files: dict[str, Path], tensors: dict[str, str]):
        self.tensors = tensors
        mapped = {path: open_weights(path) for path in set(files.values())}
        self.files = {name: mapped[path] for name, path in files.items()}
        for stored in sorted(set(tensors.values())):
            dtype = self.files[stored].get_slice(stored).get_dtype()
            if dtype not in FLOATS:
                expected = ", ".join(FLOATS)
                raise BadInput(f"{files[stored]}: {stored} is {dtype}, expected one of {expected}")

    def shape(self, name: str) -> tuple[int, ...]:
        stored = self.tensors[name]
        return tuple(self.files[stored].get_slice(stored).get_shape())

    def __call__(self, name: str) -> np.ndarray:
        stored = self.tensors[name]
        return self.files[stored].get_tensor(stored)


# --- Tokenizer ------------------------------------------------------------------------------------


def read_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    """Reads tokenizer.json, or else vocab.txt with tokenizer_config.json."""
    vocab, tokenizer_json = directory / wordpiece.FILE, directory / huggingface.FILE
    if not tokenizer_json.is_file():
        if not vocab.is_file():
            raise BadInput(f"{directory}: neither {huggingface.FILE} nor {wordpiece.FILE}")
        path = directory / "tokenizer_config.json"
        values = workdir.read_json(path) if path.is_file() else {}
        lowercase = values.get("do_lower_case", True) is not False
        supported = {"strip_accents": (None, lowercase), "tokenize_chinese_chars": (None, True)}
        for key, allowed in supported.items():
            if values.get(key) not in allowed:
                raise BadInput(
                    f"{path}: {key} is {values[key]!r}; save the tokenizer as {huggingface.FILE}"
                )
        return tokenizers.from_file(vocab, lowercase)
    tokenizer = as_wordpiece(tokenizers.from_file(tokenizer_json, lowercase=False))
    if vocab.is_file() and tokenizers.from_file(vocab, lowercase=False).pieces != tokenizer.pieces:
        raise BadInput(f"{vocab}: not the vocabulary of {tokenizer_json}")
    return tokenizer


def as_wordpiece(tokenizer: huggingface.HuggingFace) -> tokenizers.Tokenizer:
    """Returns a tokenizer.json as WordPiece if it has exactly BERT's rules, which need no tokenizer.json."""
    rules = json.loads(tokenizer.tokenizer.to_str())
    normalizer = rules["normalizer"] or {}
    lowercase = normalizer.get("lowercase")
    if lowercase is None or not set(SPECIAL.values()) <= set(tokenizer.pieces):
        return tokenizer
    if normalizer.get("strip_accents") == lowercase:
        normalizer["strip_accents"] = None  # which means the same
    same = wordpiece.WordPiece(tokenizer.pieces, lowercase)
    expected = json.loads(same.tokenizer.to_str())
    keys = ("normalizer", "pre_tokenizer", "model")
    return same if all(rules[key] == expected[key] for key in keys) else tokenizer
