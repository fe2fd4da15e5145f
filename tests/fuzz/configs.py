"""Targets of configs: JSON and overrides. A success shows exactly the given values."""

import json
import os

from hypothesis import strategies as st
from kits.small import SMALL, overrides

from bert_jax import config
from fuzz.attempts import Attempt
from fuzz.damage import VALUES, changed_bytes, changed_json, encode


def defaults(settings=SMALL) -> dict:
    return config.load("demo", overrides(settings)).to_dict()


def flat(tree, prefix="") -> dict:
    """Returns {"a.b": value}, with tuples as lists."""
    result = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = list(value) if isinstance(value, tuple) else value
    return result


def same(given, shown) -> bool:
    """Returns whether a value is shown as it was given; an integer may become a float."""
    if isinstance(given, str):
        return shown in (given, os.path.expanduser(given))
    if isinstance(given, int) and type(shown) is float:  # ConfigDict takes False for 0.0
        return float(given) == shown
    return type(given) is type(shown) and given == shown


def as_json(draw, world, directory) -> Attempt:
    document = json.loads(json.dumps(defaults()))
    if draw(st.booleans()):
        content = encode(draw, changed_json(draw, document))
    else:
        content = changed_bytes(draw, json.dumps(document).encode())
    path = directory / "config.json"
    path.write_bytes(content)

    def oracle(outcome):
        shown = flat(outcome.values)
        for key, value in flat(json.loads(content)).items():
            assert key in shown and same(value, shown[key]), key

    return Attempt(["config", "--config", path, "--json", "-"], oracle)


def override(draw, world, directory) -> Attempt:
    wrong = ["", ".", "model", "model.", "phases.other.steps", "Seed", "é", "model.width.x", "a=b"]
    key = draw(st.sampled_from([*flat(defaults())] * 3 + wrong))
    value = draw(st.sampled_from(VALUES))
    texts = st.text(st.characters(codec="utf-8"), max_size=20)
    text = draw(st.one_of(st.just(str(value)), st.just(repr(value)), texts))
    given = [f"--config.{key}={text}"] if draw(st.booleans()) else [f"--config.{key}", text]

    def oracle(outcome):
        """The key has the value of the text in its own type; all other keys are unchanged."""
        values = {key: value for key, value in outcome.values.items() if key != "counts"}
        expected, shown = flat(defaults(world.settings)), flat(values)
        before, after = expected.pop(key), shown.pop(key)
        assert shown.keys() == expected.keys()
        assert all(same(expected[other], shown[other]) for other in expected)
        assert type(after) is type(before)
        if isinstance(after, bool):
            assert after == (text.lower() in ("true", "1"))
        elif isinstance(after, str):
            assert same(text, after)
        elif not isinstance(after, list):  # lists: tests/test_config.py
            # As a float, a large integer such as 10**400 would be infinite.
            assert text == str(after) or float(text) == after

    return Attempt(["config", *world.arguments(), *given, "--json", "-"], oracle)
