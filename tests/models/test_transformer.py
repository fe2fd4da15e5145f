"""The Transformer: packed pairs, padding, decoding with the cache, and transformers' MarianMTModel as the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import pairs_of_texts as kit
from kits.small import VOCABULARY, small_config

from bert_jax.convert import names, to_huggingface
from bert_jax.errors import BadInput
from bert_jax.layers.positions import sinusoids
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.runs import run_info

KEYS = (
    "model.name=transformer",
    "objective.name=translation",
    "model.layers=2",
    "model.decoder_layers=2",
    "model.feed_forward=48",
    "model.initializer=0.3",
    "model.dropout=0.0",
)
PAIRS = kit.draw_pairs(VOCABULARY.size)
ALONE = kit.make_batch(PAIRS, packed=1, length=10)


def make(*overrides):
    """Returns an objective and its parameters, which have no zeros and ones."""
    objective = base.make(small_config(*KEYS, *overrides), VOCABULARY)
    params = jax.jit(objective.init)(jax.random.key(0), ALONE)
    draw = np.random.default_rng(0)
    return objective, jax.tree.map(
        lambda x: x + draw.normal(0, 0.1, x.shape).astype(x.dtype), params
    )


def logits_of(objective, params, batch):
    call = objective.module.apply
    return np.asarray(jax.jit(call)({"params": params}, batch, None)["target_logits"])


def learn(objective, params, batch):
    def total(params, batch):
        totals = objective.weights(batch)
        return objective.loss(params, batch, totals, jnp.uint32(0), train=False)[0]

    return jax.device_get(jax.jit(jax.value_and_grad(total))(params, batch))


@pytest.mark.parametrize(
    "keys, size", [((*KEYS, "model.decoder_layers=3"), "2 + 3 x 32,"), ((), "2 x 32,")]
)
def test_the_log_names_the_blocks_of_both_parts(keys, size):
    phase = {"rows_per_device": 16, "micro_batches": 1, "attention": "xla"}
    info = {"parameters": 9, "devices": ["cpu"], "unigram_entropy": 3.5, "phases": {"main": phase}}
    info |= {"deterministic": False, "optimizer_bytes_per_parameter": 8.0}
    head = run_info.describe(small_config(*keys), info | {"vocabulary": VOCABULARY._asdict()})
    assert size in head.splitlines()[0]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_packed_pairs_are_those_of_rows_of_their_own(norm):
    """Logits, loss and gradients."""
    objective, params = make(f"model.norm={norm}")
    packed = kit.make_batch(PAIRS, packed=3, length=24)
    together, alone = (logits_of(objective, params, batch) for batch in (packed, ALONE))
    together = together[packed["target_sequence_ids"] > 0]
    np.testing.assert_allclose(together, alone[ALONE["target_sequence_ids"] > 0], atol=2e-5)
    (one, gradients), (other, others) = (
        learn(objective, params, batch) for batch in (packed, ALONE)
    )
    assert one == pytest.approx(other, rel=1e-6)
    for left, right in zip(jax.tree.leaves(gradients), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5 * np.abs(right).max() + 1e-6)


def test_smoothing_is_over_the_pieces_of_the_vocabulary():
    objective, params = make("objective.label_smoothing=0.3")
    logits = np.float64(logits_of(objective, params, ALONE)[..., : VOCABULARY.size])
    nats = np.log(np.exp(logits).sum(axis=-1, keepdims=True)) - logits
    terms = []
    for row, ids in enumerate(ALONE["target_sequence_ids"]):
        for place in range((ids > 0).sum() - 1):
            target = ALONE["target_tokens"][row, place + 1]
            terms.append(0.7 * nats[row, place, target] + 0.3 * nats[row, place].mean())
    loss, _ = learn(objective, params, ALONE)
    assert loss == pytest.approx(np.mean(terms), rel=1e-6)


def test_padding_of_the_source_and_later_tokens_change_nothing():
    objective, params = make()
    expected = logits_of(objective, params, ALONE)
    changed = {name: array.copy() for name, array in ALONE.items()}
    changed["tokens"][changed["sequence_ids"] == 0] = 77
    changed["target_tokens"][:, 4:] = 78
    actual = logits_of(objective, params, changed)
    is_real = ALONE["target_sequence_ids"] > 0
    is_early = is_real & (np.arange(is_real.shape[1]) < 4)
    np.testing.assert_array_equal(actual[is_early], expected[is_early])
    assert np.abs(actual - expected)[is_real & ~is_early].max() > 0.1


def test_the_order_of_a_source_without_positions_does_not_matter():
    objective, params = make()
    batch = ALONE | {"positions": np.zeros_like(ALONE["positions"])}
    shuffled = {name: array.copy() for name, array in batch.items()}
    for row, ids in enumerate(batch["sequence_ids"]):
        size = (ids > 0).sum()
        shuffled["tokens"][row, :size] = batch["tokens"][row, :size][::-1]
    actual, expected = (logits_of(objective, params, each) for each in (shuffled, batch))
    is_real = batch["target_sequence_ids"] > 0
    np.testing.assert_allclose(actual[is_real], expected[is_real], atol=2e-5)


def test_greedy_translations_are_those_without_a_cache():
    objective, params = make()
    outputs = jax.jit(objective.outputs)(params, ALONE)
    tokens = outputs["translations"][:, 0]
    rows = len(tokens)
    length = 8
    target = np.concatenate([np.full((rows, 1), kit.BEGIN), tokens[:, : length - 1]], axis=1)
    whole = ALONE | {
        "target_tokens": target.astype(np.int32),
        "target_positions": np.broadcast_to(np.arange(length, dtype=np.int32), target.shape),
        "target_sequence_ids": np.ones_like(target, np.int32),
    }
    best = logits_of(objective, params, whole).argmax(axis=-1)
    for row in range(rows):
        size = min(length, outputs["lengths"][row, 0])
        np.testing.assert_array_equal(tokens[row, :size], best[row, :size])


@pytest.mark.slow
def test_translations_end_at_their_limit():
    """task.extra_pieces more than the source, or else at the model's positions; the outputs say which ended there."""
    objective, params = make("model.max_length=32")
    long = jax.device_get(jax.jit(objective.outputs)(params, ALONE))
    keys = "task.name=translation", "task.max_pieces=8", "task.extra_pieces=3"
    objective = base.make(small_config(*KEYS, *keys), VOCABULARY)
    short = jax.device_get(jax.jit(objective.outputs)(params, ALONE))
    limits = (ALONE["sequence_ids"] > 0).sum(axis=1) + 3
    for outputs, most in ((short, limits), (long, np.full(len(limits), 32))):
        for row, limit in enumerate(most):
            tokens = outputs["translations"][row, 0]
            length = outputs["lengths"][row, 0]
            assert np.array_equal(tokens[:length], long["translations"][row, 0, :length])
            assert length == limit or tokens[length - 1] == kit.END
            assert outputs["is_cut"][row] == (tokens[length - 1] != kit.END)
    assert short["is_cut"].any()


