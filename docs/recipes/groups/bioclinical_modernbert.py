"""BioClinical ModernBERT-base (github.com/lindvalllab/BioClinical-ModernBERT): 160 billion tokens, then clinical text.

    bert-jax pretrain --config docs/recipes/groups/bioclinical_modernbert.py --workdir runs/bioclinical

It begins with weights and moments of a ModernBERT before its decay, a run of the config modern_base. The one that they
took is a pickle of another program; from a directory of transformers, begin without init_moments.
"""

from bert_jax.configs import base


def get_config():
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = "stores/bioclinical"
    config.corpus.source = "bio=text/bio/*.jsonl,clinical=text/clinical/*.jsonl"
    config.corpus.format = "jsonl"
    config.tokenizer.path = "runs/modern_base"
    config.init_from = "runs/modern_base@418000"
    config.init_moments = True
    config.task.update(mask_rate=0.3, heldout_mask_rate=0.15)
    config.optimizer.update(name="stable_adamw", learning_rate=3e-4, beta2=0.98, weight_decay=1e-5)
    config.optimizer.clip = 0.0
    config.schedule.update(name="constant", warmup=0)
    config.checkpoint.keep_every = 3_000
    rows = dict(length=8192, batch=576)
    tokens = 8192 * 576
    decay = 8_247_337_000 // tokens
    phases = {
        "all": base.phase(160_453_000_000 // tokens, max_predictions=2520, **rows),
        "clinical": base.phase(
            decay,
            max_predictions=1300,
            mask_rate=0.15,
            mixture="bio:0",
            schedule="sqrt",
            decay=decay,
            end=0.001,
            **rows,
        ),
    }
    config.phase_order, config.phases = tuple(phases), base.ConfigDict(phases)
    return config
