"""A tokenizer as transformers reads it: tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt."""

import copy
import json
from pathlib import Path

from bert_jax.convert import sentencepiece_to_json
from bert_jax.tokenizers.special_tokens import SPECIAL, added_token

INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


def write(directory: Path, tokenizer, positions: int) -> None:
    """positions: tokens of the longest row, with its special pieces."""
    write_json(directory / "tokenizer.json", document(tokenizer))
    write_json(directory / "tokenizer_config.json", settings(tokenizer, positions))
    if tokenizer.kind == "wordpiece":
        tokenizer.write(directory)


def write_json(path: Path, values: dict) -> None:
    text = json.dumps(values, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def settings(tokenizer, positions: int) -> dict:
    """tokenizer_config.json. BertTokenizer makes itself of the vocabulary, the other class of all of tokenizer.json."""
    named = {f"{name}_token": tokenizer.pieces[tokenizer.special[name]] for name in SPECIAL}
    common = {"model_max_length": positions, "model_input_names": INPUTS, **named}
    if tokenizer.kind != "wordpiece":
        return {"tokenizer_class": "PreTrainedTokenizerFast", **common}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        **common,
    }


def document(tokenizer) -> dict:
    """tokenizer.json, parsed: texts become [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""
    pieces, special = tokenizer.pieces, tokenizer.special
    if tokenizer.kind == "wordpiece":
        made = json.loads(tokenizer.tokenizer.to_str())
        made["added_tokens"] = [added_token(pieces[id], id) for id in sorted(special.values())]
    elif tokenizer.kind == "sentencepiece":
        made = sentencepiece_to_json.document(tokenizer.model, special, tokenizer.appended)
    else:
        made = copy.deepcopy(tokenizer.document)
    if tokenizer.mark:
        spaced(made, tokenizer.mask)
    made["post_processor"] = template(tokenizer)
    return made


def spaced(made: dict, mask: int) -> None:
    """Cuts the text around masks as it would be cut without them, where spaces are parts of pieces.

    The space before a mask is not a piece of its own, and the text after one begins a word only after a space.
    """
    next(token for token in made["added_tokens"] if token["id"] == mask)["lstrip"] = True
    splitter = made["pre_tokenizer"]
    if splitter["type"] == "ByteLevel" and splitter["add_prefix_space"]:
        # It would put a space before every part of a text, Metaspace only before the first.
        first = {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False}
        steps = [first, splitter | {"add_prefix_space": False}]
        made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}


def template(tokenizer) -> dict:
    cls, sep = (tokenizer.pieces[number] for number in (tokenizer.cls, tokenizer.sep))

    def piece(name: str, segment: int) -> dict:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    def text(name: str, segment: int) -> dict:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [piece(cls, 0), text("A", 0), piece(sep, 0)]
    ids = {cls: tokenizer.cls, sep: tokenizer.sep}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), piece(sep, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ids.items()
        },
    }
