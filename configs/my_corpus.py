"""Your own text: a vocabulary trained on it, a BERT of 4 layers and width 256. Copy this file and change it.

`prepare` reports what the text is like, recommends a size, and names what to mend; `pretrain` reports before step 0
what the rows are like. Compare the held-out `mlm_loss_masked` with `unigram_entropy` (both are in the log): they
are equal as long as nothing but frequencies is learnt, which on prose may last for the first thousand steps or two,
and then the loss falls.

    bert-jax prepare  --config my_corpus --config.corpus.source='text/*.txt'
    bert-jax pretrain --config my_corpus --config.corpus.source='text/*.txt' --workdir runs/my_corpus
"""

from bert_jax.configs import base

# Once you have run it, others can tell whether their loss is normal: step, least and largest held-out mlm_loss.
# EXPECTED_LOSS = ((10_000, 4.1, 4.4), (30_000, 3.2, 3.5))


def get_config():
    config = base.get_config()
    config.store = "stores/my_corpus"  # one for every corpus and tokenizer

    # A directory, a file or a glob, several by commas; plain, .gz, .bz2 or .xz. The format is one of
    #   lines   one sentence or paragraph a line, a blank line between documents
    #   files   one document a file
    #   jsonl   one JSON object a line, the text in `corpus.field`
    #   wiki    the output of WikiExtractor
    config.corpus.source = "text"
    config.corpus.format = "lines"
    config.corpus.sentences = "rules"  # lines are paragraphs; "lines": they are sentences

    config.tokenizer.kind = "wordpiece"
    config.tokenizer.size = 16_000
    config.tokenizer.lowercase = True

    config.model.layers = 4
    config.model.width = 256
    config.model.heads = 4
    config.model.initializer = 0.04  # 0.02 suits a width of 768, narrow models want more
    config.optimizer.learning_rate = 1e-3
    config.optimizer.bias_correction = True
    config.schedule.warmup = 1000

    # For some tens of millions of tokens; `prepare` recommends numbers for yours.
    config.phases.main = base.phase(steps=30_000, length=128, batch=128, max_predictions=20)
    return config
