"""Configs: loading, overrides, validation, saving and comparison; every error names the key."""

import json
import sys

import pytest
from kits.small import small_config

from bert_jax import config
from bert_jax.errors import BadInput
from bert_jax.objectives import base as objectives
from bert_jax.runs import continuation, workdir
from bert_jax.tasks import base as tasks


@pytest.mark.parametrize(
    "override, expected",
    [
        ("seed=7", 7),
        ("optimizer.learning_rate=1", 1.0),
        ("optimizer.bias_correction=false", False),
        ("tokenizer.lowercase=True", True),
        ("corpus.source=n=b, m=c", "n=b, m=c"),
        ("phases.main.steps=1e3", 1000),
        ("phase_order=main", ("main",)),
        ("task.random_share=0.2", 0.2),  # with mask_share=0.8: no token is unchanged
        ("phase_order=('main',)", ("main",)),
    ],
)
def test_overrides_have_the_keys_type(override, expected):
    value = config.flatten(config.load("demo", [override]))[override.split("=")[0]]
    assert value == expected and type(value) is type(expected)


def test_numbers_of_columns_and_labels_are_texts():
    keys = config.load("glue", ["task.text=(0,1)", "task.labels=1,0", "task.dev=()"]).task
    assert (keys.text, keys.labels, keys.dev) == (("0", "1"), ("1", "0"), ())
    assert config.load("glue", ["task.dev="]).task.dev == ()
    for text, names in (("a (b), [c] d", ("a (b)", "[c] d")), ("'a, (b)'", ("a, (b)",))):
        assert config.load("glue", [f"task.text={text}"]).task.text == names
    assert config.load("ner", ["task.columns=1,-2"]).task.columns == (1, -2)


WRONG = """
    seed seed=many seed=1.5 seed=-1 model=64
    optimizer.name=sgd optimizer.name=no.module optimizer.name=os.path
    optimizer.bias_correction=perhaps optimizer.learning_rate=1e999 optimizer.learning_rate=-1e-4
    model.heads=3 model.name=gpt model.name=layers model.initializer=-1
    objective.name=base objective.name=base.x task.pair_task=maybe task.mask_rate=1.5
    task.random_share=0.5
    phases.main.steps=2147483648 phases.main.length=1000 phases.main.max_predictions=62
    phases.main.batch=0 phase_order=main,main phase_order=other
    train.tokens_per_device=-1 train.remat=some
    corpus.source=, corpus.format=pdf corpus.format=lines,wiki
    profile.steps=(5,5) profile.steps=(0,2801) profile.steps=(1,2,3) profile.steps=(0.5,2)
    profile.steps=(-1,2) profile.steps=7 schedule.name=wsd schedule.end=1.5 schedule.decay=-1
    phases.main.schedule=name phases.main.learning_rate=-1 phases.main.learning_rate=1e-3
    phases.main.warmup=5 phases.main.decay=5 phases.main.end=0.1
"""


@pytest.mark.parametrize(
    "overrides, key",
    [(override, override.partition("=")[0]) for override in WRONG.split()]
    + [
        ("model.widht=64", "model.width"),  # the key that was meant
        ("width=64", "model.width"),
        ("optimizer.lr=1", "did you mean optimizer.learning_rate or"),
        ("batch_size=8", "did you mean evaluate.batch or phases.main.batch?"),
        ("train.micro_batches=5", "phases.main.batch=96"),
        ("train.micro_batches=2 train.tokens_per_device=4", "train.tokens_per_device=4"),
        ("optimizer.name=adafactor optimizer.moment_dtype=bfloat16", "optimizer.moment_dtype"),
        ("optimizer.name=stable_adamw", "optimizer.weight_decay=0.01"),
        ("optimizer.name=muon optimizer.momentum=1", "optimizer.momentum=1.0"),
        ("optimizer.name=muon optimizer.newton_schulz_steps=0", "optimizer.newton_schulz_steps=0"),
        ("continue_from=a init_from=b", "continue_from='a'"),
        ("log.every=7 checkpoint.every=30", "checkpoint.every=30"),
        ("schedule.name=constant schedule.decay=5", "schedule.decay=5"),
        ("phases.main.schedule=slanted phases.main.end=0.5", "phases.main.end=0.5"),
    ],
)
def test_wrong_overrides_are_named(overrides, key):
    with pytest.raises(BadInput) as error:
        config.load("demo", overrides.split())
    assert key in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("config.model.layer = 2", "mine.py:4: .*layer; did you mean model.layers?"),
        ("config.phases.main.steps = 'b'", "mine.py:4: .*'steps'.* <class 'int'>"),
        ("config.seed = None", "config.seed=None"),
        ("config.seed = config.optimizer.lr", "mine.py:4: .*lr; did you mean optimizer.learn"),
    ],
)
def test_a_wrong_line_of_a_config_file_is_named(tmp_path, line, named):
    path = tmp_path / "mine.py"
    body = f"    config = demo.get_config()\n    {line}\n    return config\n"
    path.write_text(f"from bert_jax.configs import demo\ndef get_config():\n{body}")
    with pytest.raises(BadInput, match=named):
        config.load(str(path))


