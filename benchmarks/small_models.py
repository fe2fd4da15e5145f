"""Models of one size on equal tokens or FLOPs: minimal pairs and tasks, beside random weights.

    python benchmarks/small_models.py --text simplewiki.txt.xz --wnut wnut17 --output runs/small_models
        [--models BERT ELECTRA] [--stsb glue/STS-B] [--tokens 6e6] [--flops] [--seed 0] [--config.KEY=VALUE ...]

Trains models of 2 layers of width 128 on the same tokens of the same vocabulary, in full rows of 128, or with --flops
on as many FLOPs as BERT takes for these tokens. All have rotary positions: with learned ones, a masked model as small
as these stays at the frequencies of words for long; GPT has them to be equal to the others. Each has the masks of its
own recipe: BERT 15 %, ModernBERT 30 %; GPT predicts every token, so its steps cost most. All share a rate.

Prints a Markdown table of the accuracy (`bert-jax score`) on minimal pairs, with its standard error, in total and by
kind of pair, and after fine-tuning (`bert-jax finetune`) the F1 of WNUT-17 and Spearman's correlation of STS-B. The
pairs are made here, from words that are frequent in encyclopedias; ELECTRA has no probabilities of words. GPT's vectors
of words know only the words before them.

Every result is a file in --output, and the same command skips what is finished and resumes what was killed; another one
is refused there. Overrides of the config are those of the training, not of the fine-tuning.
"""

import json
import math
import random
import subprocess
import sys
from itertools import product
from pathlib import Path

from bert_jax.cli import Parser, split_overrides, to_path
from bert_jax.errors import BadInput

ROWS, LENGTH = 32, 128
WARMUP = 0.1  # share of the steps
# {task: (its column, its score in the result of finetune)}
TASKS = {
    "wnut": ("WNUT-17, F1", "emerging.dev f1"),
    "stsb": ("STS-B, Spearman", "dev spearman"),
}
WNUT_FILES = {"task.train": "wnut17train.conll", "task.dev": "emerging.dev.conll"}
MASKS = "phases.main.max_predictions"
MODELS = {
    "BERT": {"model.positions": "rotary", "task.name": "packed_documents", MASKS: 20},
    "GPT": {
        "model.name": "gpt",
        "model.positions": "rotary",
        "objective.name": "causal_lm",
        "task.name": "token_blocks",
    },
    "ModernBERT": {
        "model.name": "modernbert",
        "model.feed_forward": 342,  # two thirds: its layers are gated
        "task.name": "packed_documents",
        "task.mask_rate": 0.3,
        MASKS: 40,
    },
    "ALBERT": {
        "model.name": "albert",
        "model.embedding_width": 64,
        "model.positions": "rotary",
        "task.name": "packed_documents",
        MASKS: 20,
    },
    "ELECTRA": {
        "model.name": "electra",
        "model.positions": "rotary",
        "objective.name": "replaced_tokens",
        "objective.generator": 2,
        "task.name": "packed_documents",
        "task.mask_share": 0.85,
        "task.random_share": 0.0,
        MASKS: 20,
    },
}
# Of the minimal pairs.
NOUNS = {
    noun: f"{noun}s" for noun in "river king game band song film school town book team".split()
}
VERBS = ("is", "are"), ("was", "were"), ("has been", "have been")  # of one and of several
ADJECTIVES = "new large small famous popular different".split()
PAST = {"go": "went", "see": "saw", "become": "became", "write": "wrote", "take": "took"}
VOWELS = "island area artist animal actor album army event".split()
KINDS = "agreement", "agreement across a noun", "this, these", "word order", "verb form", "a, an"
EACH = 60  # pairs of a kind


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="as config.corpus.source")
    parser.add_argument("--format", default="wiki", help="as config.corpus.format")
    parser.add_argument("--wnut", type=to_path, required=True, help="directory of WNUT-17")
    parser.add_argument("--output", type=to_path, required=True, help="directory of all results")
    parser.add_argument("--stsb", type=to_path, help="directory of STS-B")
    parser.add_argument("--tokens", type=float, default=6e6, help="that each model trains on")
    parser.add_argument("--flops", action="store_true", help="those of BERT on these tokens")
    default = "BERT", "GPT", "ModernBERT"
    parser.add_argument("--models", nargs="+", choices=MODELS, default=default)
    parser.add_argument("--seed", type=int, default=0)
    try:
        words, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(words)
        options.keys = [f"--config.{key}" for key in overrides]
        check_command(options)
        lines = [json.dumps(pair) + "\n" for pair in make_pairs()]
        (options.output / "pairs.jsonl").write_text("".join(lines))
        rows = []
        for name in options.models:
            rows += [measure(options, name, steps) for steps in (count_steps(options, name), 1)]
        print(table(rows))
    except BadInput as error:
        print(f"small_models.py: {error}", file=sys.stderr)
        return 2
    return 0


def check_command(options) -> None:
    """Writes what decides the results of --output into it. Raises BadInput if other ones are there."""
    file = options.output / "command.json"
    names = "text", "format", "wnut", "stsb", "tokens", "flops", "keys"
    command = {name: getattr(options, name) for name in names}
    text = json.dumps(command, default=str)
    if not file.exists():
        options.output.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    elif file.read_text() != text:
        raise BadInput(f"--output {options.output}: has results of another command; see {file}")


