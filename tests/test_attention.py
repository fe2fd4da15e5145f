"""Attention: the implementations agree, each refuses what it cannot do, and is chosen for what it can."""

import importlib
import re
from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import make_run, run_batch
from slices import compiling, devices, needs_libtpu
from small import small_config, small_objective, small_params

from bert_jax import axes, batch, build, hash, main, sharding, trained
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.models import attention
from bert_jax.models.attention import Case

HEADS, SIZE = 4, 16
interpreted = partial(attention.splash, interpret=True)
DROPOUT = 0.1


@cache
def make_rows(rows: int, length: int, heads: int = HEADS):
    """(q, k, v, weights, sequence_ids): rows that are full, padded, packed, packed and padded, and all padding."""
    draw = np.random.default_rng(length)
    arrays = [draw.normal(size=(rows, length, heads, SIZE)).astype(np.float32) for _ in range(4)]
    arrays[0] *= SIZE**-0.5
    ids = np.zeros((rows, length), np.int32)
    cuts = [[length], [length // 3], [40, length], [7, 90, length - 5], []]
    for row in range(rows):
        start = 0
        for number, stop in enumerate(cuts[row % len(cuts)], 1):
            ids[row, start:stop] = number
            start = stop
    arrays[3] *= (ids > 0)[..., None, None]
    return *arrays, ids


def compute(function, arrays, dtype=jnp.float32):
    """Vectors of real tokens, and gradients of their weighted sum by queries, keys and values."""
    *vectors, weights, ids = arrays

    def total(*vectors):
        result = function(*(x.astype(dtype) for x in vectors), ids).astype(jnp.float32)
        return (result * weights).sum(), jnp.where((ids > 0)[..., None, None], result, 0)

    gradients = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)
    (_, result), gradients = jax.jit(gradients)(*vectors)
    return result, *gradients


def plain(q, k, v, ids, rate=0.0):
    return attention.plain(q, k, v, ids, None, keys_of(ids), dropout=rate)


def fused(q, k, v, ids, rate=0.0):
    return attention.fused(q, k, v, ids, keys_of(ids), rate, interpret=True)


def keys_of(ids):
    """Of dropout: uint32[B]."""
    return hash.mix(np.arange(len(ids), dtype=np.uint32) + np.uint32(9))


def assert_close(one, other, tolerance):
    for left, right in zip(one, other, strict=True):
        assert np.isfinite(left).all()
        np.testing.assert_allclose(left, right, atol=tolerance * np.abs(right).max(), rtol=0)


# --- The plain way --------------------------------------------------------------------------------


def test_a_token_sees_the_real_tokens_of_its_own_sequence():
    """Against a softmax over just these, token by token."""
    q, k, v, _, ids = make_rows(5, 128)
    found = plain(q, k, v, ids)
    for row, place in [(0, 127), (1, 3), (2, 39), (2, 40), (3, 100)]:
        seen = ids[row] == ids[row, place]
        scores = np.einsum("hk,mhk->hm", q[row, place], k[row, seen])
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        expected = np.einsum("hm,mhk->hk", shares, v[row, seen])
        np.testing.assert_allclose(found[row, place], expected, rtol=1e-5, atol=1e-6)


# --- TPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [128, 384, 640])
def test_splash_is_the_plain_one(length):
    """Forward and backward; in one block, and in five."""
    arrays = make_rows(5, length)
    assert_close(compute(interpreted, arrays), compute(plain, arrays), 1e-5)


def test_splash_is_the_plain_one_in_bfloat16():
    arrays = make_rows(5, 256)
    both = (compute(function, arrays, jnp.bfloat16) for function in (interpreted, plain))
    assert_close(*both, 1e-2)


def make_mesh(shape):
    keys = [f"mesh.{name}={size}" for name, size in zip(axes.AXES, shape, strict=True)]
    return sharding.make_mesh(small_config(*keys).mesh, jax.devices()[: np.prod(shape)])


@pytest.mark.parametrize(("shape", "rows"), [((2, 2, 2), 8), ((1, 1, 4), 5), ((4, 2, 1), 3)])
def test_splash_on_a_mesh_is_that_of_one_device(shape, rows):
    """Each device computes its rows and heads; rows that do not divide are computed by all."""
    mesh = make_mesh(shape)
    arrays = make_rows(rows, 128)
    expected = compute(interpreted, arrays)
    with jax.set_mesh(mesh):
        found = compute(axes.by_heads(interpreted), arrays)
    assert_close(found, expected, 1e-6)
    parts = {part.data.shape for part in found[0].addressable_shards}
    assert parts == {(8 // 4, 128, HEADS // 2, SIZE)} or shape != (2, 2, 2)


@pytest.mark.parametrize("rate", [0.0, DROPOUT])
@pytest.mark.parametrize("length", [128, 384])
def test_fused_is_the_plain_one(length, rate):
    """Forward and backward, the same probabilities dropped; rows one by one, and several at once."""
    arrays = make_rows(8 if length == 128 else 5, length, heads=16)
    both = (compute(partial(function, rate=rate), arrays) for function in (fused, plain))
    assert_close(*both, 1e-5)


def test_fused_is_the_plain_one_in_bfloat16():
    arrays = make_rows(4, 256, heads=8)
    both = (
        compute(partial(function, rate=DROPOUT), arrays, jnp.bfloat16)
        for function in (fused, plain)
    )
    assert_close(*both, 1e-2)


@pytest.mark.parametrize(("shape", "rows"), [((2, 2, 2), 8), ((1, 1, 2), 3)])
def test_fused_on_a_mesh_is_that_of_one_device(shape, rows):
    """Dropout, too: a head is known by its number among all."""
    mesh = make_mesh(shape)
    arrays = make_rows(rows, 128, heads=16)
    expected = compute(partial(fused, rate=DROPOUT), arrays)

    def shared(q, k, v, ids):
        function = partial(attention.fused, rate=DROPOUT, interpret=True)
        return axes.by_heads(function)(q, k, v, ids, keys_of(ids))

    with jax.set_mesh(mesh):
        assert_close(compute(shared, arrays), expected, 1e-6)


TPU = ("TPU v5 lite", ("fused", "splash"))
GPU = ("NVIDIA H100 80GB HBM3", ("cudnn",))


def on_tpu(monkeypatch):
    """What a TPU would choose, here."""
    monkeypatch.setattr(attention, "devices_of", lambda mesh=None: TPU)
    monkeypatch.setattr(attention, "splash", interpreted)
    monkeypatch.setattr(attention, "fused", partial(attention.fused, interpret=True))


SETTINGS = ("model.positions=128", "model.attention_dropout=0.0", "model.dropout=0.0")


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [("splash", SETTINGS), ("fused", ("model.positions=128", "model.width=128", "model.heads=8"))],
)
def test_a_model_learns_the_same_by_a_kernel(monkeypatch, kernel, settings):
    """Packed rows, with one that is all padding: what padding sees reaches neither loss nor gradients."""
    on_tpu(monkeypatch)
    rows = batch.synthetic(4, 128, 10, 200, sequences=3)
    rows["sequence_ids"][1, 100:] = 0
    rows["sequence_ids"][2] = 0
    inside = np.take_along_axis(rows["sequence_ids"], rows["masked_positions"], 1) > 0
    rows["masked_weights"] *= inside
    rows["pair_weights"][2] = 0

    def learn(kind):
        made = small_objective(*settings, f"model.attention={kind}")

        def loss(params):
            return made.loss(params, rows, made.weights(rows), jnp.uint32(1), train=True)[0]

        found = jax.make_jaxpr(loss)(small_params(made))
        assert ("pallas_call" in str(found)) == (kind == kernel)
        value, gradient = jax.jit(jax.value_and_grad(loss))(small_params(made))
        return value, np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])

    assert_close(learn(kernel), learn("xla"), 1e-5)


