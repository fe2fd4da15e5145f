"""Hindi ModernBERT (github.com/kkkamur07/indic-modernBERT): 24 billion tokens, then other text in rows of 8,192.

    bert-jax pretrain --config docs/recipes/groups/indic_modernbert.py --workdir runs/hindi
    bert-jax pretrain --config docs/recipes/groups/indic_modernbert.py:long --workdir runs/hindi_long

The second run starts from the last checkpoint of the first, with the optimizer's moments, at step 0. The vocabulary is
theirs: BPE that takes digits by three and marks no words. `scripts.normalize` is their normalization of the script.
"""

from bert_jax.configs import base


def get_config(run="short"):
    config = base.get_config(model="modernbert", task="packed_documents")
    config.corpus.map = "scripts.normalize"
    config.corpus.format = "parquet"
    config.tokenizer.path = "hindi/tokenizer.json"
    config.task.update(mask_rate=0.3, heldout_mask_rate=0.15)
    config.optimizer.update(name="stable_adamw", learning_rate=4.884555511755356e-4)
    config.optimizer.update(beta2=0.98, weight_decay=1e-5, clip=0.0)
    config.schedule.update(name="constant", warmup=0)
    config.log.every = config.evaluate.every = config.checkpoint.every = 450
    config.checkpoint.keep_best = 3
    short = dict(length=1024, max_predictions=320, rotary_base=10_000.0)
    if run == "short":
        config.store = "stores/hindi"
        config.corpus.source = "text/sangraha/*.parquet"
        phases = {}
        for batch in (64, 128, 256):  # 500 million tokens
            phases[f"grow{batch}"] = base.phase(162_760 // batch, batch=batch, **short)
        phases["main"] = base.phase(44_092, batch=512, **short)
        config.schedule.warmup = 763  # 50 million tokens
    else:
        config.store = "stores/hindi_long"
        config.corpus.source = "text/indiccorp/*.parquet"
        config.init_from = "runs/hindi"
        config.init_moments = True
        config.log.every = config.evaluate.every = config.checkpoint.every = 15
        phases = {"main": base.phase(1_156, length=8192, batch=512, max_predictions=2520)}
    config.phase_order, config.phases = tuple(phases), base.ConfigDict(phases)
    return config
