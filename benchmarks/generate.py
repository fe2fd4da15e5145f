"""Measures the tokens a second that GPT-2 small generates greedily, here and by `generate` of transformers, on CPUs.

    python benchmarks/generate.py --rows 1 16 --prompt 32 --tokens 100

Weights are random, in float32. Prints a line of JSON for each number of rows: the best of the tries of each program,
which take turns. Needs the extra `parity`.
"""

import json
import sys
import time
from functools import partial

import jax
import numpy as np

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.inference import generate
from bert_jax.inference.batches import make_batch
from bert_jax.objectives import base
from bert_jax.runs import jax_setup
from bert_jax.runs.open_run import OpenModel
from bert_jax.tokenizers.special_tokens import Vocabulary


def follow(*arguments) -> list:
    return [*generate.steps(*arguments)]


def main(arguments: list[str] | None = None) -> int:
    parser = cli.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    try:
        options = parser.parse_args(arguments)
    except BadInput as error:
        cli.print_error(str(error))
        return 2
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(options.threads)
    config = jax_setup.start(configs.load("gpt2_small", ["dtype=float32"]))
    vocabulary = Vocabulary(GPT2Config().vocab_size)
    objective = base.make(config, vocabulary)
    params = jax.jit(objective.init)(jax.random.key(0), make_batch([[([0], 0)]], 64))
    ours = OpenModel(config, {}, vocabulary, None, objective, 0, params)
    theirs = GPT2LMHeadModel(GPT2Config()).eval()
    request = generate.Request(options.tokens)
    settings = dict(max_new_tokens=options.tokens, do_sample=False, eos_token_id=None)
    for rows in options.rows:
        prompts = np.random.default_rng(0).integers(vocabulary.size, size=(options.prompt))
        batch = make_batch([[(ids, 0)] for ids in prompts], options.prompt)
        keys = np.zeros(rows, np.uint32)
        programs = {
            "here": partial(follow, ours, request, params, batch, keys),
            "transformers": lambda prompts=prompts: theirs.generate(
                torch.tensor(prompts), attention_mask=torch.ones(prompts.shape), **settings
            ),
        }
        best = dict.fromkeys(programs, 0.0)
        for _ in range(1 + options.tries):  # the first one compiles
            for name, program in programs.items():
                start = time.perf_counter()
                program()
                speed = rows * options.tokens / (time.perf_counter() - start)
                best[name] = max(best[name], speed)
        print(json.dumps({"rows": rows, "tokens_per_second": best}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
