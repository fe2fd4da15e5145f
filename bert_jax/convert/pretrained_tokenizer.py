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
    name = find_class(directory, config)
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
        settings, decoder = read_settings(directory, document)
        if is_bert:
            settings = {f"{name}_token": piece for name, piece in SPECIAL.items()} | settings
            library = bert_library(vocabulary, settings)
        elif name in BYTE_LEVEL.split() and document["pre_tokenizer"]["type"] == "ByteLevel":
            library.pre_tokenizer.add_prefix_space = settings.get("add_prefix_space", False)
        library.add_tokens(tokens_to_add(settings, decoder))
        names = {name: content(settings.get(f"{name}_token")) for name in SPECIAL}
    tokenizer = huggingface.from_library(library, file if document else vocab, names)
    if is_bert and document and vocab.is_file():
        lines = wordpiece.read_pieces(vocab)
        if tokenizer.pieces[: len(lines)] != lines:
            raise BadInput(f"{vocab}: not the vocabulary of {file}")
    return as_wordpiece(tokenizer)


def find_class(directory: Path, config: dict) -> str:
    """Returns the name of the class without "Tokenizer" and "Fast". Raises BadInput for one that is unknown."""
    settings = read_optional(directory / SETTINGS)
    default = "BertTokenizer" if config["model_type"] == "bert" else "PreTrainedTokenizerFast"
    full = settings.get("tokenizer_class") or config.get("tokenizer_class") or default
    name = str(full).removesuffix("Fast").removesuffix("Tokenizer")
    if settings.get("auto_map"):
        problem = "is a program of its own (auto_map)"
    elif name not in [*BERT.split(), *OTHERS.split()]:
        problem = "is not supported"
    else:
        return name
    hint = ""
    if (directory / huggingface.FILE).is_file():
        hint = f"; if {huggingface.FILE} has all its rules, name PreTrainedTokenizerFast in {SETTINGS}, and no auto_map"
    raise BadInput(f"{directory}: tokenizer_class {full} {problem}{hint}")


def read_optional(path: Path) -> dict:
    """Reads a JSON object; {} if there is no such file."""
    return workdir.read_json(path) if path.is_file() else {}


def read_settings(directory: Path, document: dict) -> tuple[dict, dict]:
    """Returns the settings and {id: added token}, from tokenizer_config.json or from the files of older versions."""
    settings = read_optional(directory / SETTINGS)
    if "added_tokens_decoder" in settings:
        return settings, settings["added_tokens_decoder"]
    settings |= read_optional(directory / "special_tokens_map.json")
    special = {content(value) for value in special_tokens(settings)}
    decoder = {
        number: {"content": piece, "special": piece in special}
        for piece, number in read_optional(directory / "added_tokens.json").items()
    }
    return settings, decoder | {token["id"]: token for token in document.get("added_tokens", [])}


def special_tokens(settings: dict) -> list:
    """Returns the special tokens of the settings, strings or objects."""
    others = [key for key in settings if key.endswith("_token") and key not in NAMES]
    named = [settings[key] for key in [*NAMES, *others] if content(settings.get(key))]
    for key in ("extra_special_tokens", "additional_special_tokens"):
        values = settings.get(key) or []
        named += values.values() if isinstance(values, dict) else values
    return named


def content(value) -> str | None:
    """Returns the text of a token, which is a string or an object; None for anything else."""
    if isinstance(value, dict):
        return value["content"]
    return value if isinstance(value, str) else None


def tokens_to_add(settings: dict, decoder: dict) -> list[AddedToken]:
    """Returns the added tokens, by id, and the special tokens. The library ignores those that it has."""
    values = [decoder[number] for number in sorted(decoder, key=int)]
    values += [
        {"special": True, "normalized": False}
        | (value if isinstance(value, dict) else {"content": value})
        for value in special_tokens(settings)
    ]
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return [AddedToken(**{key: value[key] for key in flags if key in value}) for value in values]


def bert_library(vocabulary: dict[str, int], settings: dict) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with BERT's rules and the keys of the settings."""
    library = wordpiece.make_library(vocabulary, True)
    library.model.unk_token = content(settings["unk_token"]) or SPECIAL["unk"]
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
