"""Writes a tokenizer for transformers: tokenizer.json, tokenizer_config.json and, for WordPiece, vocab.txt."""

import copy
import json
from pathlib import Path

from tokenizers.processors import TemplateProcessing

from bert_jax.convert import sentencepiece_to_json
from bert_jax.storage import json_file
from bert_jax.tokenizers import huggingface
from bert_jax.tokenizers.special_tokens import (
    BERT_FRAME,
    SPECIAL,
    Frame,
    added_token,
    parse_frame,
)

BERT = parse_frame(BERT_FRAME)


def write(
    directory: Path, tokenizer, positions: int, has_segments: bool = True, frame: Frame = BERT
) -> None:
    """Writes the files.

    positions: tokens of the longest row, including special pieces.
    has_segments: whether the model has two kinds of segments.
    frame: of names. Without any, the model generates texts; without cls, it has no masks.
    """
    inputs = ["input_ids", "attention_mask"]
    if has_segments:
        inputs.insert(1, "token_type_ids")
    common = {"model_max_length": positions, "model_input_names": inputs}
    # BertTokenizer adds a [CLS].
    is_bert = tokenizer.kind == "wordpiece" and frame == BERT
    write_json(directory / "tokenizer.json", document(tokenizer, frame))
    tokens = settings(tokenizer, is_bert)
    if frame.last_segment is not None:  # transformers reads the vector of the last place of a row
        common["padding_side"] = "left"
    if not frame.size():  # transformers asks for a token that begins a text, and one that ends it
        end = tokenizer.spellings.get("sep")
        tokens |= {"bos_token": tokenizer.spellings.get("bos", end), "eos_token": end}
    write_json(directory / "tokenizer_config.json", tokens | common)
    if is_bert:
        tokenizer.write(directory)


def write_json(path: Path, values: dict) -> None:
    json_file.write(path, values, ensure_ascii=False)


def settings(tokenizer, is_bert: bool) -> dict:
    """Returns tokenizer_config.json. BertTokenizer reads the vocabulary, the other class all of tokenizer.json."""
    # For BertTokenizer, which has defaults, None says that there is no such token.
    tokens = {f"{name}_token": tokenizer.spellings.get(name) for name in SPECIAL}
    if not is_bert:
        return {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "tokenize_chinese_chars": True,
        "strip_accents": tokenizer.tokenizer.normalizer.strip_accents,
        **tokens,
    }


def document(tokenizer, frame: Frame) -> dict:
    """Returns tokenizer.json, parsed. It puts texts into the frame, see `write`."""
    if tokenizer.kind == "wordpiece":
        values = json.loads(tokenizer.tokenizer.to_str())
        ids = sorted(tokenizer.special.values())
        values["added_tokens"] = [added_token(tokenizer.pieces[id], id) for id in ids]
    elif tokenizer.kind == "sentencepiece":
        values = sentencepiece_to_json.document(tokenizer)
    else:
        values = copy.deepcopy(tokenizer.document)
    has_cls = "cls" in frame.begin
    mask = tokenizer.mask if has_cls else None
    if tokenizer.mark:
        adjust_spaces(values, mask)
    decoder = values["decoder"]
    if not has_cls and decoder and decoder["type"] == "ByteLevel" and tokenizer.adds_space:
        # A generated text begins without the space that the tokenizer adds before the first word of each.
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        values["decoder"] = {"type": "Sequence", "decoders": [decoder, strip]}
    values["post_processor"] = post_processor(tokenizer, frame)
    return values


def adjust_spaces(values: dict, mask: int | None) -> None:
    """Changes tokenizer.json, for pieces that contain spaces, so that masks do not change the pieces around them.

    The space before a mask is no piece of its own, and the text after a mask begins a word only after a space.
    """
    for token in values["added_tokens"]:
        if token["id"] == mask:
            token["lstrip"] = True
    splitter = values["pre_tokenizer"] or {}
    if splitter.get("type") == "ByteLevel" and splitter["add_prefix_space"]:
        # ByteLevel would add a space before every part of a text, Metaspace adds one before the first alone.
        steps = [huggingface.FIRST_SPACE, splitter | {"add_prefix_space": False}]
        values["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}


def post_processor(tokenizer, frame: Frame) -> dict:
    """Returns the template that adds the tokens of a frame, if the vocabulary has them."""
    parts = frame.ids(tokenizer.special)[:3]
    ids = {tokenizer.pieces[number]: number for part in parts for number in part}
    begin, between, end = ([tokenizer.pieces[number] for number in part] for part in parts)
    single = [*begin, "$A", *end]
    pair = [*begin, "$A", *between, "$B:1", *(f"{piece}:1" for piece in end)]
    if frame.last_segment is not None:
        single[-1] = pair[-1] = f"{end[-1]}:{frame.last_segment}"
    template = TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[*ids.items()],
    )
    return json.loads(template.__getstate__())
