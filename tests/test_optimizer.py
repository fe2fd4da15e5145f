"""Optimizers compared with the updates of their papers in NumPy; the size of their state; schedules; rates by layer."""

import itertools
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P
from kits import small
from kits.small import (
    ALBERT,
    VOCABULARY,
    mesh_of,
    rate_of,
    small_batch,
    small_config,
    small_objective,
    small_params,
)
from kits.transformers_bert import within

from bert_jax import build, config, optimizer, step, step_guard
from bert_jax.convert.names import by_path
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.optimizers import adam, muon
from bert_jax.optimizers.base import bytes_per_parameter, select_trained

STEPS = 10
RATE = rate_of("linear", 0.1, 3, STEPS)  # differs at every step


def make_gradients(rows: int = 6, columns: int = 5):
    """Returns (float32 params, gradients of ten steps) of a dense layer and a layer norm; some steps are clipped."""
    draw = np.random.default_rng(0)

    def tree(size):
        array = lambda *shape: draw.normal(0, size, shape).astype(np.float32)  # noqa: E731
        dense = {"kernel": array(rows, columns), "bias": array(columns)}
        return {"dense": dense, "norm": {"scale": array(columns), "bias": array(columns)}}

    sizes = np.geomspace(0.1, 10, STEPS) / np.sqrt(rows * columns)
    return tree(1.0), [tree(size) for size in sizes]


def run(chain, params, gradients, select=step.DEFAULTS.select):
    """Applies these gradients like step.train, which skips those that are not finite; yields the parameters and the
    state before and after each step."""
    chain = optax.with_extra_args_support(chain)

    @jax.jit
    def update(gradient, state, params, number):
        norm = optax.tree.norm(gradient)

        def apply(params, state):
            extra = {"step": number, "gradient_norm": norm}
            updates, state = chain.update(gradient, state, params, **extra)
            return select(number, optax.apply_updates(params, updates), params), state

        return step_guard.apply_if(jnp.isfinite(norm), apply, (params, state))

    state = jax.jit(chain.init)(params)
    yield params, state
    for number, gradient in enumerate(gradients):
        params, state = update(gradient, state, params, number)
        yield params, state


def make(*overrides, rate=RATE):
    config = small_config(*[f"optimizer.{override}" for override in overrides])
    return optimizer.make(config, rate, lambda step: config.optimizer.learning_rate)


def test_an_optimizer_comes_from_outside():
    """Lion (tests/external/lion.py), compared with that of optax; the learning rate is that of the config."""
    keys = small_config("optimizer.name=external.lion", "optimizer.clip=0")
    parts = build.design(keys, mesh_of((1, 1, 1)), VOCABULARY)
    settings = keys.optimizer
    betas = dict(b1=settings.beta1, b2=settings.beta2)
    decay = dict(weight_decay=settings.weight_decay, mask=partial(models.decayed, keys))
    rate = rate_of("linear", settings.learning_rate, keys.schedule.warmup, 20)
    reference = optax.lion(rate, **betas, **decay)
    params, gradients = make_gradients()
    pairs = zip(
        run(parts.optimizer, params, gradients), run(reference, params, gradients), strict=True
    )
    for (ours, _), (theirs, _) in pairs:
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7), ours, theirs)


