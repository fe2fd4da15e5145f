"""Numbers in words from German to English by GRUs with additive attention: a minute or two on two CPU cores.

    bert-jax pretrain --config examples/recurrent/config.py --workdir runs/recurrent
    bert-jax predict  --model runs/recurrent siebenhunderteinundzwanzigtausenddreizehn

The text and its vocabulary are those of the package's translate_demo.
"""

from bert_jax.configs import base, translate_demo


def get_config():
    config = translate_demo.get_config()
    base.use(config, model="recurrent.model")
    config.store = "stores/recurrent"
    config.model.layers = 1
    # Shorter rows, of about three pairs: a scan has as many steps as a row has places.
    config.phases.main = base.phase(steps=250, length=48, batch=48)
    config.optimizer.learning_rate = 4e-3
    return config
