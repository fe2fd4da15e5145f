"""Your own text: a vocabulary trained on it, and a BERT of 4 layers and width 256. Copy this file and change it.

`prepare` reports statistics of the text, recommends runs for ten minutes, an hour and eight hours of this machine, and
names problems to fix. `pretrain` reports statistics of the rows before step 0. Compare the held-out `mlm_loss_masked`
with `unigram_entropy`; the log has both. While they are equal, the model has learnt token frequencies only. On prose
that may last one or two thousand steps; then the loss falls.

    bert-jax prepare  --config my_corpus --config.corpus.source='text/*.txt'
    bert-jax pretrain --config my_corpus --config.corpus.source='text/*.txt' --workdir runs/my_corpus
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config()
    config.store = "stores/my_corpus"  # one per combination of corpus, filter and tokenizer keys

    # A directory, a file or a glob, or several separated by commas; plain, .gz, .bz2, .xz or .zst. The format is one of
    #   lines   one sentence or paragraph per line, a blank line between documents
    #   document_per_line  one document per line
    #   files   one document per file
    #   jsonl   one JSON object per line, with the text in `corpus.field`
    #   parquet one document per row, with the text in the column `corpus.field`
    #   wiki    the output of WikiExtractor
    config.corpus.source = "text"
    config.corpus.format = "lines"
    # "lines" if lines are sentences, "wrapped" if sentences go on in the next line
    config.corpus.sentences = "rules"

    config.tokenizer.kind = "wordpiece"
    config.tokenizer.size = 16_000
    config.tokenizer.lowercase = True

    config.model.layers = 4
    config.model.width = 256
    config.model.heads = 4
    config.model.initializer = 0.04  # 0.02 suits a width of 768; narrow models need more
    config.optimizer.learning_rate = 1e-3
    config.optimizer.bias_correction = True
    config.schedule.warmup = 1000

    # For tens of millions of tokens; `prepare` recommends numbers for your corpus.
    config.phases.main = base.phase(steps=30_000, length=128, batch=128, max_predictions=20)
    return config
