"""Trains `--config translate` on Multi30k, and scores the translations of a test set.

    python benchmarks/multi30k.py --data DIR --runs runs/multi30k --updates 8000 --seeds 2

DIR has the tokenized lower-cased text: train.lc.norm.tok.en and .de, val.*, test_2016_flickr.*. Runs are resumed by the
same command. Prints a line of JSON for each seed: the BLEU and chrF of the mean of the last checkpoints, by a beam of 5
and greedily, with their signatures. Needs the extra `translate`. Keys of the config follow as --config.KEY=VALUE.
"""

import argparse
import json
import sys
from pathlib import Path

from bert_jax import cli, train
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.inference.evaluate_texts import evaluate_translations

END = "lc.norm.tok"
BEAMS = 5, 1


def main(arguments: list[str] | None = None) -> int:
    arguments, overrides = cli.split_overrides(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the directory of the text")
    parser.add_argument("--runs", type=Path, required=True, help="where to train")
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--test", default="test_2016_flickr")
    options = parser.parse_args(arguments)
    try:
        for seed in range(1, 1 + options.seeds):
            result = measure(options, seed, overrides)
            if result is None:
                return 1
            print(json.dumps(result), flush=True)
    except BadInput as error:
        cli.print_error(str(error))
        return 2
    return 0


def measure(options, seed: int, overrides: list[str]) -> dict | None:
    """Trains with a seed and returns its scores by the number of beams; None if the training was interrupted."""
    keys = {
        "seed": seed,
        "task.data": options.data,
        "task.train": f"train.{END}",
        "task.dev": f"val.{END}",
        "task.text": "en,de",
        "task.tokenize": "none",
        "store": options.runs / "store",
        "phases.main.steps": options.updates,
    }
    keys = [f"{key}={value}" for key, value in keys.items()]
    config = configs.load("translate", [*keys, *overrides])
    workdir = options.runs / f"seed_{seed}"
    if train.pretrain(config, workdir):
        return None
    result = {"seed": seed, "updates": options.updates}
    files = [options.data / f"{options.test}.{END}.{language}" for language in ("en", "de")]
    for beams in BEAMS:
        search = {"beams": str(beams)}
        lowercase = ["task.lowercase=True"]
        result[f"beam {beams}"] = evaluate_translations(workdir, *files, lowercase, search)
    return result


if __name__ == "__main__":
    sys.exit(main())
