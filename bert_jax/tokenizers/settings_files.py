"""The files of transformers beside a tokenizer.json, which name its special tokens."""

from pathlib import Path

from bert_jax.storage import json_file
from bert_jax.tokenizers.special_tokens import SPECIAL

SETTINGS = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"


def read(directory: Path) -> dict:
    """Returns the settings of both files; {} if there are none."""
    settings = json_file.read_optional(directory / SETTINGS)
    if "added_tokens_decoder" not in settings:
        settings |= json_file.read_optional(directory / SPECIAL_TOKENS)
    return settings


def find_spellings(settings: dict) -> dict[str, str]:
    """Returns {name: spelling} of the special tokens that the settings name."""
    spellings = {}
    for name in SPECIAL:
        value = settings.get(f"{name}_token")
        if name == "sep" and not value:
            value = settings.get("eos_token")
        if value:
            spellings[name] = as_token(value)["content"]
    return spellings


def as_token(value: str | dict) -> dict:
    """Returns a special token of the settings as an object."""
    if isinstance(value, str):
        return {"content": value, "special": True, "normalized": False}
    return value