def test_adafactor_equals_the_formulas_of_its_paper():
    """arXiv:1804.04235, algorithms 4 and 5 without momentum: a matrix of 128 rows and more is factored."""

    def rms(x):
        return np.sqrt((x**2).mean())

    def update(gradient, param, memory, number):
        beta = 1 - number**-0.8
        square = gradient**2 + 1e-30
        if min(gradient.shape) >= 128 and gradient.ndim == 2:
            row = memory["row"] = beta * memory.get("row", 0) + (1 - beta) * square.sum(1)
            column = memory["column"] = beta * memory.get("column", 0) + (1 - beta) * square.sum(0)
            second = np.outer(row, column) / row.sum()
        else:
            second = memory["v"] = beta * memory.get("v", 0) + (1 - beta) * square
        change = gradient / np.sqrt(second)
        return max(1e-3, rms(param)) * change / max(1.0, rms(change))

    chain = make("name=adafactor", "clip=0", "weight_decay=0")
    params, gradients = make_gradients(128, 160)
    *_, (actual, state) = run(chain, params, gradients)
    # For the matrix, the state has only sums over rows and columns.
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) < 5 * (128 + 160)
    values = [np.float64(leaf) for leaf in jax.tree.leaves(params)]
    memories = [{} for _ in values]
    for number, gradient in enumerate(gradients, 1):
        for i, leaf in enumerate(jax.tree.leaves(gradient)):
            change = update(np.float64(leaf), values[i], memories[i], number)
            values[i] = values[i] - float(RATE(number - 1)) * change
    for ours, expected in zip(jax.tree.leaves(actual), values, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=5e-6)


def skipping(gradients: list) -> list:
    """Returns the gradients, of which the fifth is not finite."""
    wrong = jax.tree.map(lambda g: g + np.inf, gradients[4])
    return [*gradients[:4], wrong, *gradients[5:]]


def descend(params, gradients, update) -> dict:
    """Returns {path: float64 array} after steps at RATE, without the skipped one. update: (path, gradient, parameter,
    its memory, number of updates) -> change."""
    values = {path: np.float64(leaf) for path, leaf in by_path(params).items()}
    memories = {path: {} for path in values}
    count = 0
    for number, gradient in enumerate(gradients):
        if not np.isfinite(optax.tree.norm(gradient)):
            continue
        count += 1
        for path, g in by_path(gradient).items():
            change = update(path, np.float64(g), values[path], memories[path], count)
            values[path] = values[path] - float(RATE(number)) * change
    return values


def follow(memory: dict, name: str, value, beta: float):
    """Returns the moment of this name after another value."""
    memory[name] = beta * memory.get(name, 0) + (1 - beta) * value
    return memory[name]


def adam_in_numpy(g, memory, count, is_corrected):
    first = follow(memory, "m", g, 0.9)
    second = follow(memory, "v", g**2, 0.999)
    if is_corrected:
        first = first / (1 - 0.9**count)
        second = second / (1 - 0.999**count)
    return first / (np.sqrt(second) + 1e-6)


def sharded(tree, shape):
    """Returns a tree with its matrices split over a mesh."""
    placed = jax.NamedSharding(mesh_of(shape), P("fsdp", "tensor"))
    return jax.tree.map(lambda x: jax.device_put(x, placed) if x.ndim == 2 else x, tree)


def assert_equal(actual, expected: dict, rtol=2e-5, atol=2e-6):
    actual = by_path(jax.device_get(actual))
    worst = max(np.abs(actual[path] - expected[path]).max() for path in expected)
    print(f"largest difference {worst:.1e}")
    for path in expected:
        np.testing.assert_allclose(actual[path], expected[path], rtol, atol, err_msg=path)


@pytest.mark.parametrize("is_corrected, shape", [(False, (1, 1, 1)), (True, (2, 2, 2))])
def test_ten_steps_of_lamb_equal_the_formulas_of_its_code(is_corrected, shape):
    """google-research/albert, lamb_optimizer.py; with bias correction arXiv:1904.00962, algorithm 2. Norms are those of
    whole arrays, of which each device has a fourth."""

    def update(path, g, p, memory, count):
        change = adam_in_numpy(g, memory, count, is_corrected)
        if not path.endswith("kernel"):
            return change
        change = change + 0.01 * p
        return change * np.linalg.norm(p) / np.linalg.norm(change)

    chain = make("name=lamb", "clip=0", f"bias_correction={is_corrected}")
    params, gradients = make_gradients()
    if shape != (1, 1, 1):
        params, gradients = make_gradients(8, 6)
    gradients = skipping(gradients)
    *_, (actual, _) = run(chain, sharded(params, shape), gradients)
    assert_equal(actual, descend(params, gradients, update))


