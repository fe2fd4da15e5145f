"""What each part of newer recipes gains over BERT's, at equal FLOPs, on the same text.

    python benchmarks/ablation.py --text simplewiki.txt.xz --glue glue --wnut wnut17 --output runs/ablation
        [--shape 2/128] [--minutes 15 | --tokens 60e6] [--seeds 3] [--jobs 1] [--only RECIPE ...]
        [--config.KEY=VALUE ...]

Trains small models by BERT's recipe, by it with one part changed, and with all of them, with several seeds. Each model
is evaluated on held-out text, and fine-tuned on SST-2 and STS-B (--glue) and WNUT-17 (--wnut). So is one with random
weights. Prints a Markdown table: mean and standard deviation over the seeds, and the difference from BERT's recipe,
which is a tie unless it exceeds the standard deviation of a difference, the root of the sum of both variances. The
numbers of each model of the table are in --output, in results.jsonl.

Every result is a file in --output. The same command skips what is finished and resumes what was killed. --seeds,
--jobs and --only may change in between. For several jobs on one GPU, set XLA_PYTHON_CLIENT_PREALLOCATE=false.

Equal FLOPs: BERT's recipe trains for --minutes, by the seconds a step of `bert-jax benchmark`, or on --tokens places of
rows, padding included. The others take as many steps as have the same FLOPs, by the count of `plan` and `benchmark`:
all matrix products, those of padding included. So a recipe that predicts more tokens has fewer steps, and one that
packs rows reads more real tokens; the table has both numbers. A gated layer is narrower by a third, and costs the same.

Equal masks: `bert-jax evaluate --model` replaces the same 15 % of the words of the same windows by [MASK]. A window is
a single segment, so recipes with a pair loss, which saw two in training, are at a slight disadvantage.

`bert` is arXiv:1810.04805 with the changes of configs/demo.py that so short a training needs: no dropout, bias
correction, larger rates and initial weights. The rates were chosen for it, and all recipes share them. `stable_adamw`
has the settings of ModernBERT (arXiv:2412.13663). `packed_pairs` keeps the pair loss, and is not a part of `all`.
"""

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bert_jax.cli import Parser, positive, split_overrides, to_path  # noqa: E402
from bert_jax.errors import BadInput  # noqa: E402
from bert_jax.runs import metrics_file  # noqa: E402

PARTS = {  # {name: the keys that differ from BERT's recipe}
    "masked_30": {"task.mask_rate": 0.3, "phases.main.max_predictions": 40},
    "pre_norm": {"model.norm": "pre"},
    "gated": {"model.gated": True},
    "rotary": {"model.positions": "rotary"},
    "packed_documents": {"task.name": "packed_documents"},
    "wsd": {"schedule.name": "wsd"},
    "stable_adamw": {
        "optimizer.name": "stable_adamw",
        "optimizer.clip": 0.0,
        "optimizer.beta2": 0.98,
        "optimizer.weight_decay": 1e-5,
    },
}
RECIPES = {
    "bert": {},
    "no_pair_loss": {"task.pair_task": "none"},
    **PARTS,
    "packed_pairs": {"phases.main.max_packed": 4, "phases.main.max_predictions": 22},
    "all": {key: value for part in PARTS.values() for key, value in part.items()},
    "random_weights": {},
}
WARMUP = 0.1  # share of the steps
DECAY = 0.2  # share of the steps, of wsd
TASKS = {  # {column: (config, name of the score, passes over the examples)}
    "SST-2, accuracy": ("glue:sst2", "dev accuracy", 1),
    "STS-B, Spearman": ("glue:stsb", "dev spearman", 3),
    "WNUT-17, F1": ("ner", "emerging.dev f1", 5),
}
WNUT_FILES = {"task.train": "wnut17train.conll", "task.dev": "emerging.dev.conll"}
COUNTS = ("steps", "million real tokens")
SCORES = ("held-out nats a word", *TASKS)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="as config.corpus.source")
    parser.add_argument("--format", default="wiki", help="as config.corpus.format")
    parser.add_argument("--glue", type=to_path, required=True, help="directory of SST-2 and STS-B")
    parser.add_argument("--wnut", type=to_path, required=True, help="directory of WNUT-17")
    parser.add_argument("--output", type=to_path, required=True, help="directory of all results")
    parser.add_argument("--shape", type=shape, default="2/128", metavar="LAYERS/WIDTH")
    parser.add_argument("--minutes", type=float, default=15.0, help="of BERT's recipe, alone")
    parser.add_argument("--tokens", type=float, help="of BERT's recipe, instead of --minutes")
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--jobs", type=positive, default=1, help="models at the same time")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=[*RECIPES], metavar="RECIPE")
    try:
        words, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(words)
        options.keys = [f"--config.{key}" for key in overrides]
        check(options)
        once(options.output / "prepare.json", "prepare", *job(options, {}))
        results = {name: [] for name in RECIPES if name in ("bert", *options.only)}
        models = [(name, seed) for seed in range(options.seeds) for name in results]
        for name in results:
            steps_of(options, name)  # timed alone
        measure(options, *models[0])  # alone: it makes the stores of the tasks, which all share
        with ThreadPoolExecutor(options.jobs) as pool:
            values = pool.map(lambda model: measure(options, *model), models)
            for (name, _), value in zip(models, values, strict=True):
                results[name].append(value)
    except BadInput as error:
        print(f"ablation.py: {error}", file=sys.stderr)
        return 2
    write(options.output / "results.jsonl", results)
    print(table(results))
    return 0


