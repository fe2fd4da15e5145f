"""Reads the tokenizer of a Hugging Face directory from all its files, as transformers 5 does; executes none of them."""

import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken
from tokenizers.normalizers import BertNormalizer

from bert_jax.errors import BadInput
from bert_jax.runs import workdir
from bert_jax.tokenizers import huggingface, wordpiece
from bert_jax.tokenizers.special_tokens import SPECIAL, added_token
from bert_jax.tokenizers.tokenizer import Tokenizer, as_bad_input

SETTINGS = "tokenizer_config.json"

# Classes of transformers, without "Tokenizer" and "Fast". Those of BERT take nothing but the vocabulary from
# tokenizer.json, and their rules from SETTINGS; tokenizer.json has all rules of the others.
BERT = "Bert ConvBert DistilBert DPRQuestionEncoder Electra LayoutLM Lxmert MobileBert SqueezeBert"
OTHERS = (
    "PreTrained TokenizersBackend Albert Bart Barthez BigBird Camembert Deberta DebertaV2 Funnel Gemma GPT2 GPTNeoX"
    " Herbert LED Llama Longformer MBart MPNet Qwen2 RemBert RetriBert Roberta T5 XLMRoberta XLNet"
)
BYTE_LEVEL = (
    "Bart Deberta GPT2 LED Longformer Roberta"  # of OTHERS; SETTINGS have one of their rules
)
# transformers adds special tokens that a vocabulary lacks in this order.
NAMES = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]


def read(directory: Path, config: dict) -> Tokenizer:
    """Reads a tokenizer. config: the content of config.json. Raises BadInput, which names a class that is unknown."""
    settings = read_optional(directory / SETTINGS)
    if "added_tokens_decoder" not in settings:
        settings |= read_optional(directory / "special_tokens_map.json")
    name = find_class(directory, settings, config)
    file, vocab = directory / huggingface.FILE, directory / wordpiece.FILE
    document, is_bert = {}, name in BERT.split()
    if file.is_file():
        library = huggingface.open_library(workdir.read_json(file), file)
        document = json.loads(library.to_str())
        is_bert = is_bert and document["model"]["type"] == "WordPiece"
        vocabulary = document["model"]["vocab"]
    elif is_bert and vocab.is_file():
        with as_bad_input(vocab):
            lines = wordpiece.read_pieces(vocab)
        vocabulary = {piece: number for number, piece in enumerate(lines)}
    elif is_bert:
        raise BadInput(f"{directory}: neither {huggingface.FILE} nor {wordpiece.FILE}")
    else:
        raise BadInput(
            f"{directory}: no {huggingface.FILE} for tokenizer_class {name}Tokenizer; transformers writes it, by"
            " AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
        )
    with as_bad_input(directory / SETTINGS):
        if is_bert:
            settings = {f"{name}_token": piece for name, piece in SPECIAL.items()} | settings
        values = {name: settings.get(f"{name}_token") for name in SPECIAL}
        names = {name: as_token(value)["content"] for name, value in values.items() if value}
        if is_bert:
            library = bert_library(vocabulary, settings, names)
        elif name in BYTE_LEVEL.split() and document["pre_tokenizer"]["type"] == "ByteLevel":
            library.pre_tokenizer.add_prefix_space = settings.get("add_prefix_space", False)
        library.add_tokens(added_tokens(directory, settings, document))
    tokenizer = huggingface.from_library(library, file if document else vocab, names)
    if is_bert and document and vocab.is_file():
        lines = wordpiece.read_pieces(vocab)
        if tokenizer.pieces[: len(lines)] != lines:
            raise BadInput(f"{vocab}: not the vocabulary of {file}")
    return as_wordpiece(tokenizer)


def read_optional(path: Path) -> dict:
    """Reads a JSON object; {} if there is no such file."""
    return workdir.read_json(path) if path.is_file() else {}


def find_class(directory: Path, settings: dict, config: dict) -> str:
    """Returns the name of the class without "Tokenizer" and "Fast". Raises BadInput for one that is unknown."""
    default = "BertTokenizer" if config["model_type"] == "bert" else "PreTrainedTokenizerFast"
    full = settings.get("tokenizer_class") or config.get("tokenizer_class") or default
    name = str(full).removesuffix("Fast").removesuffix("Tokenizer")
    if settings.get("auto_map") or name not in f"{BERT} {OTHERS}".split():
        raise BadInput(
            f"{directory}: tokenizer_class {full}, or its auto_map, is not supported; only if {huggingface.FILE} has"
            f" all its rules, name PreTrainedTokenizerFast in {SETTINGS}, without auto_map"
        )
    return name


def as_token(value: str | dict) -> dict:
    """Returns a special token of the settings as an object."""
    if isinstance(value, str):
        return {"content": value, "special": True, "normalized": False}
    return value


def added_tokens(directory: Path, settings: dict, document: dict) -> list[AddedToken]:
    """Returns the added tokens, by id, and the special tokens. The library ignores those that it has."""
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    extra = extra.values() if isinstance(extra, dict) else extra
    names = dict.fromkeys([*NAMES, *(key for key in settings if key.endswith("_token"))])
    named = [settings[key] for key in names if isinstance(settings.get(key), str | dict)]
    special = [as_token(value) for value in [*named, *extra]]
    tokens = settings.get("added_tokens_decoder")
    if tokens is None:  # older versions wrote this file
        names = {token["content"] for token in special}
        tokens = {
            number: {"content": piece, "special": piece in names}
            for piece, number in read_optional(directory / "added_tokens.json").items()
        }
        tokens |= {token["id"]: token for token in document.get("added_tokens", [])}
    tokens = [tokens[number] for number in sorted(tokens, key=int)]
    keys = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return [AddedToken(**{k: token[k] for k in keys if k in token}) for token in tokens + special]


def bert_library(vocabulary: dict, settings: dict, names: dict) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with BERT's rules and the keys of the settings."""
    library = wordpiece.make_library(vocabulary, True)
    library.model.unk_token = names.get("unk", SPECIAL["unk"])
    library.normalizer = BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    return library


def with_unused(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Returns a tokenizer with a piece for each id below `size`, which is in no text, so that padding rows stay."""
    numbers = range(tokenizer.size, size)
    if not numbers:
        return tokenizer
    names = [huggingface.unused_name(number) for number in numbers]
    if tokenizer.kind == wordpiece.KIND:
        return wordpiece.WordPiece([*tokenizer.pieces, *names], tokenizer.lowercase)
    tokens = [added_token(name, number) for name, number in zip(names, numbers, strict=True)]
    added = {"added_tokens": tokenizer.document["added_tokens"] + tokens}
    return huggingface.HuggingFace(tokenizer.document | added, tokenizer.special, tokenizer.path)


def as_wordpiece(tokenizer: huggingface.HuggingFace) -> Tokenizer:
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
    is_same = all(rules[key] == expected[key] for key in ("normalizer", "pre_tokenizer", "model"))
    added = {token["id"] for token in tokenizer.document["added_tokens"]}
    if is_same and same.special == tokenizer.special and added <= set(same.special.values()):
        return same
    return tokenizer