def test_a_model_needs_no_width_and_no_longest_row():
    keys = small_config("model.feed_forward=0", "phases.main.length=16")
    assert config.longest_row(keys) == 32
    with keys.unlocked():
        del keys.model["width"], keys.model["max_length"]
    assert config.longest_row(keys) == 16 and config.differences(keys, keys) == {}


def test_the_size_of_feed_forward_layers_follows_the_width_of_a_saved_config(tmp_path):
    keys = small_config("model.feed_forward=0")
    assert config.differences(keys, small_config("model.feed_forward=128")) == {}
    config.save(keys, tmp_path / "config.json")
    wide = config.load(str(tmp_path / "config.json"), ["model.width=64"])
    assert config.resolve_model(wide).model.feed_forward == 256 and wide.model.feed_forward == 0


def test_a_run_names_its_config(tmp_path, monkeypatch):
    """But a shipped config of the same name comes first."""
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "mine"):
        (tmp_path / name).mkdir()
        config.save(config.load("demo", ["seed=5"]), tmp_path / name / "config.json")
        (tmp_path / name / "run.json").write_text("{}")
    assert config.load("mine").seed == config.load(f"{tmp_path}/mine").seed == 5
    assert config.load("demo").seed != 5
    assert [workdir.of_config(name) for name in ("demo", "mine")] == ["", "mine"]


BESIDE = """
from helper import seed
from bert_jax.configs import demo

TASKS = {"one": seed}

def get_config():
    from helper import later
    config = demo.get_config()
    config.seed = seed + later
    return config
"""


@pytest.mark.parametrize("file", ["helper.py", "helper_folder/seeds.py"])
def test_a_config_imports_the_files_beside_it(tmp_path, monkeypatch, file):
    module = file.removesuffix(".py").replace("/", ".")
    before = [*sys.path]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("seed = 2\nlater = 40\n")
    (tmp_path / "mine.py").write_text(BESIDE.replace("helper", module))
    assert config.load(f"{tmp_path}/mine.py").seed == 42
    assert config.arguments(f"{tmp_path}/mine.py") == ["one"]
    monkeypatch.chdir(tmp_path)
    assert config.load("mine.py").seed == 42
    assert sys.path == before


def test_a_file_beside_a_config_hides_no_library(tmp_path):
    (tmp_path / "colorsys.py").write_text("raise SystemExit")
    lines = "import colorsys", "from bert_jax.configs.demo import get_config"
    (tmp_path / "mine.py").write_text("\n".join(lines))
    assert config.load(f"{tmp_path}/mine.py").phase_order == ("main",)


CYCLE = "import ml_collections\ndef get_config():\n    c = ml_collections.ConfigDict()\n"
ODD = {
    "deep.json": "[" * 100_000,
    "cycle.py": CYCLE + "    c.model = c\n    return c\n",
    "without_its_function.py": "config = 1\n",
    "long.py": "def get_config():\n    raise ValueError('x' * 10_000)\n",
}


@pytest.mark.parametrize("name", ODD)
def test_malformed_files_give_one_line(tmp_path, name):
    (tmp_path / name).write_text(ODD[name])
    with pytest.raises(BadInput, match=name) as error:
        config.load(str(tmp_path / name))
    assert "\n" not in str(error.value) and len(str(error.value)) < 2000


@pytest.mark.parametrize("is_older", [False, True])
def test_saved_configs_read_back(tmp_path, is_older):
    """Keys that an older one lacks have their defaults."""
    before = config.load("bert_base", ["seed=9"])
    path = tmp_path / "config.json"
    config.save(before, path)
    values = json.loads(path.read_text())
    if is_older:
        del values["train"]["remat"], values["phases"]["short"]["max_packed"]
    path.write_text(json.dumps(values))
    after = config.load(str(path))
    assert config.differences(before, after) == {} and after.phase_order == before.phase_order
    assert continuation.refusals(config.read(path), before, 5) == []