def test_lamb_with_bias_correction_equals_that_of_optax():
    chain = make("name=lamb", "clip=0", "bias_correction=True")
    params, gradients = make_gradients()
    kernel = [{"kernel": tree["dense"]["kernel"]} for tree in (params, *gradients)]
    *_, (ours, _) = run(chain, kernel[0], kernel[1:])
    reference = optax.lamb(RATE, eps=1e-6, weight_decay=0.01)
    *_, (theirs, _) = run(reference, kernel[0], kernel[1:])
    np.testing.assert_allclose(ours["kernel"], theirs["kernel"], rtol=1e-6, atol=1e-7)


def make_block(rows: int, columns: int):
    """Returns the tree of `make_gradients`, in a block and in front of it."""
    params, gradients = make_gradients(rows, columns)

    def nest(tree):
        return {"network": {"blocks_0": tree, "embedder": {"words": tree["dense"]["kernel"]}}}

    return nest(params), [nest(gradient) for gradient in gradients]


GPT = "model.name=gpt", "objective.name=causal_lm", "task.name=token_blocks"
TRANSFORMER = (
    *("model.name=transformer", "model.decoder_layers=2", "phases.main.batch=16"),
    *("objective.name=translation", "task.name=translation", "task.max_pieces=30"),
)
MATRIX = "network/blocks_0/dense/kernel"


@pytest.mark.parametrize("size, shape", [((6, 4), (1, 1, 1)), ((4, 16), (2, 2, 2))])
@pytest.mark.parametrize("is_nesterov", [True, False])
def test_ten_steps_of_muon_equal_its_formulas(size, shape, is_nesterov):
    """Those of optax, which corrects the bias of the moment; the iteration is that of github.com/KellerJordan/Muon, the
    scale that of arXiv:2502.16982, equation 4. All but the matrix is updated by AdamW."""

    def orthogonalize(x):
        if x.shape[0] > x.shape[1]:
            return orthogonalize(x.T).T
        x = x / np.linalg.norm(x)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x

    def update(path, g, p, memory, count):
        if path != MATRIX:
            decay = 0.01 if path.endswith("words") else 0
            return adam_in_numpy(g, memory, count, True) + decay * p
        moment = follow(memory, "m", g, 0.95)
        if is_nesterov:
            moment = moment * 0.95 / (1 - 0.95 ** (count + 1)) + g * 0.05 / (1 - 0.95**count)
        change = 0.2 * max(size) ** 0.5 * orthogonalize(moment)
        assert 0.13 < np.sqrt((change**2).mean()) < 0.25  # that of AdamW is 0.2 to 0.4
        return change + 0.01 * p

    chain = make("name=muon", "clip=0", f"nesterov={is_nesterov}")
    params, gradients = make_block(*size)
    gradients = skipping(gradients)
    *_, (actual, _) = run(chain, sharded(params, shape), gradients)
    assert_equal(actual, descend(params, gradients, update))


def test_muon_equals_that_of_optax_on_a_matrix():
    chain = make("name=muon", "clip=0")
    params, gradients = make_block(6, 16)
    *_, (ours, _) = run(chain, params, gradients)
    matrices = [by_path(tree)[MATRIX] for tree in (params, *gradients)]
    reference = optax.contrib.muon(RATE, weight_decay=0.01, consistent_rms=0.2)
    *_, (theirs, _) = run(reference, matrices[0], matrices[1:])
    np.testing.assert_allclose(by_path(ours)[MATRIX], theirs, rtol=1e-6, atol=1e-7)


