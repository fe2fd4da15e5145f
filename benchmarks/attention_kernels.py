"""Compares the attention kernels of this machine's device with `xla`: seconds, and differences from float32.

    python benchmarks/attention_kernels.py [--tokens 16384]

Rows of several lengths, up to --tokens in all. Prints a Markdown row as soon as it is measured, and whether
`model.attention=auto` takes this kernel. accelerator.py has this table in its page.
"""

import argparse
import statistics
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.cli import positive
from bert_jax.errors import one_line
from bert_jax.layers import attention
from bert_jax.layers.attention import IMPLEMENTATIONS
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.runs import environment

HEADS, SIZE = 12, 64  # those of BERT-base and ModernBERT-base
CASES = (  # length, dropout, sequences, window
    (128, 0.0, 1, 0),
    (512, 0.0, 1, 0),
    (128, 0.0, 8, 0),
    (512, 0.0, 8, 0),
    (1024, 0.0, 8, 0),
    (1024, 0.0, 8, 128),
    (2048, 0.0, 8, 128),
    (4096, 0.0, 8, 128),
    (8192, 0.0, 8, 0),
    (8192, 0.0, 8, 128),
    (128, 0.1, 1, 0),
    (512, 0.1, 1, 0),
)
HEADER = """
| kernel | length | sequences | window | dropout | auto | ms | errors: output; gradients by q, k, v |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=positive, default=16_384, help="of an input")
    tokens = parser.parse_args(arguments).tokens
    kind, names = attention.device_and_kernels()
    print(
        f"{kind}: forward and backward pass, bfloat16, {tokens:,} tokens, {HEADS} heads of {SIZE}. Errors: the largest"
        " difference from `xla` in float32, over the largest value, of outputs and gradients.",
        HEADER,
        sep="\n",
        flush=True,
    )
    for length, dropout, sequences, window in CASES:
        case = attention.Case(kind, names, length, HEADS, "bfloat16")
        for name in ("xla", *names):
            spec = Spec(name, SIZE, window, dropout=dropout, sequences=sequences)
            if length > tokens or list(attention.refusals(name, spec, case)):
                continue
            is_chosen = name == attention.choose(spec._replace(implementation="auto"), case)
            result = measure(spec, tokens // length, length)
            cells = name, length, sequences, window, dropout, "yes" if is_chosen else "", result
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return 0


def measure(spec: Spec, rows: int, length: int) -> str:
    """Returns the cells of a kernel: milliseconds and errors, or why it failed."""
    try:
        seconds, errors = compare(spec, rows, length)
    except Exception as error:  # of the compiler or the device, such as too little memory
        return one_line(error).replace("|", "/")
    return f"{1e3 * seconds:.3f} | {', '.join(f'{error:.2g}' for error in errors)}"


def compare(spec: Spec, rows: int, length: int, turns=20, most=2.0) -> tuple[float, list[float]]:
    """Returns the median seconds of both passes of a kernel, and its errors in the first row, which leaves memory for
    float32: output, gradients by q, k and v.

    turns: how often it is timed, at most.
    most: seconds after which it is not timed again.
    """
    draw = np.random.default_rng(0)
    q, k, v, weights = draw.normal(size=(4, rows, length, HEADS, SIZE)).astype(np.float32)
    real = np.arange(length) < draw.integers(length // 4, length, (rows, 1), endpoint=True)
    number = 1 + np.arange(length) * spec.sequences // length
    weights *= real[
        ..., None, None
    ]  # gradients of the output; what a padding token attends to is free
    keys = jnp.arange(rows, dtype=jnp.uint32)
    vectors = [jnp.asarray(x, jnp.bfloat16) for x in (q * SIZE**-0.5, k, v)]

    ids = jnp.asarray(real * number, jnp.int32)

    def passes(spec, dtype, count=rows):
        @jax.jit
        def program(ids, keys, weights, *vectors):
            # Not by `attention.attend`, which takes another one for some cases.
            attend = partial(IMPLEMENTATIONS[spec.implementation], spec, Mask(ids), keys=keys)
            output, pull_back = jax.vjp(attend, *vectors)
            return output, *pull_back(weights)

        inputs = [jnp.asarray(x[:count], dtype) for x in (weights, *vectors)]
        return lambda: jax.block_until_ready(program(ids[:count], keys[:count], *inputs))

    def compute(call):
        output, *gradients = (x[:1].astype(jnp.float32) for x in call())
        return output * real[:1, :, None, None], *gradients

    with jax.default_matmul_precision("highest"):
        exact = compute(passes(spec._replace(implementation="xla"), jnp.float32, 1))
    call = passes(spec, jnp.bfloat16)
    results = compute(call)
    seconds = []
    while len(seconds) < turns and sum(seconds) < most:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    pairs = zip(results, exact, strict=True)
    errors = [float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs]
    return statistics.median(seconds), errors


if __name__ == "__main__":
    environment.configure()
    sys.exit(main())