@pytest.mark.parametrize("key", ["unheard_of", "tokenizer.path", "phases.main.batch", "phases"])
def test_unknown_keys_and_nulls_are_refused_in_saved_configs(tmp_path, key):
    values = config.load("demo").to_dict()
    *groups, last = key.split(".")
    group = values
    for name in groups:
        group = group[name]
    group[last] = 1 if key == "unheard_of" else None
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    with pytest.raises(BadInput, match=f"{path}.*{key}"):
        config.read(path)


ALLOWED = """
    mesh.tensor=2 train.micro_batches=2 log.every=2 checkpoint.every=20 train.remat=full
    evaluate.rows=7 phases.main.steps=50 store=elsewhere corpus.workers=1 profile.steps=(3,4)
    corpus.source=elsewhere tokenizer.path=elsewhere init_from=elsewhere
"""
REFUSED = """
    seed=1 model.layers=3 task.masking=whole_word optimizer.clip=2
    optimizer.moment_dtype=bfloat16 phases.main.batch=32 tokenizer.size=99 schedule.warmup=3
    dtype=bfloat16 phases.main.steps=5
"""


def test_what_a_resumed_run_may_change():
    old = small_config()
    assert continuation.refusals(old, small_config(*ALLOWED.split()), step=10) == []
    for override in REFUSED.split():
        (line,) = continuation.refusals(old, small_config(override), step=10)
        assert line.startswith(f"config.{override.split('=')[0]}: ")
    assert continuation.refusals(old, small_config("phases.main.steps=30"), step=20) == []
    (line,) = continuation.refusals(old, small_config("init_from=elsewhere", "seed=1"), step=0)
    assert "init_from" in line  # an import has an encoder
    old, new = (config.load("modern_base", [f"phases.batch768.rotary_base={n}"]) for n in (0, 1e4))
    assert "model.rotary_base: 160000.0 in the run" in continuation.refusals(old, new, step=0)[0]
    old, new = (small_config("schedule.name=sqrt", f"schedule.decay={decay}") for decay in (5, 8))
    assert continuation.refusals(old, new, step=12) == [] and continuation.digest(
        old
    ) == continuation.digest(new)
    assert (
        "decay: 5 in the run (the decay has begun)" in continuation.refusals(old, new, step=13)[0]
    )
    for decay in ("schedule.decay=5", "schedule.decay=15"):  # the second begins at the same step
        new = small_config("schedule.name=sqrt", decay, "phases.main.steps=30")
        assert [bool(continuation.refusals(old, new, step)) for step in (15, 16)] == [False, True]
    keys = ["schedule.decay=70000"]  # it begins before the phases `long` and `decay`
    old = config.load("modern_base", keys)
    order = ",".join([*old.phase_order[:-2], "decay", "long"])
    begin = config.total_steps(old) - 70_000
    for change in ("phases.decay.batch=64", f"phase_order={order}"):
        new = config.load("modern_base", [*keys, change])
        assert [bool(continuation.refusals(old, new, begin + n)) for n in (0, 1)] == [False, True]


def test_a_past_phase_may_not_change():
    old = config.load("bert_base")
    new = config.load("bert_base", ["phases.short.steps=950000"])
    assert [bool(continuation.refusals(old, new, step)) for step in (899_999, 900_001)] == [
        False,
        True,
    ]
    new = config.load("bert_base", ["phases.long.steps=200000"])
    assert continuation.refusals(old, new, step=950_000) == []


# --- Models, objectives and tasks outside of the package ------------------------------------------

