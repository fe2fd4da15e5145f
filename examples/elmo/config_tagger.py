"""Names in sentences, by the words and their characters alone:

    bert-jax pretrain --config examples/elmo/config_tagger.py --workdir runs/tagger

With the states of a language model, as ELMo (input) or TagLM (between) have them. The store of the sentences has the
vocabulary of the language model then:

    bert-jax prepare --config examples/elmo/config_tagger.py --config.store=stores/names \\
        --config.tokenizer.path=runs/elmo
    bert-jax pretrain --config examples/elmo/config_tagger.py:input --config.store=stores/names \\
        --config.init_from=runs/elmo --workdir runs/tagger_input

The sentences are made. Those of WNUT-17, by taggers that all know the words of the language model's vocabulary:

    WNUT="--config.tokenizer.path=runs/elmo --config.store=stores/wnut17 --config.task.data=wnut17 \\
        --config.task.train=wnut17train.conll --config.task.dev=emerging.dev.conll,emerging.test.annotated \\
        --config.phases.main.length=128"
    bert-jax prepare --config examples/elmo/config_tagger.py $WNUT
    bert-jax pretrain --config examples/elmo/config_tagger.py $WNUT --workdir runs/none
    bert-jax pretrain --config examples/elmo/config_tagger.py:input $WNUT --config.init_from=runs/elmo \\
        --workdir runs/input
"""

from bert_jax.configs import base
from elmo import config as language_model
from elmo import model


def get_config(lm="none"):
    names = {"model": "elmo.tagger", "objective": "elmo.crf", "task": "elmo.sentences"}
    config = base.get_config(**names)
    config.store = "stores/tagger"
    config.tokenizer.size = 400
    config.tokenizer.lowercase = False

    trained = language_model.get_config()
    config.task.characters = trained.task.characters
    for key in model.DEFAULTS:
        config.model[key] = trained.model[key]
    config.model.lm = lm
    config.task.epochs = 0.0  # the steps are those of the phase, with init_from, too
    config.optimizer.frozen = lm != "none"

    # Rows should hold whole sentences: of two windows that disagree, the label with the smaller number wins.
    config.phases.main = base.phase(steps=1000, length=64, batch=32)
    config.optimizer.learning_rate = 2e-3
    config.optimizer.bias_correction = True
    config.schedule.warmup = 100

    # Steps between two lines of the log, two evaluations, and two checkpoints.
    config.log.every = 50
    config.evaluate.every = 500
    config.evaluate.rows = 2000
    config.checkpoint.every = 500
    return config