def test_the_moment_of_muon_may_be_rounded_once_a_step():
    chain = make("name=muon", "clip=0", "moment_dtype=bfloat16")
    params, gradients = make_block(6, 16)
    *_, (_, state) = run(chain, params, gradients[:2])
    first, second = (0.05 * by_path(gradient)[MATRIX] for gradient in gradients[:2])
    moment = 0.95 * jnp.float32(first.astype(jnp.bfloat16)) + second
    (actual,) = (leaf for path, leaf in by_path(state).items() if path.endswith(f"mu/{MATRIX}"))
    np.testing.assert_array_equal(actual, moment.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    "keys, count",
    [
        ((), 2 * 6),
        ((*small.MODERN, "task.name=packed_documents"), 4 * 7),
        (small.ELECTRA, 2 * 6 + 2 * 6),
        (GPT, 2 * 6),
        (TRANSFORMER, 2 * 6 + 2 * 10),
    ],
)
def test_muon_updates_the_kernels_of_blocks(keys, count):
    """Neither embeddings nor heads, whatever their names; each is a matrix of its own."""
    config = small_config("optimizer.name=muon", *keys)
    design = build.design(config, mesh_of((1, 1, 1)), VOCABULARY)
    params = by_path(design.shapes.params)
    labels = by_path(muon.label(design.shapes.params))
    matrices = {path for path, label in labels.items() if label == "muon"}
    kernels = {path for path in params if "/blocks_" in path and path.endswith("kernel")}
    assert matrices == kernels and len(kernels) == count
    assert all(params[path].ndim == 2 for path in kernels)


@pytest.mark.parametrize(
    "keys, expected",
    [
        ("name=adam", 8),
        ("name=adam moment_dtype=bfloat16", 6),
        ("name=stable_adamw weight_decay=0", 8),
        ("name=lamb", 8),
        ("name=lamb moment_dtype=bfloat16", 6),
        ("name=muon", 8),
        ("name=muon moment_dtype=bfloat16", 6),
        ("name=adafactor", 0),
    ],
)
def test_the_state_has_so_many_bytes_for_each_parameter(keys, expected):
    """Muon has no second moment of the kernels of blocks; Adafactor has rows and columns of those of 128 and more."""
    keys = [f"optimizer.{key}" for key in keys.split()]
    config = small_config(*keys, "model.width=256", "model.max_length=128")
    shapes = build.design(config, mesh_of((1, 1, 1)), VOCABULARY).shapes
    sizes = {path: leaf.size for path, leaf in by_path(shapes.params).items()}
    if "optimizer.name=muon" in keys:
        matrices = [path for path in sizes if "/blocks_" in path and path.endswith("kernel")]
        expected -= 4 * sum(sizes[path] for path in matrices) / sum(sizes.values())
    assert bytes_per_parameter(shapes) == pytest.approx(expected, abs=0.1, rel=1e-4)


@pytest.mark.parametrize("devices", [1, 2])
def test_ten_steps_of_stable_adamw_equal_optimi(devices):
    """golden/make_stable_adamw.py: the gradients have spikes, and the rate changes. Devices may share a parameter."""
    golden = dict(np.load(Path(__file__).parent / "golden/stable_adamw.npz"))
    keys = ["name=stable_adamw", "clip=0", f"weight_decay={golden['decay']}"]
    keys += [f"learning_rate={golden['rates'].max()}", f"beta2={golden['betas'][1]}"]
    chain = make(*keys, rate=jnp.asarray(golden["rates"]).__getitem__)
    gradients = within(golden, "gradients/")
    gradients = [{name: gradients[name][step] for name in gradients} for step in range(STEPS)]
    before = within(golden, "before/")
    mesh = mesh_of((1, devices, 1))
    before["kernel"] = jax.device_put(before["kernel"], jax.NamedSharding(mesh, P("fsdp")))
    *_, (actual, _) = run(chain, before, gradients)
    after = within(golden, "after/")
    print(f"{(worst := max(np.abs(actual[name] - after[name]).max() for name in after)):.1e}")
    assert worst < 1e-6