def shape(text: str) -> tuple[int, int]:
    layers, width = map(int, text.split("/"))
    return layers, width


def check(options) -> None:
    """Raises BadInput for missing data, and for a directory with results of other options."""
    for path in (options.glue / "SST-2", options.glue / "STS-B", options.wnut):
        if not path.is_dir():
            raise BadInput(f"{path}: no such directory")
    free = ("seeds", "jobs", "only", "output")
    settings = {key: str(value) for key, value in vars(options).items() if key not in free}
    file = options.output / "options.json"
    options.output.mkdir(parents=True, exist_ok=True)
    if file.exists() and json.loads(file.read_text()) != settings:
        raise BadInput(f"{file}: results of other options; choose another --output")
    file.write_text(json.dumps(settings, indent=2))


def once(file: Path, command: str, *arguments) -> dict:
    """Returns the JSON file that a bert-jax command writes at its end; runs it only if the file is missing."""
    if not file.exists():
        print(f"ablation.py: {file}", file=sys.stderr, flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        as_json = [] if command == "pretrain" else ["--json", file]  # it writes summary.json
        bert_jax(command, *arguments, *as_json)
    return json.loads(file.read_text())


def bert_jax(*arguments) -> None:
    """Runs a bert-jax command in its own process, as a user would start it. Raises BadInput if it fails."""
    command = ["-m", "bert_jax", *map(str, arguments)]
    process = subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL)
    if process.returncode:
        raise BadInput(f"{' '.join(command)}: exit code {process.returncode}")