@needs_libtpu
@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 2)])
@pytest.mark.parametrize("kind", ["splash", "fused"])
def test_kernels_compile_for_tpus(kind, length, shape):
    """On two of four devices by rows, on two by heads; forward and backward."""
    places = devices("v5e:2x2")[: np.prod(shape)]
    mesh = jax.sharding.Mesh(
        np.array(places).reshape(shape),
        axes.AXES,
        axis_types=(jax.sharding.AxisType.Auto,) * 3,
    )
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axes.ROWS))
    x = jax.ShapeDtypeStruct((4, length, 4, 64), jnp.bfloat16, sharding=where)
    ids = jax.ShapeDtypeStruct((4, length), jnp.int32, sharding=where)

    def total(q, k, v, ids):
        keys = keys_of(ids) if kind == "fused" else None
        return attend(kind, ids)(q, k, v, None, keys).astype(jnp.float32).sum()

    with jax.set_mesh(mesh), compiling(), jax.default_matmul_precision(None):
        assert attention.devices_of() == attention.devices_of(mesh) == TPU
        both = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
        text = both.lower(x, x, x, ids).compile().as_text()
    rows, heads = 4 // shape[0], 4 // shape[2]
    calls = [line for line in text.splitlines() if 'custom_call_target="tpu_custom_call"' in line]
    assert len(calls) == 2
    part = {"splash": [rows, heads, 64, length], "fused": [rows, length, heads * 64]}[kind]
    assert all(f"bf16[{','.join(map(str, part))}]" in line for line in calls)


