"""ELMo's language model on Simple Wikipedia, as config.py has it, for twenty minutes on one CPU core:

    bert-jax pretrain --config examples/elmo/config_wikipedia.py --config.corpus.source=FILE --workdir runs/elmo

A small GPT-2 that predicts the same words, those that are one piece; the others are [UNK] for both:

    grep -v '^##' stores/elmo_wikipedia/tokenizer/vocab.txt > words.txt
    bert-jax pretrain --config examples/elmo/config_wikipedia.py:gpt --config.corpus.source=FILE \\
        --config.tokenizer.path=words.txt --workdir runs/gpt

FILE is text as WikiExtractor writes it. The held-out documents are the same.
"""

from bert_jax.configs import gpt_demo
from elmo import config as elmo_demo

DEMOS = {"elmo": elmo_demo, "gpt": gpt_demo}


def get_config(network="elmo"):
    config = DEMOS[network].get_config()
    if network == "gpt":
        config.model.positions = "rotary"
        config.model.max_length = 160
        config.phases.main.update(length=160, batch=16, steps=2460)
    else:
        config.objective.samples = 2048
        config.phases.main.update(steps=1040)
    config.store = f"stores/{network}_wikipedia"
    config.corpus.format = "wiki"
    config.corpus.heldout = 0.005
    config.tokenizer.kind = "wordpiece"
    config.tokenizer.size = 20_000
    config.tokenizer.lowercase = False
    # All held-out rows: parts of both streams would be of different words.
    config.evaluate.rows = 4096
    return config
