r"""Multi30k, English to German, tokenized lower-cased text: a recurrent translator, or the package's Transformer.

    bert-jax pretrain --config examples/recurrent/config_multi30k.py:additive --config.task.data=DIR \
        --workdir runs/additive

The argument is a score of attention, of `model.score`, or none, or transformer. DIR has train.lc.norm.tok.en and .de,
and val.lc.norm.tok.en and .de, which are those of github.com/multi30k/dataset.
"""

from bert_jax.configs import base, translate

TRANSFORMER = "transformer"
# Steps of half an hour on one CPU core, by the seconds of a step (`bert-jax benchmark`): 1.58, 1.05, and 1.44.
STEPS = {TRANSFORMER: 1130, "none": 1720}
OTHERS = 1240  # steps with other scores


def get_config(score="additive"):
    config = translate.get_config()
    config.store = "stores/multi30k"
    config.task.train = "train.lc.norm.tok"
    config.task.dev = ("val.lc.norm.tok",)
    config.task.text = ("en", "de")
    config.task.tokenize = "none"
    config.task.max_pieces = 46  # all but 34 of the 29,000 pairs
    config.train.micro_batches = 4  # faster on CPUs
    config.phases.main.steps = STEPS.get(score, OTHERS)
    if score == TRANSFORMER:
        return config

    base.use(config, model="recurrent.model")
    config.model.score = score
    config.model.layers = 1
    config.model.width = 256
    config.model.dropout = 0.3
    # As many places as in the Transformer's batches, in short rows: a scan has as many steps as a row has places.
    config.phases.main.length = 48
    config.phases.main.batch = 168
    config.optimizer.learning_rate = 2e-3
    config.optimizer.clip = 1.0
    config.schedule.name = "linear"
    config.schedule.warmup = 200
    # The rate ends at 0, so the last checkpoint needs no mean of several; the Transformer is the mean of ten.
    config.checkpoint.average = 1
    return config
