"""Reading a Hugging Face directory of a BERT: config.json, safetensors, tokenizer files. Nothing in it is executed."""

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

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

# float32 holds every value of these; an export is float32.
FLOATS = ("F32", "F16", "BF16")
BUFFERS = re.compile(r"(bert\.)?embeddings\.(position_ids|token_type_ids)")
DECODER = "cls.predictions.decoder"
TIED = {f"{DECODER}.weight": "bert.embeddings.word_embeddings.weight"}
TIED |= {f"{DECODER}.bias": "cls.predictions.bias"}


def is_here(directory: Path) -> bool:
    """Whether a directory is meant for Hugging Face libraries: by weights, or by config.json with no weights at all."""
    path = directory / "config.json"
    if any((directory / name).exists() for name in (WEIGHTS, INDEX, *PICKLES)):
        return True
    others = any(directory.glob("*.ckpt*.index"))
    return not others and path.is_file() and "model_type" in workdir.read_json(path)


def read(directory: Path) -> Source:
    """Settings, tokenizer and the names of the tensors; raises BadInput for what cannot be one of our models."""
    directory = Path(directory)
    path = directory / "config.json"
    values = workdir.read_json(path)
    settings = config_json.from_huggingface(values, path)
    files = find_files(directory)
    tensors = rename(files, directory)
    load = Loader(files, tensors)
    check_tied(directory, tensors, load)
    shapes = {name: load.shape(name) for name in tensors if name not in TIED}
    pieces = config_json.size(values, "vocab_size", path)
    words = read_tokenizer(directory)
    return Source(directory, "huggingface", settings, pieces, words, shapes, load)


# --- Tensors --------------------------------------------------------------------------------------


def find_files(directory: Path) -> dict[str, Path]:
    """{tensor as it is called in the file: file} of one safetensors file or of those that an index names."""
    index = directory / INDEX
    if (directory / WEIGHTS).is_file():
        path = directory / WEIGHTS
        with opened(path) as file:
            return dict.fromkeys(file.keys(), path)
    if not index.is_file():
        refuse_others(directory)
    places = workdir.read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(map(is_file_name, places.values())):
        raise BadInput(f"{index}: no weight_map of tensors to files of this directory")
    files = {}
    for name in sorted(set(places.values())):
        with opened(directory / name) as file:
            files |= dict.fromkeys(file.keys(), directory / name)
    for name in sorted(places.keys() - files.keys()):
        raise BadInput(f"{index}: {name} is missing in {places[name]}")
    return files


def is_file_name(name) -> bool:
    return isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")


def refuse_others(directory: Path) -> None:
    """Raises BadInput for a directory without safetensors."""
    pickle = next((name for name in PICKLES if (directory / name).exists()), None)
    if pickle:
        raise BadInput(
            f"{directory / pickle}: a PyTorch pickle, which may run any code when it is opened, so it is not; where"
            " you trust it, open it in transformers and save it again: save_pretrained writes safetensors"
        )
    raise BadInput(f"{directory}: no {WEIGHTS}")


def opened(path: Path):
    """The file, mapped, its header checked."""
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise BadInput(f"{path}: not a whole safetensors file ({reason})") from None


def rename(files: dict[str, Path], directory: Path) -> dict[str, str]:
    """{name of names.py: name in the file}: older spellings and the bare encoder's are read, buffers are not."""
    bare = "embeddings.word_embeddings.weight" in files
    tensors = {}
    for theirs in files:
        if BUFFERS.fullmatch(theirs):
            continue
        name = theirs
        if bare and theirs.startswith(("embeddings.", "encoder.", "pooler.")):
            name = f"bert.{theirs}"
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name in tensors:
            raise BadInput(f"{directory}: {tensors[name]} and {theirs} are the same tensor")
        tensors[name] = theirs
    if f"{DECODER}.bias" in tensors:
        # The bias stands twice in some files, and in others under this name alone.
        tensors.setdefault("cls.predictions.bias", tensors[f"{DECODER}.bias"])
    return tensors


