"""Bach's chorales, each voice of each sixteenth a token, by a GPT with relative positions and absolute ones:

    python examples/positions/chorales.py jsb-chorales-16th.json chorales
    bert-jax pretrain --config examples/positions/config_chorales.py --workdir runs/chorales

The first command writes the text, see chorales.py; with another directory than chorales, the second one takes
`--config.corpus.source=DIR/train.txt --config.corpus.heldout_source=DIR/valid.txt`. With one of the
two alone:

    bert-jax pretrain --config examples/positions/config_chorales.py:relative --workdir runs/chorales_relative
    bert-jax pretrain --config examples/positions/config_chorales.py:absolute --workdir runs/chorales_absolute
"""

from bert_jax.configs import base
from positions import config as melodies


def get_config(positions="both"):
    config = melodies.get_config(positions)
    config.store = "stores/chorales"
    config.corpus.source = "chorales/train.txt"
    config.corpus.heldout_source = "chorales/valid.txt"
    config.corpus.field = "text"
    config.corpus.map = ""
    # A row has a [SEP] or the last voice of a sixteenth, and then whole sixteenths of one chorale: so an absolute
    # position tells the voice.
    config.task.cross_documents = False

    config.model.layers = 3
    config.model.width = 128
    config.model.max_length = 513
    if positions != "absolute":
        config.model.distance = 512
    config.model.dropout = 0.1
    config.model.attention_dropout = 0.0

    config.phases.main = base.phase(steps=1200, length=513, batch=8)
    config.evaluate.every = 200
    config.checkpoint.every = 200
    return config