def job(options, recipe: dict) -> list[str]:
    """Returns the arguments of a command that trains by a recipe, or reads the text that all share."""
    layers, width = options.shape
    narrow = 128 / width  # rate and initial weights are those of width 128
    keys = {
        "store": options.output / "store",
        "corpus.source": options.text,
        "corpus.format": options.format,
        "task.heldout_mask_rate": 0.15,
        "model.layers": layers,
        "model.width": width,
        "model.heads": max(1, width // 64),
        "model.feed_forward": width * 8 // 3 if "model.gated" in recipe else width * 4,
        "model.initializer": 0.06 * narrow**0.5,
        "model.max_length": 128,
        "optimizer.learning_rate": 3e-3 * narrow,
        "optimizer.beta2": 0.999,
        "schedule.name": "linear",
        "phases.main.length": 128,
        "phases.main.batch": 32,
        "phases.main.max_predictions": 20,
        "evaluate.every": 0,
        "evaluate.rows": 2048,
        "checkpoint.keep": 1,
        **recipe,
    }
    return ["--config", "demo", *flags(keys), *options.keys]


def flags(keys: dict) -> list[str]:
    return [f"--config.{key}={value}" for key, value in keys.items()]


def steps_of(options, name: str) -> int:
    """Returns the steps of a recipe that have the FLOPs of BERT's. Random weights have one, whose rate is 0."""
    if name == "random_weights":
        return 1
    phases = {}
    for recipe in ("bert", name):
        file = options.output / recipe / "benchmark.json"
        timings = once(file, "benchmark", *job(options, RECIPES[recipe]))
        phases[recipe] = timings["phases"]["main"]
    bert = phases["bert"]
    if options.tokens:
        seconds = options.tokens / bert["tokens_per_second"]
    else:
        seconds = 60 * options.minutes
    steps = seconds / bert["step_seconds"]
    return max(1, round(steps * bert["flops_per_step"] / phases[name]["flops_per_step"]))


def measure(options, name: str, seed: int) -> dict[str, float]:
    """Trains, evaluates and fine-tunes a model; returns {column of the table: number}."""
    place = options.output / name / f"seed{seed}"
    steps = steps_of(options, name)
    recipe = {"seed": seed, "phases.main.steps": steps, **RECIPES[name]}
    recipe["schedule.warmup"] = math.ceil(WARMUP * steps)
    if "schedule.name" in RECIPES[name]:
        recipe["schedule.decay"] = round(DECAY * steps)
    run = place / "run"
    once(run / "summary.json", "pretrain", "--workdir", run, *job(options, recipe))
    lines = [line for line in metrics_file.lines(run / "metrics.jsonl") if line["split"] == "train"]
    tokens = sum(line["tokens_per_second"] * line["seconds"] for line in lines)
    values = once(place / "heldout.json", "evaluate", "--model", run, *job(options, {}))
    loss = values["models"][0]["nats_per_word"]
    scores = [finetune(options, place, task, seed) for task in TASKS]
    return dict(zip((*COUNTS, *SCORES), (steps, tokens / 1e6, loss, *scores), strict=True))


def finetune(options, place: Path, column: str, seed: int) -> float:
    """Returns the score of a task; NaN if it has none, such as a correlation with equal predictions."""
    config, score, epochs = TASKS[column]
    task = column.partition(",")[0]
    keys = {
        "init_from": place / "run",
        "store": options.output / f"{task}.store",
        "task.data": options.wnut if config == "ner" else options.glue / task,
        **(WNUT_FILES if config == "ner" else {}),
        "task.epochs": epochs,
        "optimizer.learning_rate": 1e-3 * 128 / options.shape[1],
        "seed": seed,
    }
    arguments = "--config", config, "--workdir", place / task, *flags(keys)
    (scores,) = once(place / f"{task}.json", "finetune", *arguments).values()
    return math.nan if scores[score][0] is None else scores[score][0]


def write(file: Path, results: dict[str, list[dict]]) -> None:
    """Writes a line of JSON for each model; null for a score without a value. results: as for `table`."""
    rows = [
        {"recipe": name, "seed": seed} | {k: None if np.isnan(v) else v for k, v in run.items()}
        for name, runs in results.items()
        for seed, run in enumerate(runs)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def table(results: dict[str, list[dict]]) -> str:
    """Returns the Markdown table. results: {recipe: [{column: number} of each seed]}."""
    rows = [["recipe", *COUNTS, *SCORES], ["---"] * (1 + len(COUNTS + SCORES))]
    for name, runs in results.items():
        counts = [f"{np.mean([run[column] for run in runs]):,.4g}" for column in COUNTS]
        scores = []
        for column in SCORES:
            values = [run[column] for run in runs]
            scores.append(cell(values, [run[column] for run in results["bert"]]))
        rows.append([name, *counts, *scores])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(values: list[float], base: list[float]) -> str:
    """Returns mean, deviation, and difference from `base`; with one seed, without deviation or verdict."""
    spreads = [np.std(side, ddof=1) if len(side) > 1 else math.nan for side in (values, base)]
    difference = np.mean(values) - np.mean(base)
    verdict = ", tie" if abs(difference) <= math.hypot(*spreads) else ""  # none for NaN
    text = f"{np.mean(values):.3f}"
    if len(values) > 1:
        text += f" ± {spreads[0]:.3f}"
    if values != base:
        text += f" ({difference:+.3f}{verdict})"
    return text


if __name__ == "__main__":
    sys.exit(main())
