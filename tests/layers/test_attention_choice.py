"""The choice of an attention implementation: which cases each supports, and what `auto` chooses."""

from functools import partial

import jax
import numpy as np
import pytest
from kits.attention import GPU, SETTINGS, TPU, attend, make_rows, on_tpu, plain
from kits.malformed_inputs import refused
from kits.runs import make_run, run_batch
from kits.slices import devices, needs_libtpu
from kits.small import MODERN, VOCABULARY, loss_of, mesh_of, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.layers import attention, attention_splash
from bert_jax.layers.attention import Case
from bert_jax.layers.attention_spec import OTHER_KEYS, OWN_WEIGHTS, Spec
from bert_jax.objectives import base as objectives
from bert_jax.parallel.cards import CARDS
from bert_jax.runs import continuation
from bert_jax.tasks import base as tasks

ABLE = {
    "fused": (Spec("fused", 64, dropout=0.1, sequences=1), Case(*TPU, 512, 4, "bfloat16")),
    "splash": (Spec("splash", 64, sequences=1), Case(*TPU, 2048, 4, "bfloat16")),
    "cudnn": (Spec("cudnn", 64, sequences=1), Case(*GPU, 512, 4, "bfloat16")),
}
REFUSALS = [
    ("fused", dict(kernels=(), device="cpu"), "cpu"),
    ("fused", dict(length=1152), "phases.main.length=1152"),
    ("fused", dict(head_size=96), "model.width/model.heads=96"),
    ("fused", dict(heads=3), "192"),
    ("fused", dict(properties=(OTHER_KEYS,), keys=1), OTHER_KEYS),
    ("splash", dict(properties=(OTHER_KEYS,), keys=2048), OTHER_KEYS),
    ("splash", dict(length=100), "phases.main.length=100"),
    ("splash", dict(dropout=0.1), "model.attention_dropout=0.1"),
    ("cudnn", dict(kernels=("splash",), device="TPU v4"), "TPU v4"),
    ("cudnn", dict(dtype="float32"), "dtype=float32"),
    ("cudnn", dict(length=101), "phases.main.length=101"),
    ("cudnn", dict(head_size=136), "model.width/model.heads=136"),
    *[(name, dict(properties=("a bias",)), "a bias") for name in ABLE],
]


def change(name, changes, implementation=None):
    """Returns the Spec and the Case that a kernel supports, with changes of fields of either."""
    spec, case = (
        part._replace(**{key: changes[key] for key in changes if key in part._fields})
        for part in ABLE[name]
    )
    return spec._replace(implementation=implementation or name), case


@pytest.mark.parametrize(("name", "changes", "words"), REFUSALS)
def test_unsupported_cases_are_refused_and_never_chosen(name, changes, words):
    for implementation in (name, "auto"):
        assert attention.choose(*change(name, {}, implementation)) == name
    with pytest.raises(BadInput, match=f"config.model.attention={name}.*{words}"):
        attention.choose(*change(name, changes), "phases.main.")
    assert attention.choose(*change(name, changes, "xla")) == "xla"
    if name in changes.get("kernels", (name,)):
        assert attention.choose(*change(name, changes, "auto")) == "xla"


@pytest.mark.parametrize(
    ("name", "changes", "chosen"),
    [
        ("fused", dict(length=256), "fused"),
        ("fused", dict(length=128), "xla"),
        ("fused", dict(properties=(OTHER_KEYS,), keys=512), "fused"),
        ("fused", dict(length=8192, window=128, dropout=0.0), "fused"),
        ("splash", dict(length=384, heads=3), "splash"),
        ("splash", dict(length=8192 + 128, window=128), "splash"),
        ("splash", dict(length=256, heads=3), "xla"),
        ("splash", dict(sequences=5, dtype="float32", head_size=66), "splash"),
        ("cudnn", dict(length=100), "cudnn"),
        ("cudnn", dict(sequences=5, length=128), "cudnn"),
        ("cudnn", dict(sequences=5, length=8192), "cudnn"),
        ("cudnn", dict(window=128, length=1024), "cudnn"),
        ("cudnn", dict(window=128, length=1026), "xla"),
        ("cudnn", dict(window=512, length=2048), "cudnn"),
    ],
)
def test_auto_chooses_the_fastest_supported_kernel(name, changes, chosen):
    assert attention.choose(*change(name, changes, "auto")) == chosen


def test_xla_computes_local_layers_of_long_rows_instead_of_cudnn():
    assert attention.choose(*change("cudnn", dict(window=128, length=1026))) == "xla"


@pytest.mark.parametrize("flag", ["deterministic_ops", "exclude_nondeterministic_ops"])
@pytest.mark.parametrize("card", ["a100", "rtx4090", "h100", "b200"])
def test_deterministic_operations_of_some_cards_lack_the_gradient_of_a_mask(
    monkeypatch, card, flag
):
    kind = CARDS[card].device_kind

    def is_refused(**changes):
        spec, case = change("cudnn", dict(device=kind) | changes)
        return bool(list(attention.refusals("cudnn", spec, case)))

    assert not is_refused(sequences=8)
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_{flag}=false")
    assert not is_refused(sequences=8)
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_{flag} --xla_other=1")
    assert not is_refused()
    assert is_refused(sequences=8) == is_refused(window=128) == (card == "b200")


