"""ModernBERT-base (arXiv:2412.13663): 22 layers of width 768, 149 million parameters, rows of 1,024, then 8,192 tokens.

    bert-jax pretrain --config modern_base:100 --workdir runs/modern_base \
        --config.corpus.source='text/*.jsonl' --config.corpus.format=jsonl

The number is the billions of tokens to train on. Without it the run has the paper's 2,019: 1,719 in rows of 1,024, 250
in rows of 8,192 with another rotary base of the full layers, and 50 of decay. Other numbers keep these shares. The
batch follows the square root of the tokens (arXiv:2410.21676), because a batch of 4,608 rows would leave too few steps,
but has 384 rows at least.

During the first 2.5 % of the tokens the batch grows, with as many steps of each size. The paper has a lower rate in
rows of 8,192 (3e-4) than before; here it is the same until the decay, unless phases.long has a schedule of its own
(docs/phases.md). To start several decays from one checkpoint, or
to add tokens before it, see `continue_from` in docs/recipes/your_language.md.
"""

from bert_jax.configs import base

PAPER = 2019  # billions of tokens
ENDS = {"long": 250, "decay": 50}  # billions of tokens of the last phases
LENGTHS = 1024, 8192
ROWS_STEP = 64  # rows of a batch; all are multiples of it, so that 64 devices can share them


def get_config(billions=PAPER):
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = "stores/modern_base"
    config.tokenizer.kind = "byte_bpe"
    config.tokenizer.size = 50_368
    config.tokenizer.lowercase = False
    config.task.mask_rate = 0.3
    config.task.heldout_mask_rate = 0.15  # comparable with other models
    config.optimizer.name = "stable_adamw"
    config.optimizer.learning_rate = 8e-4
    config.optimizer.weight_decay = 1e-5
    config.optimizer.beta2 = 0.98
    config.optimizer.clip = 0.0
    config.train.tokens_per_device = 16_384
    config.evaluate.every = 2_000
    config.checkpoint.every = 1_000
    set_phases(config, billions, rows=768, sizes=6, growth=50, warmup=3)
    return config


def set_phases(config, billions, rows: int, sizes: int, growth: float, warmup: float):
    """Sets the phases and the schedule for this many billions of tokens.

    The other arguments are those of PAPER:

    rows: of the first batch, of which the others are multiples.
    sizes: number of batch sizes.
    growth: billions of tokens until the last size.
    warmup: billions of tokens until the peak of the learning rate.
    """
    share = float(billions) / PAPER
    if not share > 0:
        raise ValueError(f"{billions} billion tokens, expected more than 0")
    length, long = LENGTHS
    billion = share * 1e9  # tokens for a billion of the paper
    first = multiple(rows * share**0.5)
    *growing, full = (first * number for number in range(1, sizes + 1))
    phases = {}
    short = dict(length=length, max_predictions=312, rotary_base=10_000.0)
    steps = round(billion * growth / sum(growing) / length)
    for batch in growing:
        phases[f"batch{batch}"] = base.phase(steps, batch=batch, **short)
    steps = round(billion * (PAPER - growth - sum(ENDS.values())) / full / length)
    phases["short"] = base.phase(steps, batch=full, **short)
    batch = multiple(full * length / long)
    for name, tokens in ENDS.items():
        steps = round(billion * tokens / batch / long)
        phases[name] = base.phase(steps, batch=batch, length=long, max_predictions=2488)
    config.phase_order = tuple(phases)
    config.phases = base.ConfigDict(phases)
    config.schedule.update(name="sqrt", decay=phases["decay"].steps)
    config.schedule.warmup = max(100, steps_of(billion * warmup, phases.values()))
    thousands = sum(phase.steps for phase in phases.values()) / 1_000
    config.checkpoint.keep_every = 1_000 * max(1, round(thousands / 20))


def steps_of(tokens: float, phases) -> int:
    """Returns the number of the first steps that have this many tokens."""
    steps = 0
    for phase in phases:
        tokens_per_step = phase.batch * phase.length
        number = min(phase.steps, tokens / tokens_per_step)
        steps += number
        tokens -= number * tokens_per_step
    return round(steps)


def multiple(rows: float) -> int:
    """Returns the nearest multiple of ROWS_STEP, but not 0."""
    return ROWS_STEP * max(1, round(rows / ROWS_STEP))
