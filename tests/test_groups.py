"""The jobs of groups in docs/recipes/groups: their rates, masks and shares of text are those of the published runs, and
at toy size they run, one after the other, with the parameters of the run before."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from kits import mds, vocabularies
from kits.runs import params
from kits.texts import PROSE
from pyarrow import parquet

from bert_jax import config as configs
from bert_jax import optimizer, train
from bert_jax.checkpoints import reader
from bert_jax.checks import source_names, sources
from bert_jax.convert.names import by_path
from bert_jax.data import mixture

GROUPS = Path(__file__).parents[1] / "docs/recipes/groups"
BILLION = 10**9


def rising(part):
    """The rate of a warm-up, of which `part` is over."""
    return np.minimum(1, part)


def falling(part, end):
    """1 - sqrt of the progress, down to a share."""
    return 1 + (end - 1) * np.sqrt(np.clip(part, 0, 1))


def finnish(tokens, steps):
    share = steps / 360_000
    low = 5e-5 * falling((share - 0.97) / 0.03, 0)
    return np.where(share < 0.85, 3e-4, low)


def llm_jp(peak, total):
    return lambda x, n: peak * np.minimum(n / 24_000, (total - n) / (total - 24_000))


# {run: (rate of the tokens and of the steps before a step; {mask rate: its phases, or all}; of held-out rows)}
PUBLISHED = {
    "finnish_modernbert": (finnish, {0.3: ()}, 0.3),
    "hebrew_modernbert:mix": (lambda x, n: 8e-4 * rising(x / 6 / BILLION), {0.3: ()}, 0.15),
    "hebrew_modernbert:hebrew": (
        lambda x, n: (
            8e-4 * rising(x / 2 / BILLION) * (1 - 0.98 * np.clip(x / BILLION / 10 - 9, 0, 1))
        ),
        {0.3: ()},
        0.15,
    ),
    "hebrew_modernbert:long": (lambda x, n: 3e-4 + 0 * x, {0.3: ()}, 0.15),
    "hebrew_modernbert:decay": (
        lambda x, n: 3e-4 * falling(x / 50 / BILLION, 0.001),
        {0.3: ()},
        0.15,
    ),
    "indic_modernbert": (lambda x, n: 4.884555511755356e-4 * rising(x / 5e7), {0.3: ()}, 0.15),
    "indic_modernbert:long": (lambda x, n: 4.884555511755356e-4 + 0 * x, {0.3: ()}, 0.15),
    "berturk": (
        lambda x, n: 1e-4 * np.where(n < 10_000, n / 10_000, 1 - n / 3e6),
        {0.15: ()},
        0.15,
    ),
    "llm_jp_modernbert": (llm_jp(5e-4, 500_000), {0.3: ()}, 0.3),
    "llm_jp_modernbert:long": (llm_jp(5e-5, 200_000), {0.3: ()}, 0.3),
    "bioclinical_modernbert": (
        lambda x, n: 3e-4 * falling((x - 160.453 * BILLION) / 8.247337 / BILLION, 0.001),
        {0.3: ("all",), 0.15: ("clinical",)},
        0.15,
    ),
    "modernbert_dna": (lambda x, n: 8e-4 * rising(x / 3 / BILLION), {0.3: ()}, 0.15),
    "modernbert_dna:bpe": (lambda x, n: 8e-4 * rising(x / 3 / BILLION), {0.3: ()}, 0.15),
    "mmbert": (
        lambda x, n: 8e-4 * rising(x / 3 / BILLION) * falling((x / BILLION - 2900) / 100, 0.02),
        {0.15: ("extend",), 0.05: ("decay",), 0.3: ()},
        0.15,
    ),
}


# {run: (billions of tokens; of the optimizer: name, beta2, weight decay, clip; dropout of attention's output)}
STABLE = "stable_adamw", 0.98, 1e-5
SETTINGS = {
    "finnish_modernbert": (400, "adam", 0.98, 1e-6, 1.0, 0.0),
    "hebrew_modernbert:mix": (100, *STABLE, 1.0, 0.1),
    "hebrew_modernbert:hebrew": (100, *STABLE, 1.0, 0.1),
    "hebrew_modernbert:long": (30, *STABLE, 1.0, 0.1),
    "hebrew_modernbert:decay": (50, *STABLE, 1.0, 0.1),
    "indic_modernbert": (23.617, *STABLE, 0.0, 0.1),
    "indic_modernbert:long": (4.851, *STABLE, 0.0, 0.1),
    "berturk": (3e6 * 128 * 512 / BILLION, "adam", 0.999, 0.01, 1.0, 0.1),
    "llm_jp_modernbert": (5e5 * 3328 * 1024 / BILLION, "adam", 0.98, 1e-5, 1.0, 0.0),
    "llm_jp_modernbert:long": (2e5 * 384 * 8192 / BILLION, "adam", 0.98, 1e-5, 1.0, 0.0),
    "bioclinical_modernbert": (168.7, *STABLE, 0.0, 0.1),
    "modernbert_dna": (1719, *STABLE, 0.0, 0.0),
    "modernbert_dna:bpe": (1719, *STABLE, 0.0, 0.0),
    "mmbert": (3000, "stable_adamw", 0.95, 8e-5, 0.0, 0.1),
}


def load(name: str, *overrides: str):
    """Returns a config of docs/recipes/groups, or a shipped one."""
    path = str(GROUPS / name.replace(":", ".py:"))
    if ":" not in name:
        path += ".py"
    if name.startswith("modern_base"):
        path = name
    return configs.load(path, list(overrides))


def test_every_config_is_short_and_has_its_published_run():
    names = {name.partition(":")[0] for name in PUBLISHED}
    assert names == {path.stem for path in GROUPS.glob("*.py")} and len(names) == 8
    for path in GROUPS.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 50, path


@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_and_masks_are_those_of_the_published_run(name):
    """Rates at 2,000 steps, within two thousandths of the peak: phases have whole steps."""
    config = load(name)
    formula, masks, heldout = PUBLISHED[name]
    phases = configs.phases(config)
    steps = np.linspace(0, phases[-1].stop - 1, 2000).astype(int)
    tokens = np.zeros(len(steps))
    for phase in phases:
        before = np.clip(steps - phase.first, 0, phase.stop - phase.first)
        tokens += before * float(phase.batch * phase.length)
    rate = optimizer.rate_of(configs.schedules(config), np)
    expected = formula(tokens, steps.astype(float))
    actual = rate(steps)
    # The warm-up of the Finnish run counts steps, here tokens, whose number grows.
    is_compared = steps > 0.011 * phases[-1].stop if name.startswith("finnish") else steps >= 0
    peak = configs.peak_rate(config)
    np.testing.assert_allclose(actual[is_compared], expected[is_compared], atol=2e-3 * peak)
    for phase in phases:
        found = phase.keys.mask_rate or config.task.mask_rate
        (published,) = [rate for rate, names in masks.items() if phase.name in names] or [
            max(masks)
        ]
        assert found == published, phase.name
    task = config.task
    assert (task.heldout_mask_rate or task.mask_rate) == heldout


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_and_optimizers_are_those_of_the_published_run(name):
    config = load(name)
    billions, *expected = SETTINGS[name]
    tokens = sum(p.batch * p.length * (p.stop - p.first) for p in configs.phases(config))
    assert tokens / BILLION == pytest.approx(billions, rel=0.01)
    keys = config.optimizer
    found = [keys.name, keys.beta2, keys.weight_decay, keys.clip, config.model.dropout]
    assert found == expected
    if "@" in config.init_from:  # a checkpoint that the run of this config keeps
        source, _, step = config.init_from.rpartition("@")
        before = load(Path(source).name)
        assert int(step) % before.checkpoint.keep_every == 0
        assert int(step) < configs.phases(before)[-1].first


def shares(text: str, tokens: dict) -> dict:
    found = mixture.factors(tokens, text)
    total = sum(factor * tokens[name] for name, factor in found.items())
    return {name: factor * tokens[name] / total for name, factor in found.items()}


# In the order of their script scripts/sample_datasets-sbatch.sh; its names are longer.
FINNISH = """
    smollm:30 starcoder:0.83 british:1 europarlen:5 fineweb:0.5 instructions:1 pes2o:0.13 abstracts:1 pubmed:0.1
    wikien:9 ccfi:4 culturaxfi:3.7 europarlfi:6 hplt2fi:3.7 nlfclfi:6 lonnrot:6 reddit:6 suomi24:6 wikifi:30
    ylefi:30 ylilauta:5 culturaxla:30 glot500:30 saamiweb:30 salt:30 culturaxsv:1.09 europarlsv:5 fstc:5
    hplt2sv:1.05 nlfcsv:5 wikisv:30 ylesv:30 enfi:0.62 ensme:30 ensv:0.57 fien:0.62 fisme:30 fisv:5.7 smeen:30
    smefi:30 smesv:30 sven:0.58 svfi:5.7 svsme:30