def make_pairs() -> list[dict]:
    """Returns the minimal pairs {sentence_good, sentence_bad, UID}, the same ones at each call."""
    kinds = {kind: [] for kind in KINDS}
    agreement, across, determiner, order, form, article = kinds.values()
    for noun, other, adjective in product(NOUNS, NOUNS, ADJECTIVES):
        nouns = NOUNS[noun]
        end = f"has a {other}."
        order.append((f"The {adjective} {noun} {end}", f"The {noun} {adjective} {end}"))
        for verb, verbs in VERBS:
            end = f"{adjective}."
            agreement.append((f"The {noun} {verb} {end}", f"The {noun} {verbs} {end}"))
            agreement.append((f"The {nouns} {verbs} {end}", f"The {nouns} {verb} {end}"))
            one = f"The {noun} near the {NOUNS[other]}"
            several = f"The {nouns} near the {other}"
            across.append((f"{one} {verb} {end}", f"{one} {verbs} {end}"))
            across.append((f"{several} {verbs} {end}", f"{several} {verb} {end}"))
        end = f"near the {other}."
        determiner.append((f"They saw this {noun} {end}", f"They saw these {noun} {end}"))
        determiner.append((f"They saw these {nouns} {end}", f"They saw this {nouns} {end}"))
        for verb, past in PAST.items():
            form.append((f"The {noun} did not {verb} {end}", f"The {noun} did not {past} {end}"))
            form.append((f"Later the {noun} {past} {end}", f"Later the {noun} {verb} {end}"))
        for vowel in VOWELS:
            article.append((f"It is an {vowel} {end}", f"It is a {vowel} {end}"))
            article.append((f"It is a {adjective} {vowel}.", f"It is an {adjective} {vowel}."))
    draw = random.Random(0)
    pairs = []
    for kind, sentences in kinds.items():
        for good, bad in draw.sample(sorted(set(sentences)), EACH):
            pairs.append({"sentence_good": good, "sentence_bad": bad, "UID": kind})
    return pairs


def count_steps(options, name: str) -> int:
    """Returns the steps of --tokens, with --flops of as many FLOPs as BERT's."""
    tokens = options.tokens
    if options.flops:
        tokens *= flops(options, "BERT") / flops(options, name)
    return max(1, round(tokens / (ROWS * LENGTH)))


def flops(options, name: str) -> float:
    """Returns the FLOPs of a training step for each token of a model."""
    keys = keys_of(options, name, 1)
    arguments = ["--config", "demo", *flags(keys), *options.keys]
    values = once(options.output / f"{name}.json", "config", *arguments)
    return values["counts"]["flops_per_token"]["main"]


def keys_of(options, name: str, steps: int) -> dict:
    """Returns the keys of the config of a model; one step has a rate of 0: random weights."""
    return {
        "seed": options.seed,
        "store": options.output / "store",
        "corpus.source": options.text,
        "corpus.format": options.format,
        "model.layers": 2,
        "model.width": 128,
        "model.heads": 2,
        "model.initializer": 0.06,
        "model.max_length": LENGTH,
        "optimizer.learning_rate": 3e-3,
        "optimizer.beta2": 0.999,
        "phases.main.length": LENGTH,
        "phases.main.batch": ROWS,
        "phases.main.steps": steps,
        "schedule.warmup": math.ceil(WARMUP * steps),
        "evaluate.every": 0,
        "checkpoint.keep": 1,
        **MODELS[name],
    }


def measure(options, name: str, steps: int) -> dict:
    """Trains, scores and fine-tunes a model; returns {column: cell}."""
    place = options.output / f"{name}_{steps}_{options.seed}"
    keys = keys_of(options, name, steps)
    run = place / "run"
    arguments = ["--config", "demo", "--workdir", run, *flags(keys), *options.keys]
    trained = once(run / "summary.json", "pretrain", *arguments)
    row = {
        "model": name if steps > 1 else f"{name}, random weights",
        "minutes": f"{trained['seconds'] / 60:.1f}",
        "steps": str(steps),
        **dict.fromkeys(("pairs", *sorted(KINDS), "ties"), "-"),
    }
    if name != "ELECTRA":
        pairs = options.output / "pairs.jsonl"
        scores = once(place / "score.json", "score", "--model", run, "--input", pairs)
        row["pairs"] = f"{scores['accuracy']:.3f} ± {scores['standard_error']:.3f}"
        row |= {kind: f"{line['accuracy']:.2f}" for kind, line in scores["by"]["UID"].items()}
        row["ties"] = str(scores["ties"])
    keys = {"init_from": run, "optimizer.learning_rate": 1e-3, "seed": options.seed}
    tasks = {"wnut": ("ner", WNUT_FILES | {"task.data": options.wnut, "task.epochs": 5})}
    if options.stsb:
        tasks["stsb"] = "glue:stsb", {"task.data": options.stsb}
    for task, (config, own) in tasks.items():
        own = keys | own | {"store": options.output / f"{task}.store"}
        arguments = ["--config", config, "--workdir", place / task, *flags(own)]
        (scores,) = once(place / f"{task}.json", "finetune", *arguments).values()
        title, metric = TASKS[task]
        row[title] = f"{scores[metric][0]:.3f}"
    return row


def once(file: Path, command: str, *arguments) -> dict:
    """Returns the JSON file that a bert-jax command writes at its end; runs it only if the file is missing."""
    if not file.exists():
        print(f"small_models.py: {file}", file=sys.stderr, flush=True)
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


def flags(keys: dict) -> list[str]:
    return [f"--config.{key}={value}" for key, value in keys.items()]


def table(rows: list[dict[str, str]]) -> str:
    """Returns a Markdown table of rows {column: cell}."""
    lines = [[*rows[0]], ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
