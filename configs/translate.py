"""Translation between the languages of parallel files of tens of thousands of pairs, such as Multi30k: 4 + 4 layers.

    bert-jax pretrain --config translate --config.task.data=multi30k --config.task.train=train --config.task.dev=val \
        --config.task.text=en,de --workdir runs/en_de

reads train.en, train.de, val.en and val.de; see docs/translation.md. Sizes, dropout and batches are those of fairseq's
experiments with Multi30k. transformer_base and transformer_big are for millions of pairs. On CPUs,
--config.train.micro_batches=4 is faster: its arrays fit into caches.

With Multi30k's tokenized lower-cased text, task.tokenize=none and one seed, the mean of the last ten checkpoints has
39.2 BLEU on test 2016 with a beam of 5 (greedy: 38.4), after 40 minutes on two busy cores. fairseq reports 41.0 after
8,000 updates.
"""

from bert_jax.configs import base, transformer_base


def get_config():
    config = transformer_base.get_config()
    config.store = "stores/translate"
    config.tokenizer.size = 4000
    config.model.layers = 4
    config.model.decoder_layers = 4
    config.model.width = 128
    config.model.heads = 4
    config.model.feed_forward = 256
    config.model.dropout = 0.3
    config.optimizer.learning_rate = 5e-3
    config.schedule.warmup = 1000
    # 8,192 places for targets; more than 97 % of them are filled.
    config.phases.main = base.phase(steps=3000, length=128, batch=64)
    config.log.every = 50
    config.checkpoint.every = 50
    config.checkpoint.keep = 10
    config.checkpoint.average = 10
    config.evaluate.every = 250
    config.evaluate.batch = 128
    return config
