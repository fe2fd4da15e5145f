"""HebrewModernBERT (github.com/asafam/HebrewModernBERT): four runs, each of which starts from the weights of the last.

for run in mix hebrew long decay; do
    bert-jax pretrain --config docs/recipes/groups/hebrew_modernbert.py:$run --workdir runs/hebrew_$run
done
"""

from bert_jax.configs import base

BILLION = 10**9
RUNS = {  # billions of tokens, length, rows of a step, rate, text, the run before
    "mix": (100, 1024, 4608, 8e-4, "mix", ""),
    "hebrew": (100, 1024, 4608, 8e-4, "hebrew", "mix"),
    "long": (30, 8192, 576, 3e-4, "hebrew", "hebrew"),
    "decay": (50, 8192, 576, 3e-4, "hebrew", "long"),
}


def get_config(run="mix"):
    tokens, length, batch, rate, text, before = RUNS[run]
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = f"stores/hebrew_{text}"
    config.corpus.source = f"text/{text}/*.jsonl"
    config.corpus.format = "jsonl"
    config.tokenizer.update(kind="bpe", size=150_016, lowercase=False, normalization="identity")
    config.tokenizer.update(byte_fallback=True, coverage=0.9999)
    if text != "mix":
        config.tokenizer.path = "stores/hebrew_mix"
    if before:
        config.init_from = f"runs/hebrew_{before}"
    config.task.update(mask_rate=0.3, heldout_mask_rate=0.15)
    config.optimizer.update(name="stable_adamw", learning_rate=rate, beta2=0.98, weight_decay=1e-5)
    config.log.wandb = f"HebModernBERT-{run}"
    config.checkpoint.every = 200
    config.checkpoint.keep_every = 4_000 if length == 1024 else 200
    steps = round(tokens * BILLION / batch / length)
    rows = dict(length=length, batch=batch, max_predictions=length * 5 // 16)
    config.phases.main = base.phase(steps, **rows)
    config.schedule.update(name="constant", warmup=0)
    if run == "mix":
        config.schedule.warmup = steps * 6 // 100
    elif run == "hebrew":
        config.schedule.update(name="linear", warmup=steps // 50, decay=steps // 10, end=0.02)
    elif run == "decay":
        config.schedule.update(name="sqrt", end=0.001)
    return config
