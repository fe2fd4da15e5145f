"""ModernBERT-base (arXiv:2412.13663): 22 layers of width 768, 149 million parameters, rows of 1,024, then 8,192 tokens.

    bert-jax pretrain --config modern_base:100 --workdir runs/modern_base \
        --config.corpus.source='text/*.jsonl' --config.corpus.format=jsonl

The number is the billions of tokens to train on. Without it the run has the paper's 2,019: 1,719 in rows of 1,024, 250
in rows of 8,192 with another rotary base of the full layers, and 50 of decay. Other numbers keep these shares. The
batch follows the square root of the tokens (arXiv:2410.21676), because a batch of 4,608 rows would leave too few steps,
but has 384 rows at least.

During the first 2.5 % of the tokens the batch grows, with as many steps of each size. The paper has a lower rate in
rows of 8,192 (3e-4) than before; here it is the same until the decay. To start several decays from one checkpoint, or
to add tokens before it, see `continue_from` in docs/recipes/your_language.md.
"""

from bert_jax.configs import base

PAPER = 2019  # billions of tokens
ENDS = {"long": 250, "decay": 50}  # billions of tokens of the last phases
LENGTHS = 1024, 8192
LEAST = 64  # rows of a batch; all are multiples of it, to divide over up to 64 devices


def get_config(billions=PAPER):
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = "stores/modern_base"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 50_368
    config.tokenizer.lowercase = False
    config.objective.pair_task = "none"
    config.task.mask_rate = 0.3
    config.task.heldout_mask_rate = 0.15  # comparable with other models
    config.optimizer.update(name="stable_adamw", learning_rate=8e-4, weight_decay=1e-5)
    config.optimizer.update(beta2=0.98, clip=0.0)
    config.train.tokens_per_device = 16_384
    config.evaluate.every = 2_000
    config.checkpoint.every = 1_000
    set_phases(config, billions, rows=768, sizes=6, growth=50, warmup=3)
    return config


def set_phases(config, billions, rows: int, sizes: int, growth: float, warmup: float):
    """Sets the phases and the schedule for this many billions of tokens.

    For PAPER: rows of the first batch, of which the others are multiples; number of sizes; billions of tokens until the
    last one, and until the peak of the learning rate.
    """
    if not (share := float(billions) / PAPER) > 0:
        raise ValueError(f"{billions} billion tokens, expected more than 0")
    first, (length, long) = multiple(rows * share**0.5), LENGTHS
    billion = share * 1e9  # tokens for a billion of the paper
    *growing, full = (first * number for number in range(1, sizes + 1))
    each = billion * growth / sum(growing) / length  # steps of each size
    short = billion * (PAPER - growth - sum(ENDS.values())) / full / length
    keys = dict(length=length, max_predictions=312, rotary_base=10_000.0)
    steps = {f"batch{batch}": (each, batch) for batch in growing} | {"short": (short, full)}
    phases = {name: base.phase(round(n), batch=batch, **keys) for name, (n, batch) in steps.items()}
    batch = multiple(full * length / long)
    for name, tokens in ENDS.items():
        number = round(billion * tokens / batch / long)
        phases[name] = base.phase(number, batch=batch, length=long, max_predictions=2488)
    config.phase_order = tuple(phases)
    config.phases = base.ConfigDict(phases)
    config.schedule.update(name="wsd", decay=phases["decay"].steps)
    config.schedule.warmup = max(100, steps_of(billion * warmup, phases.values()))
    thousands = sum(phase.steps for phase in phases.values()) / 1_000
    config.checkpoint.keep_every = 1_000 * max(1, round(thousands / 20))


def steps_of(tokens: float, phases) -> int:
    """Returns the number of the first steps that have this many tokens."""
    steps = 0
    for phase in phases:
        number = min(phase.steps, tokens / phase.batch / phase.length)
        steps, tokens = steps + number, tokens - number * phase.batch * phase.length
    return round(steps)


def multiple(rows: float) -> int:
    """Returns the nearest multiple of LEAST, but not 0."""
    return LEAST * max(1, round(rows / LEAST))