def test_the_decay_of_stable_adamw_is_relative_to_a_rate_by_the_width():
    results = []
    for rate in (-1.0, config.FINE_TUNING / small_config().model.width):
        keys = {"name": "stable_adamw", "weight_decay": 5e-3, "learning_rate": rate}
        settings = small_config(*[f"optimizer.{key}={value}" for key, value in keys.items()])
        parts = build.design(settings, mesh_of((1, 1, 1)), VOCABULARY)
        *_, (params, _) = run(parts.optimizer, *make_gradients())
        results.append(jax.device_get(params))
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_biases_and_norms_have_no_weight_decay():
    mask = by_path(models.decayed(small_config(), small_params(small_objective())))
    decayed = {name for name, is_decayed in mask.items() if is_decayed}
    assert not any("norm" in name or name.endswith("bias") for name in decayed)
    assert len(decayed) == 3 + 2 * 6 + 3  # tables, kernels of two blocks, pooler and heads


def bytes_of(state) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(state) if leaf.ndim)


def test_a_bfloat16_moment_is_rounded_once_a_step():
    """The moment takes half the memory; the first update equals float32's, later ones differ by its rounding."""
    keys = [f"optimizer.moment_dtype={dtype}" for dtype in ("float32", "bfloat16")]
    exact, rounded = (adam.make(small_config(key), None) for key in keys)
    params, gradients = make_gradients()
    a = exact.init(params)
    b = rounded.init(params)
    assert (bytes_of(a), bytes_of(b)) == (2 * bytes_of(params), 1.5 * bytes_of(params))
    update = jax.jit(exact.update)
    round_moments = jax.jit(rounded.update)
    for number, gradient in enumerate(gradients[:5]):
        (x, a), (y, b) = (
            function(gradient, state, params, step=number)
            for function, state in ((update, a), (round_moments, b))
        )
        assert {leaf.dtype for leaf in jax.tree.leaves(b.mu)} == {jnp.dtype("bfloat16")}
        assert {leaf.dtype for leaf in jax.tree.leaves((y, b.nu))} == {np.dtype("float32")}
        # bfloat16 has eight bits. Each step keeps nine tenths of the earlier error, so it is at most ten roundings.
        for u, v in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
            assert np.linalg.norm(u - v) <= (number > 0) * 10 * 2**-9 * np.linalg.norm(u)
    assert np.any(x["dense"]["kernel"] != y["dense"]["kernel"])


@pytest.mark.parametrize(
    "name, expected",
    [
        # The drop from 1.0 to 0.9 at the end of the warm-up, step 10, is that of the original code.
        ("linear", {0: 0.0, 5: 0.5, 10: 0.9, 60: 0.4, 100: 0.0}),
        ("cosine", {5: 0.5, 10: 1.0, 55: 0.5, 100: 0.0}),
        ("root", {0: 0.0, 5: 0.5, 10: 0.9**0.5, 51: 0.7, 100: 0.0}),
        ("inverse_sqrt", {5: 0.5, 10: 1.0, 40: 0.5}),
        # By tokens: 50 of 200 in the first five steps; in the decay 600 of 1,800 in the first twenty.
        ("constant", {5: 0.25, 99: 1.0}),
        # arXiv:1801.06146, equation 3, with a ratio of 32.
        ("slanted", {0: 1 / 32, 5: 16.5 / 32, 10: 1.0, 55: 16.5 / 32, 100: 1 / 32}),
        ("sqrt", {5: 0.25, 10: 1.0, 60: 1.0, 80: 1 - (1 / 3) ** 0.5, 100: 0.0}),
    ],
)
def test_schedules_have_the_expected_rates(name, expected):
    sizes = [(0, 5, 10, 1), (5, 80, 10, 3), (80, 100, 20, 3)]  # first step, last, length, batch
    phases = [config.Phase("", 0, *size, None) for size in sizes]
    decay = 40 if name == "sqrt" else 0
    for numpy in (jnp, np):
        rate = rate_of(name, 2.0, 10, 100, decay, phases, numpy)
        assert {at: rate(at) / 2 for at in expected} == pytest.approx(expected, abs=1e-6)
        assert rate(5).dtype == np.float32
        rate = rate_of("sqrt", 2.0, 400, 100, 40, phases, numpy)
        assert rate(80) == pytest.approx(2 * 2_300 / (2_300 + 320 * 60))  # the last phase goes on


# --- Rates by layer -------------------------------------------------------------------------------