MODULE = """
from bert_jax.checks import check_keys

DEFAULTS = {defaults}

def check(config):
    check_keys(config, at_least_one={positive})

def make(config, *more):
    raise NotImplementedError
"""
OWN = {
    "model.py": MODULE.format(defaults='{"width": 64, "dropout": 0.3, "depth": 3}', positive=()),
    "objective.py": MODULE.format(defaults={}, positive=()),
    "task.py": 'PHASE_DEFAULTS = {"spans": 4, "max_packed": 2}'
    + MODULE.format(
        defaults='{"stride": 8, "masking": 1, "mask_rate": 0.3}',
        positive='("task.stride", "phases.main.spans")',
    ),
    "broken.py": "raise SystemExit('two\\nlines')",
    "empty.py": "DEFAULTS = {}",
    "wrong.py": "DEFAULTS = {}\nNEEDS = ['sep']\ndef make(config, store): ...",
    "task_without_rows.py": """
from bert_jax.data.dataset import Dataset

DEFAULTS = {}

def make(config, store):
    return Dataset(shapes=print, splits=("train", "heldout"), make=print)
""",
    "objective_of_texts.py": """
from bert_jax.objectives.base import Objective

DEFAULTS = {}

def make(config, vocabulary):
    return Objective(init=print, weights=print, loss="loss", outputs=print)
""",
}
NAMES = ["model.name=own.model", "objective.name=own.objective", "task.name=own.task"]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Makes the modules of OWN importable as `own.model` and so on."""
    (tmp_path / "own").mkdir()
    for name, text in OWN.items():
        (tmp_path / "own" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
        del sys.modules[name]


def test_other_modules_bring_their_own_keys(own, tmp_path):
    """The values that demo changed are kept where both have the key, and with the same type."""
    changes = ["task.stride=5", "phases.main.spans=3"]  # before the names that bring these keys
    loaded = config.load("demo", [*changes, *NAMES])
    path = tmp_path / "config.json"
    assert loaded.model.to_dict() == dict(name="own.model", width=128, dropout=0.0, depth=3)
    assert loaded.objective.to_dict() == dict(name="own.objective")
    assert loaded.task.to_dict() == dict(name="own.task", stride=5, masking=1, mask_rate=0.3)
    phase = config.base_config.phase(steps=1820, length=32, batch=96, spans=3, max_packed=2)
    assert loaded.phases.main.to_dict() == phase.to_dict()
    config.save(loaded, path)
    assert config.differences(config.load(str(path)), loaded) == {}
    assert continuation.digest(json.loads(path.read_text())) == continuation.digest(loaded)
    assert config.changes(loaded)["task.name"] == ("sentence_pairs", "own.task")
    changed = config.load(str(path), ["task.stride=6"])
    assert "task.stride" in continuation.refusals(loaded, changed, 5)[0]
    back = config.load(str(path), ["task.name=sentence_pairs", "model.name=bert", "model.heads=4"])
    assert back.task.mask_rate == 0.15 and back.phases.main.max_packed == 1
    assert back.model.width == 128 and back.model.layers == 12


@pytest.mark.parametrize(
    "line", ["config = base.get_config(task='own.task')", "base.use(config, task='own.task')"]
)
def test_a_config_file_chooses_its_task(own, tmp_path, line):
    path = tmp_path / "mine.py"
    lines = ["config = base.get_config()", line]
    lines += ["config.task.stride = 3", "config.phases.main = base.phase(9, 32, 8, spans=2)"]
    body = "".join(f"    {line}\n" for line in [*lines, "return config"])
    path.write_text(f"from bert_jax.configs import base\ndef get_config():\n{body}")
    loaded = config.load(str(path))
    assert loaded.task.stride == 3 and loaded.task.mask_rate == 0.3
    assert loaded.phases.main.spans == 2 and loaded.phases.main.max_packed == 2
    path.write_text(path.read_text().replace("spans=2", "spams=2"))
    with pytest.raises(BadInput, match="phases.main.spams.*own.task"):
        config.load(str(path))


@pytest.mark.parametrize(
    "override",
    """
    task.stride=0 phases.main.spans=0 task.masking=token task.mask_share=0.5 model.heads=4
    task.pair_task=nsp phases.main.max_predictions=3
    task.name=own.nothing task.name=own.broken task.name=own.empty task.name=own.
    """.split(),
)
def test_wrong_keys_and_modules_are_named(own, override):
    with pytest.raises(BadInput) as error:
        config.load("demo", [*NAMES, override])
    assert override.partition("=")[0] in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name, field", [("empty", "make"), ("wrong", "NEEDS")])
def test_a_wrong_or_missing_field_of_a_module_is_named(own, name, field):
    with pytest.raises(BadInput, match=f"config.task.name='own.{name}': .*{field}"):
        config.load("demo", [f"task.name=own.{name}"])


def test_a_wrong_or_missing_field_of_what_a_module_makes_is_named(own):
    keys = config.load("demo", [*NAMES[:2], "task.name=own.task_without_rows"])
    with pytest.raises(BadInput, match="config.task.name='own.task_without_rows': .*'rows'"):
        tasks.make(keys)
    keys = config.load("demo", ["objective.name=own.objective_of_texts"])
    with pytest.raises(BadInput, match="config.objective.name='own.objective_of_texts': .*loss"):
        objectives.make(keys, None)


@pytest.mark.parametrize("name", ["classify", "base", "feed", "text", "supervised", "masked_rows"])
def test_a_task_that_does_not_exist_is_refused_with_those_that_do(name):
    with pytest.raises(BadInput) as error:
        config.load("demo", [f"task.name={name}"])
    message = str(error.value)
    assert message.startswith(f"config.task.name={name!r}")
    assert "sentence_pairs" in message and "token_classification" in message
    assert "masked_rows," not in message
