"""Configs: found, overridden, checked, saved and compared; every error names the key."""

import importlib
import json
import re
from pathlib import Path

import pytest
from kits.small import small_config

from bert_jax import config, models, objectives
from bert_jax.errors import BadInput


@pytest.mark.parametrize(
    "override, expected",
    [
        ("seed=7", 7),
        ("optimizer.learning_rate=1", 1.0),
        ("optimizer.learning_rate=3e-4", 3e-4),
        ("optimizer.bias_correction=false", False),
        ("tokenizer.lowercase=True", True),
        ("corpus.source=a=b, c", "a=b, c"),
        ("phases.main.steps=1e3", 1000),
        ("phase_order=main", ("main",)),
        ("phase_order=('main',)", ("main",)),
    ],
)
def test_overrides_have_the_keys_type(override, expected):
    value = config.flatten(config.load("demo", [override]))[override.split("=")[0]]
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(
    "override, words",
    [
        ("model.widht=64", "did you mean model.width"),
        ("width=64", "did you mean model.width"),
        ("model=64", "a group of keys"),
        ("seed=many", "config.seed=many: expected int"),
        ("seed=1.5", "config.seed=1.5: expected int"),
        ("seed", "expected --config.KEY=VALUE"),
        ("optimizer.bias_correction=perhaps", "expected bool"),
        ("model.heads=3", "model.heads=3: does not divide model.width=128"),
        ("model.name=gpt", "there is no bert_jax/models/gpt.py"),
        ("objective.name=base.x", "there is no bert_jax/objectives/base.x.py"),
        ("objective.pairs=maybe", "expected one of nsp, sop, none"),
        ("objective.mask_rate=1.5", "expected a share"),
        ("objective.random_share=0.5", "with mask_share it is over 1"),
        ("optimizer.learning_rate=1e999", "expected a finite number"),
        ("optimizer.learning_rate=-1e-4", "learning_rate=-0.0001: expected 0 or more"),
        ("model.initializer=-1", "model.initializer=-1.0: expected 0 or more"),
        ("phases.main.steps=2147483648", "phases.main.steps=2147483648: expected less than"),
        ("phases.main.length=1000", "longer than model.positions=128"),
        ("phases.main.predictions=62", "more than fit into 64 tokens"),
        ("phases.main.batch=0", "expected at least 1"),
        ("train.micro_batches=3", "phases.main.batch=64: does not divide"),
        ("train.rows_per_chip=-1", "train.rows_per_chip=-1: expected 0 or more"),
        ("train.remat=some", "expected one of none, attention, full"),
        ("checkpoint.every=30", "expected a multiple of log.every=50"),
        ("phase_order=main,main", "each once"),
        ("phase_order=other", "expected the keys of phases"),
        ("corpus.source= , ", "names no source"),
        ("corpus.format=pdf", "expected one of lines, files, wiki, jsonl"),
        ("corpus.format=lines,wiki", "one for each of 1 sources"),
        ("corpus.weights=(1, 2)", "a number over 0 for each of 1 sources"),
        ("corpus.weights=0", "a number over 0"),
        ("filter.line_symbols=2", "expected a share"),
        ("filter.near_duplicates=1", "expected a share"),
        (
            "profile.steps=(5, 5)",
            "profile.steps=(5, 5): expected (), or the first step and one past",
        ),
        ("profile.steps=(0, 2801)", "of 2800"),
        ("profile.steps=(1, 2, 3)", "of 2800"),
        ("profile.steps=(0.5, 2)", "of 2800"),
        ("profile.steps=(-1, 2)", "of 2800"),
        ("profile.steps=7", "of 2800"),
        ("bands=(5, 1.0)", "expected rising steps"),
        ("bands=(5, 1.0, 2.0, 5, 1.0, 2.0)", "expected rising steps"),
        ("bands=(5, 2.0, 1.0)", "expected rising steps"),
    ],
)
def test_wrong_overrides_name_key_and_value(override, words):
    with pytest.raises(BadInput) as error:
        config.load("demo", [override])
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "overrides, words",
    [
        (
            ["train.micro_batches=2", "train.rows_per_chip=4"],
            "train.micro_batches=2: follows from train.rows_per_chip=4",
        ),
        (
            ["optimizer.name=adafactor", "optimizer.moment_dtype=bfloat16"],
            "optimizer.moment_dtype='bfloat16': optimizer.name='adafactor' keeps no first moment",
        ),
    ],
)
def test_keys_that_contradict_each_other(overrides, words):
    with pytest.raises(BadInput) as error:
        config.load("demo", overrides)
    assert words in str(error.value) and "\n" not in str(error.value)


SHARED = ("__init__", "base")  # by objectives


@pytest.mark.parametrize("package", [models, objectives])
def test_what_they_share_is_no_model_and_no_objective(package):
    group = package.__name__.split(".")[-1].removesuffix("s")
    for path in Path(package.__path__[0]).glob("*.py"):
        module = importlib.import_module(f"{package.__name__}.{path.stem}")
        is_one = hasattr(module, "Encoder") if package is models else path.stem not in SHARED
        if is_one:
            config.load("demo", [f"{group}.name={path.stem}"])
            continue
        with pytest.raises(BadInput, match=f"there is no .*/{path.stem}.py"):
            config.load("demo", [f"{group}.name={path.stem}"])


