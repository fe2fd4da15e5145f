"""llm-jp-modernbert-base (github.com/llm-jp/llm-jp-modernbert, arXiv:2504.15544): 500,000 steps, then rows of 8,192.

    bert-jax pretrain --config docs/recipes/groups/llm_jp_modernbert.py --workdir runs/llm_jp
    bert-jax pretrain --config docs/recipes/groups/llm_jp_modernbert.py:long --workdir runs/llm_jp_long

The vocabulary is theirs, a unigram model whose special tokens are named in the tokenizer_config.json beside it. Their
rows are single documents, here several share one.
"""

from bert_jax.configs import base

WARMUP = 24_000


def get_config(run="short"):
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = "stores/llm_jp"
    config.corpus.source = "text/*.jsonl"
    config.corpus.format = "jsonl"
    config.tokenizer.path = "llm-jp-modernbert-base/tokenizer.json"
    config.model.update(rotary_base=10_000.0, dropout=0.0)
    config.task.mask_rate = 0.3
    config.optimizer.update(beta2=0.98, weight_decay=1e-5, bias_correction=True)
    config.log.wandb = "llm-jp/0062_bert"
    if run == "short":
        steps = 500_000
        config.optimizer.learning_rate = 5e-4
        config.phases.main = base.phase(steps, length=1024, batch=3328, max_predictions=320)
    else:
        steps = 200_000
        config.init_from = "runs/llm_jp"
        config.optimizer.learning_rate = 5e-5
        config.phases.main = base.phase(steps, length=8192, batch=384, max_predictions=2520)
    config.schedule.update(name="linear", warmup=WARMUP, decay=steps - WARMUP)
    return config