"""


def test_shares_of_text_are_those_of_the_published_runs():
    """Finnish: factors, then long documents, then the good sources. mmBERT: languages, and their temperatures."""
    config = load("finnish_modernbert")
    tokens = {name: 1000 + 37 * number for number, name in enumerate(source_names(config))}
    main = shares(config.task.mixture, tokens)
    assert "long" not in main and len(main) == len(tokens) - 1
    published = dict(part.split(":") for part in FINNISH.split())
    assert main.keys() == published.keys()
    total = sum(float(factor) * tokens[name] for name, factor in published.items())
    for name, factor in published.items():
        assert main[name] == pytest.approx(float(factor) * tokens[name] / total), name
    lengths = {phase.length for phase in configs.phases(config) if phase.name.startswith("long")}
    assert len(lengths) == 6 and max(lengths) == 8192
    for phase in config.phases:
        if phase.startswith("long"):
            assert shares(config.phases[phase].mixture, tokens) == {"long": 1.0}
    good = shares(config.phases.decay.mixture, tokens)
    assert {"wikifi", "saamiweb", "pubmed"} <= good.keys() and "suomi24" not in good

    config = load("mmbert")
    tokens = {name: 1000 + 37 * number for number, name in enumerate(source_names(config))}
    for phase, (count, power) in {
        "base": (61, 0.7),
        "extend": (110, 0.5),
        "decay": (111, 0.3),
    }.items():
        found = shares(config.phases[phase].mixture, tokens)
        assert len(found) == count
        total = sum(tokens[name] ** power for name in found)
        for name, share in found.items():
            assert share == pytest.approx(tokens[name] ** power / total)

    config = load("bioclinical_modernbert")
    assert shares(config.phases.clinical.mixture, {"bio": 9, "clinical": 1}) == {"clinical": 1.0}


# --- At toy size ----------------------------------------------------------------------------------

RUNS = {
    "finnish_modernbert": ("",),
    "hebrew_modernbert": ("mix", "hebrew", "long", "decay"),
    "indic_modernbert": ("", "long"),
    "berturk": ("",),
    "llm_jp_modernbert": ("", "long"),
    "bioclinical_modernbert": ("",),
    "modernbert_dna": ("", "bpe"),
    "mmbert": ("",),
}
TOY = """dtype=float32 compilation_cache= model.layers=2 model.width=16 model.heads=2 model.feed_forward=24
    corpus.workers=1 corpus.heldout=0.2 evaluate.every=0 checkpoint.every=1 checkpoint.keep_every=0
    checkpoint.keep_best=0 log.every=1 log.wandb= evaluate.rows=8""".split()


def toy(name: str, *overrides: str) -> list[str]:
    """Returns overrides that make a run small: two steps of eight short rows in each phase."""
    config = load(name)
    keys = [*TOY, *overrides]
    if "window" in config.model:
        keys.append("model.window=8")
    if not config.tokenizer.path:
        keys.append("tokenizer.size=400")
    for phase, values in config.phases.items():
        length = 16 if values.length <= 1024 else 32
        shape = dict(steps=2, length=length, batch=8, max_predictions=9, warmup=0)
        shape["decay"] = min(2, values.decay)
        keys += [f"phases.{phase}.{key}={value}" for key, value in shape.items()]
    warmup = min(2, config.schedule.warmup)
    return [*keys, f"schedule.warmup={warmup}", f"schedule.decay={min(1, config.schedule.decay)}"]


def write_text(config) -> None:
    """Writes the sources of a config: 24 documents each, in their format."""
    for number, name in enumerate(sources(config)):
        texts = [f"{text} Number {number}." for text in PROSE * 3][:24]
        texts = [f"{text} {index}." for index, text in enumerate(texts)]
        if config.corpus.format == "document_per_line":
            texts = vocabularies.dna(24)
        path = Path(name.replace("*", "part"))
        path.parent.mkdir(parents=True, exist_ok=True)
        if config.corpus.format == "mds":
            mds.write(path, mds.text_shard(texts))
        elif config.corpus.format == "parquet":
            parquet.write_table(pyarrow.table({"text": texts}), path)
        elif config.corpus.format == "jsonl":
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        else:
            end = "\n" if config.corpus.format == "document_per_line" else "\n\n"
            path.write_text(end.join(texts))


def write_vocabulary(path: Path) -> None:
    """Writes a small vocabulary of the kind that the group has."""
    if path.is_file() or path.name != "tokenizer.json":
        return
    path.parent.mkdir(exist_ok=True)
    if path.parent.name.startswith("llm-jp"):
        vocabularies.write_named(path.parent)
        return
    kinds = {"dna_char": vocabularies.characters_like, "dna_bpe": vocabularies.dna_like}
    kinds |= {"hindi": vocabularies.digits_like, "gemma-2": vocabularies.digits_like}
    kinds[path.parent.name]().save(str(path))


@pytest.mark.full
@pytest.mark.parametrize("group", RUNS)
def test_a_group_runs_one_after_the_other(group, tmp_path, monkeypatch):
    """A run that starts from another has its parameters: at a rate of almost 0 they remain."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("scripts.py").write_text("def normalize(text):\n    return text.lower()\n")
    start = ""
    if group == "bioclinical_modernbert":  # it starts from a run of a shipped config
        run("modern_base:1", "runs/modern_base", "corpus.source=text/*.txt")
        start = "runs/modern_base@16"
    for part in RUNS[group]:
        name = f"{group}:{part}" if part else group
        start = start or load(name).init_from
        workdir = workdir_of(group, part)
        if not start:
            run(name, workdir)
            continue
        still = "optimizer.learning_rate=1e-20", "optimizer.weight_decay=0"
        run(name, workdir, f"init_from={start}", *still)
        if load(name).init_moments:
            counts = [updates(Path(start.partition("@")[0])), updates(Path(workdir))]
            assert counts[1] == counts[0] + configs.total_steps(configs.load(workdir))
        info = json.loads(Path(workdir, "run.json").read_text())
        assert info["fresh"] == []
        before = by_path(params(Path(start.partition("@")[0])))
        for path, array in by_path(params(Path(workdir))).items():
            np.testing.assert_allclose(array, before[path], atol=1e-15, err_msg=path)
        start = ""


def updates(workdir: Path) -> int:
    """Returns the number of updates that the optimizer's moments of the newest checkpoint have seen."""
    path = workdir.absolute() / "checkpoints" / str(reader.newest(workdir / "checkpoints"))
    state = by_path(reader.read(path, "opt_state"))
    (count,) = (leaf for name, leaf in state.items() if re.fullmatch("inner/.*/count", name))
    return int(count)


def run(name: str, workdir: str, *overrides: str) -> None:
    """Trains a config at toy size, on text and with a vocabulary as it names them."""
    config = load(name, *(key for key in overrides if key.startswith("corpus.")))
    write_text(config)
    write_vocabulary(Path(config.tokenizer.path))
    assert train.pretrain(load(name, *toy(name, *overrides)), Path(workdir)) == 0


def workdir_of(group: str, part: str) -> str:
    """Returns the workdir of a run in the commands of its config, where $run stands for each part."""
    text = (GROUPS / f"{group}.py").read_text().replace("$run", part)
    lines = [line for line in text.splitlines() if f"{group}.py:{part} " in line or not part]
    (workdir,) = [line.split("--workdir ")[1] for line in lines if f"{group}.py" in line][:1]
    return workdir.strip()