def test_configs_are_found(tmp_path):
    with pytest.raises(BadInput, match="there are .*bert_base.*demo"):
        config.load("nowhere")
    with pytest.raises(BadInput, match="no such file"):
        config.load(str(tmp_path / "mine.py"))
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from bert_jax.configs import demo\n"
        "def get_config():\n"
        "    config = demo.get_config()\n"
        "    config.seed = 3\n"
        "    return config\n"
    )
    assert config.load(str(mine)).seed == 3
    mine.write_text(mine.read_text().replace("config.seed", "config.sead"))
    with pytest.raises(BadInput, match="mine.py.*sead"):
        config.load(str(mine))


def test_bands_belong_to_one_file_as_it_stands(tmp_path):
    measured, derived = tmp_path / "measured.py", tmp_path / "derived.py"
    measured.write_text(
        "from bert_jax.configs import base\n"
        "BANDS = ((10, 5.0, 6.0), (20, 3.0, 5.0))\n"
        "get_config = base.get_config\n"
    )
    derived.write_text(
        f"import runpy\nget_config = runpy.run_path({str(measured)!r})['get_config']\n"
    )
    assert config.load(str(measured)).bands == (10, 5.0, 6.0, 20, 3.0, 5.0)
    assert config.load(str(measured), ["log.every=5"]).bands
    assert config.load(str(measured), ["log.every=5", "seed=1"]).bands == ()
    assert config.load(str(measured), ["bands=(1, 2, 3)", "seed=1"]).bands == (1, 2, 3)
    assert config.load(str(derived)).bands == ()


@pytest.mark.parametrize("name", ["demo", "bert_base"])
def test_saved_configs_read_back(tmp_path, name):
    before = config.load(name, ["seed=9"])
    config.save(before, tmp_path / "config.json")
    after = config.load(str(tmp_path / "config.json"))
    assert config.differences(before, after) == {} and after.phase_order == before.phase_order
    values = json.loads((tmp_path / "config.json").read_text())
    values["unheard_of"] = 1
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(BadInput, match="config.json.*unheard_of"):
        config.load(str(tmp_path / "config.json"))


@pytest.mark.parametrize("key", ["tokenizer.path", "seed", "phases.main.batch", "phases"])
def test_null_is_the_value_of_no_key(tmp_path, key):
    values = config.load("demo").to_dict()
    *groups, last = key.split(".")
    group = values
    for name in groups:
        group = group[name]
    group[last] = None
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(BadInput, match=re.escape(f"{path}: not a config ({key}: null")):
        config.read(path)


def test_a_config_saved_before_a_key_was_there(tmp_path):
    """A run that was begun then goes on: the key has its default."""
    before = config.load("bert_base")
    values = before.to_dict()
    for phase in values["phases"].values():
        del phase["sequences"]
    del values["train"]["remat"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    after = config.load(str(tmp_path / "config.json"))
    assert config.differences(before, after) == {}
    assert config.refusals(config.read(tmp_path / "config.json"), before, 5) == []


def test_describe_marks_what_differs_from_base():
    lines = config.describe(config.load("demo", ["seed=9"])).splitlines()
    assert "seed = 9    # base: 12345" in lines
    assert "model.segments = 2" in lines
    assert len(lines) == len(config.flatten(config.load("demo")))


def test_phases_follow_their_order():
    short, long = config.phases(config.load("bert_base"))
    assert (short.name, short.first, short.last, short.length) == ("short", 0, 900_000, 128)
    assert (long.name, long.first, long.last, long.length) == ("long", 900_000, 1_000_000, 512)


def test_what_a_resumed_run_may_change():
    old = small_config()
    allowed = ("mesh.tensor=2", "train.micro_batches=2", "log.every=2", "checkpoint.every=20")
    allowed += (
        "train.remat=full",
        "evaluate.rows=7",
        "phases.main.steps=50",
        "store=elsewhere",
        "corpus.workers=1",
        "profile.steps=(3, 4)",
    )
    assert config.refusals(old, small_config(*allowed), step=10) == []
    refused = ("seed=1", "model.layers=3", "objective.masking=whole_word", "optimizer.clip=2")
    refused += ("corpus.weights=(2.0,)", "optimizer.moment_dtype=bfloat16")
    refused += ("phases.main.batch=32", "tokenizer.size=99", "schedule.warmup=3", "dtype=bfloat16")
    for override in refused:
        key = override.split("=")[0]
        (line,) = config.refusals(old, small_config(override), step=10)
        assert line.startswith(f"config.{key}: ")
    # Fewer steps than are done cannot be had; at the end of the last phase more can.
    assert config.refusals(old, small_config("phases.main.steps=5"), step=10)
    assert config.refusals(old, small_config("phases.main.steps=30"), step=20) == []


def test_a_past_phase_may_not_change():
    old, new = config.load("bert_base"), config.load("bert_base", ["phases.short.steps=950000"])
    assert config.refusals(old, new, step=899_999) == []
    assert config.refusals(old, new, step=900_001)
    new = config.load("bert_base", ["phases.long.steps=200000"])
    assert config.refusals(old, new, step=950_000) == []
