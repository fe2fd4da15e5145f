"""The files of transformers beside a tokenizer.json, which name its special tokens."""

from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import json_file

SETTINGS = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
# transformers adds special tokens that a vocabulary lacks in this order.
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read(directory: Path) -> dict:
    """Returns the settings of both files; {} if there are none. Raises BadInput for a token without a spelling."""
    settings = {}
    for file in (SETTINGS, SPECIAL_TOKENS):
        if "added_tokens_decoder" in settings:
            break
        values = json_file.read_optional(directory / file)
        for key in filter(values.get, NAMES):
            value = values[key]
            spelling = value.get("content") if isinstance(value, dict) else value
            if not isinstance(spelling, str):
                raise BadInput(f"{directory / file}: {key}={value!r}: expected a text or its rules")
        settings |= values
    return settings


def find_spellings(settings: dict) -> dict[str, str]:
    """Returns {name: spelling} of the special tokens that the settings name."""
    spellings = {}
    for key in filter(settings.get, NAMES[1:]):
        name = key.removesuffix("_token").replace("eos", "sep")
        spellings[name] = as_token(settings[key])["content"]
    return spellings


def as_token(value: str | dict) -> dict:
    """Returns a special token of the settings as an object."""
    if isinstance(value, str):
        return {"content": value, "special": True, "normalized": False}
    return value
