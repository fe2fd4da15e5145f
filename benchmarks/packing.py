"""Packed and padded rows compared: share of real tokens, and real tokens per second in training and in the stream.

python benchmarks/packing.py --store DIR [--length 512] [--sequences 8] [--layers 2] [--width 128] [--rows 8]

One process measures padded and packed rows in turns. The ratios are medians over the turns: if the
machine slows down for a while, it affects both. Prints a JSON line and a Markdown row.
"""

import argparse
import json
import statistics
import time
from itertools import islice

import jax
import numpy as np

from bert_jax import build, config
from bert_jax.data import store, stream
from bert_jax.objectives.base import Vocabulary
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import jax_setup
from bert_jax.tasks import base as tasks
from bert_jax.tasks import documents, pair_rows, sentence_pairs

LAYOUTS = ("padded", "packed")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--store", required=True, help="directory of a token store")
    defaults = dict(length=512, sequences=8, layers=2, width=128, rows=8, steps=20, batches=200)
    for name, default in defaults.items():
        options.add_argument(f"--{name}", type=int, default=default)
    options, more = options.parse_known_args()
    opened = store.open_store(options.store)
    more = [key.removeprefix("--config.") for key in more]
    configs = {
        layout: jax_setup.start(config.load("base", settings(options, sequences) + more))
        for layout, sequences in zip(LAYOUTS, (1, options.sequences), strict=True)
    }
    rows = {layout: measure_rows(opened, configs[layout]) for layout in LAYOUTS}
    rates = {
        "real_token_share": {layout: [row["real_token_share"]] for layout, row in rows.items()},
        "stream_tokens_per_cpu_second": stream_rates(opened, configs, options.batches),
        "train_tokens_per_second": step_rates(opened, configs, options.steps),
    }
    for name, turns in rates.items():
        pairs = zip(*(turns[layout] for layout in LAYOUTS), strict=True)
        rows["ratios"] = rows.get("ratios", {}) | {name: statistics.median(b / a for a, b in pairs)}
        for layout in LAYOUTS:
            rows[layout][name] = statistics.median(turns[layout])
    print(json.dumps(vars(options) | rows))
    print(describe(options, rows))


def describe(options, rows: dict) -> str:
    ratios, shares = rows["ratios"], [rows[layout]["real_token_share"] for layout in LAYOUTS]
    return (
        f"| packed / padded, length {options.length}, real tokens per second | 1.3 x, and the ratio of real tokens"
        f" | **x {ratios['train_tokens_per_second']:.2f}** (share of real tokens {shares[0]:.3f} -> {shares[1]:.3f}:"
        f" x {ratios['real_token_share']:.3f};"
        f" stream, per CPU second: x {ratios['stream_tokens_per_cpu_second']:.2f}) | |"
    )


def settings(options, sequences: int) -> list[str]:
    """Returns overrides of base. Packed rows have a few more predictions: the number is rounded for each pair."""
    values = {
        "model.layers": options.layers,
        "model.width": options.width,
        "model.heads": max(1, options.width // 64),
        "model.max_length": max(512, options.length),
        "phases.main.length": options.length,
        "phases.main.batch": options.rows,
        "phases.main.max_predictions": int(0.15 * options.length + sequences / 2),
        "phases.main.max_packed": sequences,
    }
    return [f"{key}={value}" for key, value in values.items()]


def measure_rows(opened, settings) -> dict:
    """Returns numbers of all rows of the first epoch."""
    (phase,) = config.phases(settings)
    rules = sentence_pairs.rules(settings, phase)
    pairs = pair_rows.indexes(opened, "train", rules).open(0)
    start = time.perf_counter()
    rows = len(tasks.make(settings, opened).rows(phase, "train", 0))
    seconds = time.perf_counter() - start
    real = int(documents.sequence_sizes(pair_rows.unpack(np.asarray(pairs))).sum())
    return {
        "rows": rows,
        "pairs_per_row": len(pairs) / rows,
        "real_token_share": real / rows / phase.length,
        "index_seconds": seconds,  # without the index of the pairs
    }


def batches_of(opened, settings, rows: int):
    (phase,) = config.phases(settings)
    pipeline = stream.Pipeline(tasks.make(settings, opened), phase, "train", settings.seed, rows)
    return stream.train_batches(pipeline, 0, 10**9)


def stream_rates(opened, configs, number: int, turns: int = 5) -> dict:
    """Returns {layout: [real tokens per CPU second, per turn]}; a turn is `number` batches of 64 rows."""
    sources = {layout: batches_of(opened, configs[layout], 64) for layout in LAYOUTS}
    rates = {layout: [] for layout in LAYOUTS}
    for _ in range(turns):
        for layout, source in sources.items():
            next(source)
            start = time.process_time()
            real = sum(int((batch["sequence_ids"] > 0).sum()) for batch in islice(source, number))
            rates[layout].append(real / (time.process_time() - start))
    for source in sources.values():
        source.close()
    return rates


def step_rates(opened, configs, steps: int) -> dict:
    """Returns {layout: [real tokens per second, per step]}, by the mean number of real tokens in a batch."""
    vocabulary = Vocabulary(opened.manifest["vocabulary"], **opened.manifest["special"])
    runs = {}
    for layout in LAYOUTS:
        mesh = meshes.make_mesh(configs[layout])
        trainer = build.build(configs[layout], mesh, vocabulary)
        (phase,) = config.phases(configs[layout])
        batches = list(islice(batches_of(opened, configs[layout], phase.batch), steps + 2))
        runs[layout] = [trainer, trainer.initialize(), batches]
    seconds = {layout: [] for layout in LAYOUTS}
    for number in range(steps + 2):
        for layout, run in runs.items():
            trainer, state, batches = run
            numbers = np.arange(len(batches[number]["rows"]))
            start = time.perf_counter()
            rows = meshes.to_devices(trainer.mesh, batches[number], numbers, len(numbers))
            run[1], *_ = jax.block_until_ready(trainer.train["main"](state, rows))
            seconds[layout].append(time.perf_counter() - start)
    real = {
        layout: np.mean([(batch["sequence_ids"] > 0).sum() for batch in run[2]])
        for layout, run in runs.items()
    }
    return {
        layout: [float(real[layout]) / step for step in seconds[layout][2:]] for layout in LAYOUTS
    }


if __name__ == "__main__":
    main()