# Layers of the small model above those of these parameters; its blocks are two.
ABOVE = {"embedder/words": 3, "embedder_norm/scale": 3, "blocks_0/attention/query/kernel": 2}
ABOVE |= {"blocks_1/feed_forward_norm/bias": 1, "pooler/kernel": 0}
ABOVE = {f"network/{name}": above for name, above in ABOVE.items()}
ABOVE |= {"mlm/dense/kernel": 0, "pair/kernel": 0, "network/final_norm/scale": 1}
SHAPES = jax.eval_shape(small_objective("model.norm=pre").init, jax.random.key(0), small_batch())
LAYERS = by_path(models.layers_above(small_config(), SHAPES))


def test_each_subtree_of_the_body_has_layers_of_its_own():
    sizes = dict.fromkeys(("embedder", "blocks_0", "blocks_1", "final_norm"), {"bias": 1})
    params = {
        "network": {"encoder": sizes, "decoder": {"blocks_0": {"bias": 1}}},
        "head": {"bias": 1},
    }
    above = models.layers_above(config.load("transformer_base"), params)
    layers = {name: part["bias"] for name, part in above["network"]["encoder"].items()}
    assert layers == {"embedder": 3, "blocks_0": 2, "blocks_1": 1, "final_norm": 1}
    assert above["network"]["decoder"]["blocks_0"]["bias"] == 1 and above["head"]["bias"] == 0


def test_the_block_of_all_layers_counts_as_one_layer():
    """So that gradual unfreezing has three stages."""
    params = jax.eval_shape(small_objective(*ALBERT).init, jax.random.key(0), small_batch())
    network = models.layers_above(small_config(*ALBERT), params)["network"]
    above = {name: {*jax.tree.leaves(part)} for name, part in network.items()}
    embeddings = dict.fromkeys(("embedder", "embedder_norm", "embedder_dense"), {2})
    assert above == embeddings | {"blocks_0": {1}, "pooler": {0}}


def steps_of(number: int, *overrides) -> list[dict]:
    """Returns parameters with the tree of the small model before and after each of some steps, {path: array}."""
    settings = small_config(*[f"optimizer.{override}" for override in overrides])
    chain = optimizer.make(settings, lambda step: 0.01, None)
    select = partial(select_trained, settings)
    draw = np.random.default_rng(0)
    noise = lambda x: draw.normal(size=x.shape).astype(np.float32)  # noqa: E731
    params, *gradients = (jax.tree.map(noise, SHAPES) for _ in range(number + 1))
    return [by_path(jax.device_get(found)) for found, _ in run(chain, params, gradients, select)]


def changed(before: dict, after: dict) -> set[str]:
    """Returns the names of parameters with other bits."""
    return {name for name in before if before[name].tobytes() != after[name].tobytes()}


def test_each_layer_has_its_own_rate():
    before, plain = steps_of(1)
    _, layered = steps_of(1, "layer_decay=0.5")
    for name, above in ABOVE.items():
        expected = 0.5**above * (plain[name] - before[name])
        np.testing.assert_allclose(layered[name] - before[name], expected, rtol=1e-4, atol=1e-7)
        assert np.abs(expected).max() > 1e-4


