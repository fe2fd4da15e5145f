"""The doors of configs: JSON, Python, and overrides. A success has to say just what was given."""

import json
import os
import runpy

from hypothesis import strategies as st
from kits.small import SMALL, overrides

from bert_jax import config
from fuzz.attempts import Attempt
from fuzz.damage import VALUES, changed_bytes, changed_json, encode


def usual() -> dict:
    return config.load("demo", overrides(SMALL)).to_dict()


def flat(tree, prefix="") -> dict:
    """{"a.b": value}, tuples as lists."""
    result = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = list(value) if isinstance(value, tuple) else value
    return result


def differing(given: dict, shown: dict, whole: bool = False) -> str:
    """The first key that is not shown as it was given; of a whole config also one that was not given."""
    shown, given = flat(shown), flat(given)
    for key, value in given.items():
        if key not in shown or not same(value, shown[key]):
            return f"{key}: {value!r} given, {shown.get(key)!r} shown"
    extra = sorted(shown.keys() - given.keys()) if whole else []
    return f"{extra} shown, never given" if extra else ""


def same(given, shown) -> bool:
    """Whether a value is shown as it was given; a whole number may be one of a key of real numbers."""
    if isinstance(given, str):
        return shown in (given, os.path.expanduser(given))
    if isinstance(given, int) and type(shown) is float:  # ConfigDict takes False for 0.0
        return float(given) == shown
    return type(given) is type(shown) and given == shown


def as_json(draw, world, place) -> Attempt:
    document = json.loads(json.dumps(usual()))
    if draw(st.booleans()):
        content = encode(draw, changed_json(draw, document))
    else:
        content = changed_bytes(draw, json.dumps(document).encode())
    path = place / "config.json"
    path.write_bytes(content)

    def oracle(outcome):
        return differing(json.loads(content), outcome.values)

    return Attempt(["config", "--config", path, "--json", "-"], oracle, f"{content[:3000]!r}")


SOURCE = """from bert_jax.configs import demo


def get_config():
    config = demo.get_config()
    {change}
    return {result}
"""
CHANGES = ["config.{key} = {value!r}"] * 10 + ["del config.{key}", "config.new.{key} = 1", "1 / 0"]
CHANGES += ["raise SystemExit({value!r})", "import nowhere", "get_config()", "config.lock()"]
CHANGES += ["config.{key} = lambda: 1", "config.phases = {value!r}", "config.{key} = " + "(" * 300]
RESULTS = ["config"] * 8 + ["None", "dict(config)", "demo", "get_config"]


def as_python(draw, world, place) -> Attempt:
    key, value = draw(st.sampled_from([*flat(usual()), "nose"])), draw(st.sampled_from(VALUES))
    change = draw(st.sampled_from(CHANGES)).format(key=key, value=value)
    source = SOURCE.format(change=change, result=draw(st.sampled_from(RESULTS)))
    content = source.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        content = changed_bytes(draw, content)
    path = place / "mine.py"
    path.write_bytes(content)

    def oracle(outcome):
        given = runpy.run_path(str(path))["get_config"]().to_dict()
        # The bands of another file, on which this one builds, are not its own.
        return differing(given | {"bands": []}, outcome.values, whole=True)

    return Attempt(["config", "--config", path, "--json", "-"], oracle, f"{content[:3000]!r}")


def override(draw, world, place) -> Attempt:
    wrong = ["", ".", "model", "model.", "phases.other.steps", "Seed", "é", "model.width.x", "a=b"]
    key = draw(st.sampled_from([*flat(usual())] * 3 + wrong))
    value = draw(st.sampled_from(VALUES))
    texts = st.text(st.characters(codec="utf-8"), max_size=20)
    text = draw(st.one_of(st.just(str(value)), st.just(repr(value)), texts))
    given = [f"--config.{key}={text}"] if draw(st.booleans()) else [f"--config.{key}", text]

    def oracle(outcome):
        return other_override(outcome.values, world, key, text)

    arguments = ["config", *world.arguments(), *given, "--json", "-"]
    return Attempt(arguments, oracle, repr(given))


def other_override(shown: dict, world, key: str, text: str) -> str:
    """Where a config is not that of the world but for one key, which is what a text says."""
    expected = flat(config.load("demo", overrides(world.settings)).to_dict())
    shown = flat(shown)
    value = shown.pop(key)
    del expected[key]
    is_right = value == text or isinstance(value, list)  # tests/test_config.py has what lists mean
    if isinstance(value, bool):
        is_right = value == (text.lower() in ("true", "1"))
    elif isinstance(value, int | float):
        is_right = number(text) == value
    elif isinstance(value, str):
        is_right = same(text, value)
    problem = differing(expected, shown, whole=True)
    return problem if is_right else f"{key}: {text!r} is shown as {value!r}"


def number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