def test_blocks_of_splash_divide_every_row():
    for length in range(128, 8193, 128):
        sizes = attention_splash.block_sizes(length, window=0)
        assert length % sizes.block_kv_dkv == sizes.block_kv_dkv % sizes.block_kv_dkv_compute == 0


def test_the_dropout_of_the_program_decides_not_the_config(monkeypatch):
    """A model with attention dropout can be evaluated by a kernel without dropout."""
    on_tpu(monkeypatch)
    q, k, v, _, ids = make_rows(2, 128)
    function = attend("splash", ids)
    np.testing.assert_allclose(function(q, k, v, None)[0], plain(q, k, v, ids)[0], atol=1e-5)
    with pytest.raises(BadInput, match="attention_dropout=0.1"):
        function(q, k, v, np.zeros(2, np.uint32))


TRANSLATION = ("model.name=transformer", "model.decoder_layers=1", "objective.name=translation")
TRANSLATION += ("task.name=translation",)
LOCAL = ("model.layers=2", "model.full_every=2", "task.pair_task=none")
SYSTEMS = [
    ((), 512, "fused"),
    (("model.attention_dropout=0.0",), 2048, "splash"),
    ((*MODERN, *LOCAL), 2048, "splash and fused"),
    (TRANSLATION, 512, "fused and fused and fused"),
    (TRANSLATION, 2048, "splash and splash and xla"),
    ((*TRANSLATION, "model.attention=splash"), 512, "splash and splash and fused"),
    ((*TRANSLATION, "model.attention=xla"), 512, "xla and xla and xla"),
    (("model.name=external.sparse",), 512, "xla"),
]


@pytest.mark.parametrize(("changes", "length", "expected"), SYSTEMS)
def test_what_is_reported_is_what_attends(monkeypatch, changes, length, expected):
    """To the masks of a model: keys of another sequence, a mask of pairs."""
    on_tpu(monkeypatch)
    names = []

    def record(name, spec, mask, q, *others):
        names.append(name)
        return q

    for name in attention.IMPLEMENTATIONS:
        monkeypatch.setitem(attention.IMPLEMENTATIONS, name, partial(record, name))
    keys = [f"phases.main.length={length}", f"model.max_length={length}", "model.layers=1"]
    config = small_config(*keys, "model.width=128", "model.heads=2", *changes)
    (phase,) = configs.phases(config)
    assert tasks.attention(config, phase, mesh_of((1, 1, 1))) == expected
    objective = objectives.make(config, VOCABULARY)
    batch = tasks.make(config).shapes(phase, 2)
    params = jax.eval_shape(objective.init, jax.random.key(0), batch)
    names.clear()
    jax.eval_shape(loss_of(objective), params, batch)
    assert expected == " and ".join(names)


def test_an_attention_of_its_own_has_no_kernel(monkeypatch):
    on_tpu(monkeypatch)
    keys = ["model.name=external.disentangled", "task.pair_task=none", "model.width=128"]
    keys += ["model.heads=2", "model.max_length=512", "phases.main.length=512"]
    for name, expected in (("auto", "xla"), ("fused", None)):
        config = small_config(*keys, f"model.attention={name}")
        (phase,) = configs.phases(config)
        resolve = partial(tasks.attention, config, phase, mesh_of((1, 1, 1)))
        if expected:
            assert resolve() == expected
        else:
            with pytest.raises(BadInput, match=OWN_WEIGHTS):
                resolve()


@needs_libtpu
@pytest.mark.parametrize(("name", "expected"), [("v5e:2x2", "splash"), ("v3:2x2", "xla")])
def test_a_plan_chooses_for_the_slice_and_not_for_this_machine(name, expected):
    keys = ("phases.main.length=512", "phases.main.max_packed=4", "phases.main.max_predictions=80")
    settings = small_config("model.max_length=512", "model.attention_dropout=0.0", *keys)
    (phase,) = configs.phases(settings)
    elsewhere, here = (build.make_mesh(settings, [phase], d) for d in (devices(name), None))
    assert tasks.attention(settings, phase, elsewhere) == expected
    assert tasks.attention(settings, phase, here) == "xla"


def test_every_phase_is_checked_before_anything_is_compiled(monkeypatch, tmp_path):
    arguments = ["pretrain", "--config", "demo", "--workdir", str(tmp_path / "run")]
    arguments += ["--config.model.attention=splash", f"--config.store={tmp_path / 'store'}"]
    assert "config.model.attention=splash" in refused(*arguments)
    assert not list(tmp_path.iterdir())
    on_tpu(monkeypatch)
    settings = small_config(*SETTINGS, "model.attention=splash", "phases.main.length=120")
    with pytest.raises(BadInput, match="phases.main.length=120"):
        build.make_mesh(settings, configs.phases(settings))


@pytest.mark.slow
def test_a_run_of_other_devices_can_be_opened_on_this_one(tmp_path):
    """And may be resumed on others: the parameters do not depend on the implementation, but for rounding."""
    _, vocabulary, _, _ = make_run(tmp_path / "run", "model.attention=splash")
    run = open_model.open_model(tmp_path / "run")
    assert run.config.model.attention == "auto"
    outputs = jax.jit(run.objective.outputs)(run.params, run_batch(vocabulary))
    assert np.isfinite(outputs["mlm_logits"]).all()
    assert continuation.may_change("model.attention") and not continuation.may_change("model.heads")