def check_tied(directory: Path, tensors: dict[str, str], load: "Loader") -> None:
    """The head reads the word embeddings; a matrix of its own would be lost here."""
    for head, shared in TIED.items():
        if head in tensors and shared in tensors and not same(load(head), load(shared)):
            raise BadInput(
                f"{directory}: {tensors[head]} is not {tensors[shared]}; models whose output matrix is"
                " not tied to the word embeddings are not supported"
            )


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit: NaN is found, and told, later."""
    fits = a.dtype == b.dtype and a.shape == b.shape
    return fits and np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


class Loader:
    """Shapes and values of tensors by their names in names.py; the files stay mapped."""

    def __init__(self, files: dict[str, Path], tensors: dict[str, str]):
        self.tensors = tensors
        mapped = {path: opened(path) for path in set(files.values())}
        self.files = {name: mapped[path] for name, path in files.items()}
        for theirs in sorted(set(tensors.values())):
            kind = self.files[theirs].get_slice(theirs).get_dtype()
            if kind not in FLOATS:
                known = ", ".join(FLOATS)
                raise BadInput(f"{files[theirs]}: {theirs} is {kind}, expected one of {known}")

    def shape(self, name: str) -> tuple[int, ...]:
        theirs = self.tensors[name]
        return tuple(self.files[theirs].get_slice(theirs).get_shape())

    def __call__(self, name: str) -> np.ndarray:
        theirs = self.tensors[name]
        return self.files[theirs].get_tensor(theirs)


# --- Tokenizer ------------------------------------------------------------------------------------


def read_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    """What tokenizer.json says, or vocab.txt with the settings beside it."""
    vocab, whole = directory / wordpiece.FILE, directory / huggingface.FILE
    if not whole.is_file():
        if not vocab.is_file():
            raise BadInput(f"{directory}: neither {huggingface.FILE} nor {wordpiece.FILE}")
        path = directory / "tokenizer_config.json"
        values = workdir.read_json(path) if path.is_file() else {}
        lowercase = values.get("do_lower_case", True) is not False
        usual = {"strip_accents": (None, lowercase), "tokenize_chinese_chars": (None, True)}
        for key, known in usual.items():
            if values.get(key) not in known:
                raise BadInput(
                    f"{path}: {key} is {values[key]!r}; save the tokenizer with its {huggingface.FILE}"
                )
        return tokenizers.from_file(vocab, lowercase)
    found = tokenizers.from_file(whole, lowercase=False)
    lowercase = plain_bert(found.document)
    if lowercase is not None:
        found = wordpiece.WordPiece(found.pieces, lowercase)
        check_case(directory, lowercase)
    if vocab.is_file() and tokenizers.from_file(vocab, lowercase=False).pieces != found.pieces:
        raise BadInput(f"{vocab}: not the vocabulary of {whole}")
    return found


def check_case(directory: Path, lowercase: bool) -> None:
    """Refuses a tokenizer_config.json of another mind than tokenizer.json: transformers would follow it."""
    path = directory / "tokenizer_config.json"
    told = workdir.read_json(path).get("do_lower_case", lowercase) if path.is_file() else lowercase
    if told != lowercase:
        raise BadInput(
            f"{path}: do_lower_case is {told}, {huggingface.FILE} has lowercase {lowercase}"
        )


def plain_bert(document: dict) -> bool | None:
    """Whether a tokenizer.json lower-cases, if it has BERT's rules and nothing else; None if it has others."""
    normalizer, model = document.get("normalizer") or {}, document["model"]
    lowercase = normalizer.get("lowercase")
    expected = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "lowercase": lowercase,
    }
    plain = expected.items() <= normalizer.items()
    plain &= normalizer.get("strip_accents") in (None, lowercase)
    plain &= (document.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
    if not plain or model["type"] != "WordPiece":
        return None
    rules = model["continuing_subword_prefix"], model["max_input_chars_per_word"]
    inside = all(token["content"] in model["vocab"] for token in document["added_tokens"])
    names_fit = model["unk_token"] == SPECIAL["unk"] and set(SPECIAL.values()) <= set(
        model["vocab"]
    )
    fits = rules == ("##", wordpiece.LONGEST_WORD) and inside and names_fit
    return lowercase if fits else None