# --- GPU ------------------------------------------------------------------------------------------


def test_cudnn_is_asked_for_what_the_plain_one_does():
    """The same call, computed here: its scale, and its mask by lengths."""
    *arrays, ids = make_rows(5, 96)
    ids = np.minimum(ids, 1)  # of one sequence a row
    (out, *gradients), (expected, *others) = (
        compute(function, (*arrays, ids))
        for function in (partial(attention.cudnn, implementation="xla"), plain)
    )
    assert_close([out, *gradients], [expected, *others], 1e-5)
    assert (ids.sum(1) == 0).any()


def test_cudnn_is_what_a_gpu_runs(monkeypatch):
    """Forward and backward, as the program for one says: no GPU is here to run it."""
    library = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(library, "check_cudnn_version", lambda: 91200)
    monkeypatch.setattr(attention, "devices_of", lambda mesh=None: GPU)
    x = jax.ShapeDtypeStruct((4, 100, 2, 64), jnp.bfloat16)

    def total(q, k, v, ids):
        return attend("auto", ids)(q, k, v, None, None).astype(jnp.float32).sum()

    program = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    traced = program.trace(x, x, x, jax.ShapeDtypeStruct((4, 100), jnp.int32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert re.findall(r"custom_call @(__cudnn\S+?)\(", text) == [
        "__cudnn$fmhaSoftmax",
        "__cudnn$fmhaSoftmaxBackward",
    ]
    assert text.count(r"mask_type\22: \22PADDING\22") == 2


# --- What is asked for, and what is chosen --------------------------------------------------------


ABLE = {
    "fused": Case(*TPU, 512, 4, 64, "bfloat16", 1, 0.1),
    "splash": Case(*TPU, 640, 4, 64, "bfloat16", 1, 0.0),
    "cudnn": Case(*GPU, 512, 4, 64, "bfloat16", 1, 0.0),
}
REFUSALS = [
    ("fused", dict(kernels=(), device="cpu"), "cpu, only TPUs from v5 on"),
    ("fused", dict(length=500), "phases.main.length=500, only multiples of 128"),
    ("fused", dict(length=640), "phases.main.length=640, only up to 512"),
    ("fused", dict(head_size=96), "model.width/model.heads=96, only what divides 128"),
    ("fused", dict(heads=3), "a width of 192 on a device, only multiples of 128"),
    ("fused", dict(is_biased=True), "biased scores"),
    ("splash", dict(kernels=(), device="cpu"), "cpu, only TPUs from v4 on"),
    ("splash", dict(length=100), "phases.main.length=100, only multiples of 128"),
    ("splash", dict(dropout=0.1), "model.attention_dropout=0.1, only 0"),
    ("splash", dict(is_biased=True), "biased scores"),
    (
        "cudnn",
        dict(kernels=("splash",), device="TPU v4"),
        "TPU v4, only GPUs of NVIDIA from Ampere on",
    ),
    ("cudnn", dict(dtype="float32"), "dtype=float32, only bfloat16"),
    ("cudnn", dict(sequences=3), "phases.main.sequences=3, only 1"),
    ("cudnn", dict(head_size=66), "model.width/model.heads=66, only multiples of 8 up to 128"),
    ("cudnn", dict(head_size=136), "model.width/model.heads=136, only multiples of 8 up to 128"),
    ("cudnn", dict(dropout=0.1), "model.attention_dropout=0.1, only 0"),
    ("cudnn", dict(is_biased=True), "biased scores"),
]


@pytest.mark.parametrize(("kind", "changes", "expected"), REFUSALS)
def test_what_cannot_be_done_is_refused_in_a_line(kind, changes, expected):
    """And `auto` never asks for it."""
    able, unable = ABLE[kind], ABLE[kind]._replace(**changes)
    assert attention.choose(kind, able) == attention.choose("auto", able) == kind
    with pytest.raises(BadInput) as error:
        attention.choose(kind, unable, "phases.main.")
    assert str(error.value) == f"config.model.attention={kind}: cannot do {expected}"
    assert attention.choose("xla", unable) == "xla"
    if kind in unable.kernels:
        assert attention.choose("auto", unable) == "xla"


def test_all_that_cannot_be_done_is_told_at_once():
    with pytest.raises(BadInput) as error:
        attention.choose("splash", ABLE["cudnn"]._replace(length=65, dropout=0.5))
    assert str(error.value).count(";") == 2 and "\n" not in str(error.value)


def test_what_is_packed_or_in_float32_is_not_refused_to_splash():
    case = ABLE["splash"]._replace(sequences=5, dtype="float32", head_size=66)
    assert attention.choose("auto", case) == "splash"


def test_auto_takes_a_kernel_where_it_is_the_faster():
    assert attention.choose("auto", ABLE["fused"]._replace(length=256)) == "fused"
    assert attention.choose("auto", ABLE["fused"]._replace(length=128)) == "xla"
    assert attention.choose("auto", ABLE["splash"]._replace(length=384, heads=3)) == "splash"
    assert attention.choose("auto", ABLE["splash"]._replace(length=256, heads=3)) == "xla"
    assert attention.choose("auto", ABLE["cudnn"]._replace(length=100)) == "cudnn"


@pytest.mark.parametrize(
    ("version", "capability", "expected"),
    [("cuda 12090", "9.0", True), ("cuda 12090", "7.5", False), ("rocm 60300", "gfx90a", False)],
)
def test_only_new_gpus_of_nvidia_have_cudnn(version, capability, expected):
    client = SimpleNamespace(platform_version=version)
    device = SimpleNamespace(client=client, compute_capability=capability)
    assert attention.has_cudnn(device) == expected


def attend(kind, ids, dropout=0.1, sequences=1):
    rows = {"sequence_ids": ids, "cls_positions": np.zeros((len(ids), sequences), np.int32)}
    return attention.make(kind, rows, dropout, remat=True)


def test_what_a_program_has_decides(monkeypatch):
    """A model with attention dropout is evaluated by what has none."""
    on_tpu(monkeypatch)
    q, k, v, _, ids = make_rows(2, 128)
    function = attend("splash", ids)
    np.testing.assert_allclose(function(q, k, v, None, None)[0], plain(q, k, v, ids)[0], atol=1e-5)
    with pytest.raises(BadInput, match="attention_dropout=0.1"):
        function(q, k, v, None, np.zeros(2, np.uint32))
    with pytest.raises(BadInput, match="biased"):
        function(q, k, v, np.zeros((1, HEADS, 128, 128)), None)
    monkeypatch.setattr(attention, "devices_of", lambda mesh=None: GPU)
    with pytest.raises(BadInput, match="sequences=3, only 1; dtype=float32"):
        attend("cudnn", ids, sequences=3)(q, k, v, None, None)


@needs_libtpu
@pytest.mark.parametrize(("name", "expected"), [("v5e:2x2", "splash"), ("v3:2x2", "xla")])
def test_a_plan_chooses_for_the_slice_and_not_for_this_machine(name, expected):
    keys = ("phases.main.length=512", "phases.main.sequences=4", "phases.main.predictions=80")
    settings = small_config("model.positions=512", "model.attention_dropout=0.0", *keys)
    (phase,) = configs.phases(settings)
    elsewhere, here = (build.make_mesh(settings, [phase], d) for d in (devices(name), None))
    assert attention.resolve(settings, phase, elsewhere) == expected
    assert attention.resolve(settings, phase, here) == "xla"


def test_every_phase_is_asked_before_anything_is_compiled(monkeypatch):
    on_tpu(monkeypatch)
    settings = small_config(*SETTINGS, "model.attention=splash", "phases.main.length=128")
    build.make_mesh(settings, configs.phases(settings))
    settings = small_config(*SETTINGS, "model.attention=splash", "phases.main.length=120")
    with pytest.raises(BadInput, match="phases.main.length=120"):
        build.make_mesh(settings, configs.phases(settings))


def test_pretrain_refuses_at_the_door(tmp_path, capsys):
    arguments = ["pretrain", "--config", "demo", "--workdir", str(tmp_path / "run")]
    arguments += ["--config.model.attention=splash", f"--config.store={tmp_path / 'store'}"]
    assert main.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bert-jax: config.model.attention=splash: cannot do cpu, only TPUs")
    assert not list(tmp_path.iterdir())


def test_a_run_of_other_devices_is_used_here(tmp_path):
    """And may go on elsewhere: nothing that is learnt depends on it."""
    _, vocabulary, _, _ = make_run(tmp_path / "run", "model.attention=splash")
    run = trained.open_run(tmp_path / "run")
    assert run.config.model.attention == "auto"
    outputs = jax.jit(run.objective.outputs)(run.params, run_batch(vocabulary))
    assert np.isfinite(outputs["mlm_logits"]).all()
    assert configs.may_change("model.attention") and not configs.may_change("model.heads")
