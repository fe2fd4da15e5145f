"""ModernBERT-DNA (github.com/leannmlindsey/ModernBERT-DNA): 12 layers on sequences, one a line, as characters or BPE.

    bert-jax pretrain --config docs/recipes/groups/modernbert_dna.py --workdir runs/dna
    bert-jax pretrain --config docs/recipes/groups/modernbert_dna.py:bpe --workdir runs/dna_bpe

The vocabularies are theirs: 10 pieces, characters, and the 4,096 of DNABERT-2, both without marks of words. Not here:
RMSNorm, feed-forward layers without a gate (those with one have as many weights here), embeddings without a norm.
"""

from bert_jax.configs import base

TOKENS = 1_719_000_000_000


def get_config(pieces="char"):
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = f"stores/dna_{pieces}"
    config.corpus.source = "text/*.txt"
    config.corpus.format = "document_per_line"
    config.corpus.sentences = "none"
    config.tokenizer.path = f"dna_{pieces}/tokenizer.json"
    config.model.update(layers=12, rotary_base=10_000.0, dropout=0.0, feed_forward=2048)
    config.task.update(mask_rate=0.3, heldout_mask_rate=0.15)
    config.optimizer.update(name="stable_adamw", learning_rate=8e-4, beta2=0.98, weight_decay=1e-5)
    config.optimizer.clip = 0.0
    config.log.wandb = "modernBERT"
    config.evaluate.every = config.checkpoint.every = 2_000
    rows = dict(length=1024, max_predictions=320)
    sizes = (128, 256, 512, 768)  # during 50 billion tokens the batch grows
    part = 50_000_000_000 // len(sizes) // 1024
    phases = {f"grow{size}": base.phase(part // size, batch=size, **rows) for size in sizes}
    left = (TOKENS - 50_000_000_000) // 1024
    phases["main"] = base.phase(left // 1024, batch=1024, **rows)
    warmup = 3_000_000_000 // 1024 // sizes[0]
    config.schedule.update(name="constant", warmup=warmup)
    config.phase_order, config.phases = tuple(phases), base.ConfigDict(phases)
    return config
