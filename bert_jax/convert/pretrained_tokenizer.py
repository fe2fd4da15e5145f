"""Reads the tokenizer of a Hugging Face directory from all its files, as transformers 5 does; executes none of them."""

import base64
import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import BertNormalizer
from tokenizers.processors import BertProcessing, RobertaProcessing

from bert_jax.convert import sentencepiece_to_json
from bert_jax.convert.architecture import Architecture
from bert_jax.errors import BadInput
from bert_jax.storage import json_file
from bert_jax.tokenizers import (
    bpe_files,
    huggingface,
    sentencepiece,
    settings_files,
    wordpiece,
)
from bert_jax.tokenizers.base import Tokenizer, as_bad_input
from bert_jax.tokenizers.settings_files import NAMES, SETTINGS, as_token, find_spellings
from bert_jax.tokenizers.special_tokens import OTHER_NAMES, SPECIAL, TEXT_END, Frame, model_frame

# Classes of transformers, without "Tokenizer" and "Fast". Those of BERT, GPT-2, GPT, RoBERTa and ALBERT take nothing
# but the vocabulary, merges, and the table of characters from tokenizer.json, and their rules from SETTINGS;
# tokenizer.json has all rules of the others.
BERT = ("Bert", "DistilBert", "Electra", "LayoutLM", "Lxmert", "MobileBert", "SqueezeBert")
GPT2 = "GPT2"
GPT = "OpenAIGPT"
ROBERTA = "Roberta"
ALBERT = "Albert"
SPIECE = "spiece.model"
OTHERS = ("PreTrained", "TokenizersBackend", "XLNet")
# {class: the type of its model}, {class: what adds its frame}, and {class: its special tokens, unless the settings have
# others}
TYPES = dict.fromkeys(BERT, "WordPiece") | dict.fromkeys((GPT2, GPT, ROBERTA), "BPE")
TYPES[ALBERT] = "Unigram"
PROCESSORS = dict.fromkeys((*BERT, ALBERT), BertProcessing) | {ROBERTA: RobertaProcessing}
DEFAULTS = dict.fromkeys(BERT, {f"{name}_token": piece for name, piece in SPECIAL.items()})
DEFAULTS[GPT2] = dict.fromkeys(("bos_token", "eos_token", "unk_token"), TEXT_END)
DEFAULTS[GPT] = {"unk_token": bpe_files.UNKNOWN}
DEFAULTS[ROBERTA] = {f"{name}_token": text.split()[0] for name, text in OTHER_NAMES.items()}
DEFAULTS[ROBERTA] |= {"bos_token": "<s>", "eos_token": "</s>"}
DEFAULTS["XLNet"] = {f"{name}_token": f"<{name}>" for name in SPECIAL}
DEFAULTS[ALBERT] = DEFAULTS["Bert"] | {"pad_token": "<pad>", "unk_token": "<unk>"}


def read(directory: Path, config: dict, model: str, architecture: Architecture) -> Tokenizer:
    """Reads a tokenizer. Raises BadInput, which names a class that is unknown.

    config: the content of config.json. model, architecture: see names.find_model.
    """
    settings = settings_files.read(directory)
    file = directory / huggingface.FILE
    document = {}
    if file.is_file():
        library = huggingface.open_library(json_file.read(file), file)
        document = json.loads(library.to_str())
    full = settings.get("tokenizer_class") or config.get("tokenizer_class")
    name = check_class(directory, settings, str(full or architecture.tokenizer), document)
    if not document and name not in TYPES:
        raise BadInput(f"{directory}: no {huggingface.FILE}")
    with as_bad_input(directory / SETTINGS):
        settings = DEFAULTS.get(name, {}) | settings
        spellings = find_spellings(settings)
        if name in BERT:
            vocabulary = read_vocabulary(directory, document)
            library = bert_library(vocabulary, settings, spellings)
        elif name == ALBERT:
            document = document or read_sentencepiece(directory)
            library = albert_library(document, settings)
        elif name in TYPES:
            library = gpt_library(name, *read_merges(directory, document), settings)
        library.add_tokens(added_tokens(directory, settings, document))
        if architecture.generates:
            generation = json_file.read_optional(directory / "generation_config.json")
            spellings |= find_ends([settings, generation, config], library)
    tokenizer = huggingface.from_library(library, file, spellings)
    special = tokenizer.special
    if name in PROCESSORS and special.keys() >= {"cls", "sep"}:
        ends = [(tokenizer.spellings[end], special[end]) for end in ("sep", "cls")]
        library.post_processor = PROCESSORS[name](*ends)
    if not architecture.generates:
        check_frame(directory, library, model_frame(model).ids(special))
    return tokenizer


def check_frame(directory: Path, library: tokenizers.Tokenizer, frame: Frame) -> None:
    """Raises BadInput if a tokenizer puts a text, or two, into another frame than that of the model."""
    library.no_padding()
    library.no_truncation()
    for texts in (("a",), ("a", "a"))[: 1 + bool(frame.between)]:
        plain = [library.encode(text, add_special_tokens=False).ids for text in texts]
        expected, _ = frame.wrap(*plain)
        found = library.encode(*texts).ids
        if found != expected:
            found = [*map(library.id_to_token, found)]
            expected = [*map(library.id_to_token, expected)]
            raise BadInput(f"{directory}: its tokenizer frames a text as {found}, not {expected}")