def test_positions_are_interleaved_sines_and_cosines():
    waves = sinusoids(jnp.arange(3), 6)
    for position in range(3):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            expected = [np.sin(angle), np.cos(angle)]
            np.testing.assert_allclose(
                waves[position, 2 * pair : 2 * pair + 2], expected, atol=1e-6
            )


def test_translation_needs_a_decoder():
    with pytest.raises(BadInput, match="model.name='bert'"):
        base.make(small_config("objective.name=translation"), VOCABULARY)


@pytest.mark.parametrize("objective", ["mlm", "causal_lm"])
def test_a_decoder_needs_pairs(objective):
    with pytest.raises(BadInput, match=f"objective.name='{objective}'"):
        small_config("model.name=transformer", f"objective.name={objective}")


def test_the_base_model_has_the_parameters_of_the_paper():
    """65 million with 37,000 pieces, of which the encoder's blocks have 19 million (table 3)."""
    keys = [
        f"model.{key}={value}" for key, value in dict(width=512, heads=8, max_length=512).items()
    ]
    keys += ["model.layers=6", "model.decoder_layers=6", "model.feed_forward=2048"]
    config = small_config("model.name=transformer", "objective.name=translation", *keys)
    objective = base.make(config, VOCABULARY._replace(size=37_000))
    params = jax.eval_shape(objective.init, jax.random.key(0), ALONE)
    assert models.body(config) == ("network/encoder", "network/decoder")
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert size == pytest.approx(63e6, rel=0.01)
    blocks = params["network"]["encoder"]
    del blocks["embedder"]
    assert sum(leaf.size for leaf in jax.tree.leaves(blocks)) == pytest.approx(19e6, rel=0.01)


@pytest.mark.full
def test_logits_loss_and_gradients_are_those_of_marian():
    """The weights and settings of an export in PyTorch, by float64."""
    torch = pytest.importorskip("torch")
    from transformers import MarianConfig, MarianMTModel

    keys = (*KEYS, "objective.label_smoothing=0.1")
    objective, params = make("objective.label_smoothing=0.1")
    config = small_config(*keys)
    settings = to_huggingface.config_json(config, VOCABULARY, [])
    model = MarianMTModel(MarianConfig(**settings)).double().eval()

    def convert(tree) -> dict:
        return names.tensors(tree, config, VOCABULARY.size, "huggingface")[1]

    state = model.state_dict()
    with torch.no_grad():
        for name, array in convert(params).items():
            state[name].copy_(torch.tensor(array))
    is_real = torch.tensor(ALONE["target_sequence_ids"] > 0)
    target = torch.tensor(ALONE["target_tokens"]).long()
    theirs = model(
        input_ids=torch.tensor(ALONE["tokens"]).long(),
        attention_mask=torch.tensor(ALONE["sequence_ids"] > 0).long(),
        decoder_input_ids=target,
        decoder_attention_mask=is_real.long(),
    ).logits
    ours = logits_of(objective, params, ALONE)[..., : VOCABULARY.size]
    np.testing.assert_allclose(ours[is_real.numpy()], theirs[is_real].detach(), atol=2e-5)
    is_followed = is_real[:, 1:]
    loss = torch.nn.functional.cross_entropy(
        theirs[:, :-1][is_followed], target[:, 1:][is_followed], label_smoothing=0.1
    )
    loss.backward()
    value, gradients = learn(objective, params, ALONE)
    assert value == pytest.approx(loss.item(), rel=1e-6)
    gradients = convert(gradients)
    parameters = dict(model.named_parameters())
    assert gradients.keys() == {name for name in parameters if "positions" not in name}
    for name, actual in gradients.items():
        expected = parameters[name].grad.numpy()
        # That of a key's bias is 0 but for rounding: it changes all scores of a query alike.
        tolerance = 1e-6 if name.endswith("k_proj.bias") else 1e-4 * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance, err_msg=name)
