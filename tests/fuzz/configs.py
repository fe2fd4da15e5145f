"""The door of configs: JSON, Python, and overrides. A success has to say just what was given."""

import ast
import json
import os
import runpy

from hypothesis import strategies as st
from kits.small import SMALL, overrides

from bert_jax import config
from fuzz.attempts import Attempt, parsed
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


def same(given, shown) -> bool:
    """Whether a value is shown as it was given; a whole number may be one of a key of real numbers."""
    if isinstance(given, str):
        return shown in (given, os.path.expanduser(given))
    if isinstance(given, int) and type(shown) is float:  # ConfigDict takes False for 0.0
        return float(given) == shown
    return type(given) is type(shown) and given == shown


def differing(given: dict, out: str, whole: bool = False) -> str:
    """The first key that is not shown as it was given; of a whole config also one that was not given."""
    shown, given = flat(parsed(out)), flat(given)
    for key, value in given.items():
        if key not in shown or not same(value, shown[key]):
            return f"{key}: {value!r} given, {shown.get(key)!r} shown"
    extra = sorted(shown.keys() - given.keys()) if whole else []
    return f"{extra} shown, never given" if extra else ""


def as_json(draw, world, place) -> Attempt:
    document = json.loads(json.dumps(usual()))
    if draw(st.booleans()):
        content = encode(draw, changed_json(draw, document))
    else:
        content = changed_bytes(draw, json.dumps(document).encode())
    path = place / "config.json"
    path.write_bytes(content)

    def oracle(code, out, err):
        return differing(json.loads(content), out)

    note = f"{content[:3000]!r}"
    return Attempt(["config", "--config", str(path), "--json", "-"], oracle, note)


SOURCE = """from bert_jax.configs import demo


def get_config():
    config = demo.get_config()
    {change}
    return {result}
"""
CHANGES = ["config.{key} = {value!r}", "config['{key}'] = {value!r}", "del config.{key}"]
CHANGES += ["config.update({key!r})", "config.new.{key} = 1", "raise ValueError({value!r})"]
CHANGES += ["config.{key} += 1", "raise SystemExit({value!r})", "import nowhere", "1 / 0"]
CHANGES += [
    "get_config()",
    "config.{key} = config",
    "config.lock()",
    "assert 0",
]
CHANGES += ["config.{key} = lambda: 1", "config.{key} = {{1}}"]
CHANGES += ["config.unlock(); config.new = {value!r}", "config.phases = {value!r}", "raise OSError"]
CHANGES += [
    "config.{key} = " + "(" * 300,
    "config.{key} = " + "-" * 5000,
]
RESULTS = ["config"] * 8 + ["None", "5", "dict(config)", "config.to_dict()", "demo", "get_config"]


def as_python(draw, world, place) -> Attempt:
    known = flat(usual())
    key, value = draw(st.sampled_from([*known, "nose", "model"])), draw(st.sampled_from(VALUES))
    form = draw(st.sampled_from([CHANGES[0]] * 10 + CHANGES))
    change = form.format(key=key, value=value)
    source = SOURCE.format(change=change, result=draw(st.sampled_from(RESULTS)))
    content = source.encode("utf-8", "surrogatepass")
    kind = draw(st.sampled_from(["whole"] * 4 + ["cut", "flip", "put"]))
    at = draw(st.integers(0, len(content)))
    if kind == "cut":
        content = content[:at]
    elif kind == "put":
        noise = draw(st.sampled_from([b"\0", b"\xff", b"\xef\xbb\xbf", b"\n", b" ", b"'", b"("]))
        content = content[:at] + noise + content[at:]
    elif kind == "flip":
        content = content[:at] + bytes([content[at - 1] ^ 1]) + content[at + 1 :]
    path = place / "mine.py"
    path.write_bytes(content)

    def oracle(code, out, err):
        given = runpy.run_path(str(path))["get_config"]().to_dict()
        # The bands of another file, on which this one builds, are not its own.
        return differing(given | {"bands": []}, out, whole=True)

    arguments = ["config", "--config", str(path), "--json", "-"]
    return Attempt(arguments, oracle, repr(content))


def overrides_value(draw) -> str:
    value = draw(st.sampled_from(VALUES))
    texts = st.text(st.characters(codec="utf-8"), max_size=20)
    return draw(st.one_of(st.just(str(value)), st.just(repr(value)), texts))


def expected(text: str, default):
    """What a text means for a key, by the type of its default."""
    if isinstance(default, str):
        return text
    if isinstance(default, list):
        return listed(text)
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    if isinstance(default, int):
        return whole_number(text)
    return float(text)


def whole_number(text: str) -> int:
    """Of digits, or of a number such as 1e3; raises ValueError for 1.5."""
    if "_" in text or text.strip("+-").isdigit():
        return int(text)
    if not float(text).is_integer():
        raise ValueError(text)
    return int(float(text))


def listed(text: str) -> list:
    """A list or tuple as Python writes it, a single value, or words between commas."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = [part.strip() for part in text.split(",")]
    value = [*value] if isinstance(value, tuple | list) else [value]
    return json.loads(json.dumps(value))


def overridden(given: list[str]) -> dict:
    """{key: value} of demo after `key=value` overrides, the last one of a key counting, as JSON has them."""
    usual = flat(config.load("demo").to_dict())
    values = dict(override.split("=", 1) for override in given)
    read = {key: expected(text, usual[key]) for key, text in values.items()}
    measured = all(map(config.may_change, values))  # the bands of demo are of these settings
    return usual | ({} if measured else {"bands": []}) | read


def override(draw, world, place) -> Attempt:
    known = flat(usual())
    wrong = ["", ".", "model", "model.", "phases.other.steps", "Seed", "é", "model.width.x", "a=b"]
    key = draw(st.sampled_from([*known] * 3 + wrong))
    text = overrides_value(draw)
    forms = [f"--config.{key}={text}"], [f"--config.{key}", text], [f"--config.{key}"]
    given = draw(st.sampled_from([forms[0]] * 4 + [*forms]))
    arguments = ["config", *world.arguments(), *given, "--json", "-"]
    # An option without a value takes the one that follows.
    text = "--json" if given == forms[2] else text

    def oracle(code, out, err):
        if given == forms[2]:
            return "" if flat(parsed(out))[key] == "--json" else "an option without a value"
        settings = overrides(world.settings)
        return differing(overridden([*settings, f"{key}={text}"]), out, whole=True)

    return Attempt(arguments, oracle, repr(given))