def find_ends(sources: list[dict], library: tokenizers.Tokenizer) -> dict[str, str]:
    """Returns {name: spelling} of what begins and ends the texts of a model that generates them, each as the first of
    the sources has it: contents of files, with the token or, if it is an added one, its id."""
    added = library.get_added_tokens_decoder()
    ids = {str(number): token.content for number, token in added.items()}
    spellings = {}
    for name, role in {"bos": "bos", "sep": "eos"}.items():
        for values in sources:
            by_id = ids.get(str(values.get(f"{role}_token_id")))
            if token := values.get(f"{role}_token", by_id):
                spellings.setdefault(name, as_token(token)["content"])
    return spellings


def read_vocabulary(directory: Path, document: dict) -> dict[str, int]:
    """Returns {piece: id} of WordPiece."""
    if document:
        return document["model"]["vocab"]
    file = directory / wordpiece.FILE
    with as_bad_input(file):
        return {piece: id for id, piece in enumerate(wordpiece.read_pieces(file))}


def read_merges(directory: Path, document: dict) -> tuple[dict[str, int], list[tuple]]:
    """Returns {piece: id} and the merges of byte pair encoding."""
    if not document:
        with as_bad_input(directory):
            return bpe_files.read(directory)
    model = document["model"]
    return model["vocab"], list(map(tuple, model["merges"]))


def read_sentencepiece(directory: Path) -> dict:
    """Returns tokenizer.json of a SentencePiece model.

    The authors' code splits pieces such as "0,". They are therefore as improbable as in the published tokenizer.json.
    """
    file = directory / SPIECE
    with as_bad_input(file):
        document = sentencepiece_to_json.document(sentencepiece.from_file(file, False))
    for piece in document["model"]["vocab"]:
        if piece[0][-2:-1].isdigit() and piece[0][-1] == ",":
            piece[1] -= 100
    return document


def check_class(directory: Path, settings: dict, full: str, document: dict) -> str:
    """Returns the name of the class without "Tokenizer" and "Fast".

    full: with them.
    document: the content of tokenizer.json, which BERT's classes may lack.

    Raises BadInput for a class that cannot be followed.
    """
    name = full.removesuffix("Fast").removesuffix("Tokenizer")
    is_followed = name in OTHERS
    if name in TYPES:
        is_followed = not document or document["model"]["type"] == TYPES[name]
    if settings.get("auto_map") or not is_followed:
        raise BadInput(
            f"{directory}: tokenizer_class {full}, or its auto_map, is not supported; if there is a {huggingface.FILE}"
            " with all its rules (AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) of transformers"
            f" writes one for some classes), name PreTrainedTokenizerFast in {SETTINGS}, without auto_map"
        )
    return name


def added_tokens(directory: Path, settings: dict, document: dict) -> list[AddedToken]:
    """Returns the added tokens, by id, and the special tokens without those that are among them: the library would
    overwrite their rules, such as the `lstrip` of [MASK]."""
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    if isinstance(extra, dict):
        extra = extra.values()
    special = []
    for key in dict.fromkeys([*NAMES, *settings]):
        value = settings.get(key)
        if key.endswith("_token") and isinstance(value, str | dict):
            special.append(as_token(value))
    special += map(as_token, extra)
    tokens = settings.get("added_tokens_decoder")
    if tokens is None:  # older versions wrote this file
        pieces = {token["content"] for token in special}
        tokens = {}
        for piece, number in json_file.read_optional(directory / "added_tokens.json").items():
            tokens[number] = {"content": piece, "special": piece in pieces}
        for token in document.get("added_tokens", []):
            tokens[token["id"]] = token
    in_order = [tokens[number] for number in sorted(tokens, key=int)]
    known = {token["content"] for token in [*in_order, *document.get("added_tokens", [])]}
    special = [token for token in special if token["content"] not in known]
    keys = {"content", "single_word", "lstrip", "rstrip", "normalized", "special"}
    tokens = in_order + special
    return [AddedToken(**{key: token[key] for key in keys & token.keys()}) for token in tokens]


def bert_library(vocabulary: dict, settings: dict, spellings: dict) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with BERT's rules and the keys of the settings."""
    normalizer = BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    library = wordpiece.make_library(vocabulary, normalizer)
    library.model.unk_token = spellings.get("unk", SPECIAL["unk"])
    return library


def gpt_library(name: str, pieces: dict, merges: list, settings: dict) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with the rules of GPT-2, which RoBERTa has, too, or of GPT, and the keys of the
    settings."""
    if name == GPT:
        unknown = as_token(settings["unk_token"])["content"]
        return bpe_files.word_level(pieces, merges, unknown)
    adds_space = settings.get("add_prefix_space", False)
    return huggingface.byte_level(BPE(pieces, merges), adds_space=adds_space)


def albert_library(document: dict, settings: dict) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with ALBERT's rules and the keys of the settings."""
    pieces = [*map(tuple, document["model"]["vocab"])]
    library = tokenizers.Tokenizer(Unigram(pieces, document["model"]["unk_id"]))
    rules = [normalizers.Replace(quotes, '"') for quotes in ("``", "''")]
    if not settings.get("keep_accents", False):
        rules += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", True):
        rules.append(normalizers.Lowercase())
    for step in huggingface.steps(document["normalizer"], "normalizers"):
        if step["type"] == "Precompiled":
            table = base64.b64decode(step["precompiled_charsmap"])
            rules.append(normalizers.Precompiled(table))
    library.normalizer = normalizers.Sequence(rules)
    spaces = {"prepend_scheme": "always" if settings.get("add_prefix_space", True) else "never"}
    splitters = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**spaces)]
    library.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    library.decoder = decoders.Metaspace(**spaces)
    return library


def with_unused(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Returns a tokenizer with a piece for each id below `size`, which is in no text, so that padding rows stay."""
    numbers = range(tokenizer.size, size)
    if not numbers:
        return tokenizer
    return tokenizer.append([*map(huggingface.unused_name, numbers)], tokenizer.special)