@pytest.mark.parametrize("name", ["adam", "lamb", "muon"])
def test_layers_are_unfrozen_from_the_top(name):
    """One more every two steps; the others keep their bits, with weight decay, too."""
    found = steps_of(7, f"name={name}", "unfreeze_every=2", "weight_decay=0.1")
    for number, (before, after) in enumerate(itertools.pairwise(found)):
        assert changed(before, after) == {name for name in LAYERS if LAYERS[name] <= number // 2}


@pytest.mark.parametrize("name, decay", [("adam", 1e-3), ("stable_adamw", 1e-5), ("lamb", 1e-3)])
def test_layers_that_are_not_trained_yet_do_not_count(name, decay):
    """Neither in the norm of the gradient nor in Adam's moments; a layer's first update is that of a fresh Adam. Until
    then it has no weight decay."""
    keys = [f"optimizer.name={name}", "optimizer.unfreeze_every=2"]
    config = small_config(*keys, f"optimizer.weight_decay={decay}")
    sizes = {"network": {"pooler": {"bias": 3}, "blocks_0": {"kernel": 2}}, "label": {"bias": 4}}
    params = jax.tree.map(jnp.ones, sizes)
    objective = base.Objective(
        init=pytest.fail,
        weights=lambda batch: {"label": 1.0},
        loss=lambda params, *_, train: (sum(x.sum() for x in jax.tree.leaves(params)), {}),
        outputs=pytest.fail,
    )
    update = optimizer.make(config, lambda step: 1e-3, lambda step: 1e-3)
    options = step.StepOptions(select=partial(select_trained, config))
    train = partial(step.train, objective=objective, optimizer=update, seed=0, options=options)
    state = step.State(jnp.int32(0), params, step_guard.guarded(update.init(params)))
    batch = {"sequence_ids": np.ones((1, 1))}
    for number in range(3):
        before = state
        state, values, _ = train(state, batch)
        trained = 3 + 4 + 2 * (number == 2)
        assert float(values["gradient_norm"][0]) == pytest.approx(trained**0.5)
        moments = optax.tree.get(state.opt_state, "nu")["network"]["blocks_0"]["kernel"]
        assert (moments > 0).all() == (number == 2)
        changes = jax.tree.map(jnp.subtract, before.params, state.params)["network"]["blocks_0"]
        assert (changes["kernel"] != 0).all() == (number == 2)
    np.testing.assert_allclose(changes["kernel"], 1e-3, rtol=0.02)


def test_a_frozen_network_keeps_its_bits():
    before, *_, after = steps_of(3, "frozen=True", "weight_decay=0.1")
    assert changed(before, after) == {name for name in LAYERS if not LAYERS[name]}


def test_a_frozen_network_has_no_gradients():
    """They are not computed, and the clipped norm is that of the others."""
    params = jax.tree.map(lambda x: jnp.ones(x.shape[-1:]), SHAPES)
    select = partial(select_trained, small_config("optimizer.frozen=True"), 0)

    def total(params):
        params = select(params, jax.lax.stop_gradient(params))
        return sum(x.sum() for x in jax.tree.leaves(params))

    for name, gradient in by_path(jax.grad(total)(params)).items():
        assert (gradient == (LAYERS[name] == 0)).all(), name


@pytest.mark.parametrize("frozen, more", [(False, 1e-3), (True, 0.05)])
def test_the_flops_of_a_step_are_those_of_its_gradient(frozen, more):
    """The program of the gradient has the products that are counted, and a few more: sums of a bias, and gradients of
    frozen layers that nothing reads."""
    config = small_config("model.norm=pre", f"optimizer.frozen={frozen}")
    objective = base.make(config, VOCABULARY, is_counted=True)
    select = partial(select_trained, config, 0)
    batch = small_batch()

    def loss(params):
        params = select(params, jax.lax.stop_gradient(params))
        return objective.loss(params, batch, objective.weights(batch), jnp.uint32(0), train=False)

    gradient = jax.make_jaxpr(jax.grad(loss, has_aux=True))(SHAPES)
    counted = base.step_flops(config, VOCABULARY, SHAPES, batch)
    assert counted == pytest.approx(counts.products(gradient.jaxpr), rel=more)
    assert counted <= counts.products(gradient.jaxpr)


@pytest.mark.parametrize("name", ["classify", "glue:mnli", "ner", "squad:2"])
@pytest.mark.parametrize("width, rate", [(768, 5e-5), (128, 3e-4), (1024, 3.75e-5)])
def test_the_rate_of_fine_tuning_follows_the_width(name, width, rate):
    """Unless the config has another one."""
    keys = f"model.width={width}", "model.heads=4"
    assert config.peak_rate(config.load(name, keys)) == pytest.approx(rate)
    assert config.peak_rate(config.load(name, [*keys, "optimizer.learning_rate=2e-5"])) == 2e-5
