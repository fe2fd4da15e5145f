"""ELECTRA's objective: what is drawn, what counts as replaced, what is shared; its loss beside that of transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import ELECTRA, VOCABULARY, small_batch, small_config, small_objective, small_params

from bert_jax import config as configs
from bert_jax import prng
from bert_jax.convert.names import by_path
from bert_jax.errors import BadInput
from bert_jax.objectives import base, replaced_tokens


@pytest.fixture(scope="module")
def world():
    """(objective, parameters, a batch)."""
    objective = small_objective(*ELECTRA)
    return objective, small_params(objective), small_batch()


def draw(logits, rows, positions, key=7):
    """Draws tokens int32[B, P]. logits: float32[B, P, V]."""
    arrays = {"rows": np.asarray(rows), "masked_positions": np.asarray(positions, np.int32)}
    batch = base.with_keys(jax.tree.map(jnp.asarray, arrays), key)
    return np.asarray(replaced_tokens.sample(jnp.asarray(logits), batch))


def test_tokens_are_drawn_by_the_softmax():
    logits = np.log([0.5, 0.3, 0.15, 0.05]).astype(np.float32)
    positions = np.broadcast_to(np.arange(200), (200, 200))
    tokens = draw(np.broadcast_to(logits, (200, 200, 4)), np.arange(200), positions)
    shares = np.bincount(tokens.ravel(), minlength=4) / tokens.size
    # 4 standard deviations at least
    np.testing.assert_allclose(shares, np.exp(logits), atol=4 / 200)
    assert abs(np.corrcoef(tokens[:, :-1].ravel(), tokens[:, 1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(tokens[:-1].ravel(), tokens[1:].ravel())[0, 1]) < 0.03


def test_a_draw_follows_from_step_row_and_position():
    """In any order and batch."""
    logits = np.random.default_rng(0).normal(size=(1, 1, 50)).astype(np.float32)
    shape = (6, 9, 50)
    rows, positions = np.arange(6), np.broadcast_to(np.arange(9), (6, 9))
    tokens = draw(np.broadcast_to(logits, shape), rows, positions)
    part = draw(np.broadcast_to(logits, (2, 3, 50)), [5, 2], [[8, 0, 3]] * 2)
    np.testing.assert_array_equal(part, tokens[[5, 2]][:, [8, 0, 3]])
    other = draw(np.broadcast_to(logits, shape), rows, positions, key=8)
    assert (other != tokens).mean() > 0.5


def test_rows_of_an_evaluation_are_drawn_the_same_in_any_batch(world):
    objective, params, batch = world
    outputs = jax.jit(objective.outputs)
    whole = outputs(params, batch)
    half = outputs(params, {name: array[8:] for name, array in batch.items()})
    np.testing.assert_array_equal(half["samples"], whole["samples"][8:])


def test_the_discriminator_reads_the_samples_and_knows_what_they_replace(world):
    """A sample that is the original counts as original; what was left visible is drawn, too."""
    objective, params, batch = world
    bias = jnp.zeros(256).at[batch["masked_targets"][0, 0]].set(30.0)
    params = jax.tree.map(jnp.copy, params)
    params["generator"]["mlm"]["bias"] = bias
    outputs = jax.jit(objective.outputs)(params, batch)
    samples, is_replaced = np.asarray(outputs["samples"]), np.asarray(outputs["is_replaced"])
    expected = np.zeros_like(is_replaced)
    tokens = batch["tokens"].copy()
    for row, slot in np.argwhere(batch["masked_weights"] > 0):
        position, target = (batch[f"masked_{name}"][row, slot] for name in ("positions", "targets"))
        expected[row, position] = samples[row, slot] != target
        tokens[row, position] = samples[row, slot]
    np.testing.assert_array_equal(is_replaced, expected)
    assert not expected[0, batch["masked_positions"][0, 0]] and expected.any()
    seen = np.where(batch["masked_weights"] > 0, samples, batch["masked_targets"])
    copy = batch | {"masked_targets": seen.astype(np.int32)}
    network = objective.method(params, "discriminate")
    logits = jax.jit(network)(copy | {"tokens": tokens}, None)
    np.testing.assert_allclose(logits, outputs["replaced_logits"], atol=1e-6)


def test_the_loss_and_its_metrics_are_those_of_the_outputs(world):
    objective, params, batch = world
    batch = batch | {"row_weights": np.float32(np.arange(16) != 3)}
    batch["masked_weights"] = batch["masked_weights"] * batch["row_weights"][:, None]
    outputs = jax.device_get(jax.jit(objective.outputs)(params, batch))
    totals = objective.weights(batch)
    loss, metrics = objective.loss(params, batch, totals, prng.EVALUATION, train=False)
    logits, is_replaced = outputs["replaced_logits"], outputs["is_replaced"]
    is_real = (batch["sequence_ids"] > 0) & (batch["row_weights"][:, None] > 0)
    nats = np.logaddexp(0, np.where(is_replaced, -logits, logits))[is_real].mean()
    found = {name: total / weight for name, (total, weight) in metrics.items()}
    assert found["replaced_loss"] == pytest.approx(nats, rel=1e-5)
    right = (logits > 0) == is_replaced
    assert found["replaced_accuracy"] == pytest.approx(right[is_real].mean())
    assert found["replaced_share"] == pytest.approx(is_replaced[is_real].mean())
    assert found["replaced_recall"] == pytest.approx(right[is_real & is_replaced].mean())
    assert found["replaced_precision"] == pytest.approx(is_replaced[is_real & (logits > 0)].mean())
    assert float(loss) == pytest.approx(float(found["mlm_loss"]) + 50 * nats, rel=1e-5)


def gradients(objective, params, batch) -> dict:
    def loss(params):
        return objective.loss(params, batch, objective.weights(batch), 0, train=False)[0]

    return by_path(jax.device_get(jax.jit(jax.grad(loss))(params)))


def test_the_discriminator_gives_the_generator_no_gradient_but_both_train_the_embeddings(world):
    objective, params, batch = world
    of_both = gradients(objective, params, batch)
    of_generator = gradients(small_objective(*ELECTRA, "objective.weight=1e-12"), params, batch)
    for path, gradient in of_generator.items():
        if path.startswith("generator/"):
            np.testing.assert_allclose(of_both[path], gradient, rtol=1e-5, atol=1e-7)
        elif path.startswith(("network/embedder/", "network/embedder_norm/")):
            assert abs(gradient).max() > 1e-5 and abs(of_both[path] - gradient).max() > 1e-5, path
        else:
            assert abs(gradient).max() < 1e-9, path
            assert path.endswith("key/bias") or abs(of_both[path]).max() > 1e-6, path


def test_dropout_of_both_networks_differs(world):
    """Of the same weights: a generator as large as the discriminator."""
    keys = (*ELECTRA, "objective.generator=1", "model.dropout=0.5", "model.layers=1")
    objective = small_objective(*keys)
    params, batch = small_params(objective), small_batch()
    network = params["network"]
    copies = {name: network[name] for name in params["generator"]["network"]}
    params = params | {"generator": params["generator"] | {"network": copies}}
    is_dense = lambda module, name: (module.name, name) == ("embedder_dense", "__call__")  # noqa: E731
    capture = jax.jit(
        lambda params, batch: objective.capture(params, batch, is_dense, 3, train=True)
    )
    kept = capture(params, batch)[1]
    paths = sorted(path for path in kept if "embedder_dense" in path)
    generator, discriminator = (np.asarray(kept[path]) for path in paths)
    unchanged = np.ones(batch["tokens"].shape, bool)
    np.put_along_axis(unchanged, batch["masked_positions"], False, axis=1)
    unchanged &= batch["sequence_ids"] > 0
    assert (abs(generator - discriminator).max(axis=-1)[unchanged] > 1e-3).all()


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (["objective.generator=3"], "objective.generator=3: does not divide model.width=32"),
        (["objective.generator=0"], "objective.generator=0"),
        (["objective.weight=-1.0"], "objective.weight=-1.0"),
        (["task.pair_task=nsp"], "task.pair_task='nsp'"),
        (["mesh.tensor=2"], "mesh.tensor=2: does not divide 1 heads"),
        (["model.embedding_width=32"], "model.embedding_width=32"),
    ],
)
def test_what_does_not_fit_is_refused(keys, named):
    with pytest.raises(BadInput, match=named):
        configs.check(small_config(*ELECTRA, *keys))


def test_a_model_without_narrow_embeddings_is_refused():
    keys = ("objective.name=replaced_tokens", "task.pair_task=none")
    with pytest.raises(BadInput, match="objective.name='replaced_tokens'"):
        small_config(*keys)


# --- With PyTorch ---------------------------------------------------------------------------------


def of_transformers(config, tensors: dict, batch: dict, samples) -> tuple[dict, dict]:
    """Returns losses, and gradients by name, of transformers' classes in float64, with shared embeddings.

    tensors: {discriminator or generator: {name: array}}.
    """
    torch = pytest.importorskip("torch")
    import transformers

    def build(name: str, settings, end: str):
        keys = dict(
            vocab_size=VOCABULARY.size, hidden_dropout_prob=0, attention_probs_dropout_prob=0
        )
        keys |= {theirs: settings.model[ours] for theirs, ours in SIZES.items()}
        keys["embedding_size"] = settings.model.embedding_width or settings.model.width
        keys["intermediate_size"] = 4 * settings.model.width
        model = getattr(transformers, f"ElectraFor{end}")(transformers.ElectraConfig(**keys))
        state = {name: torch.tensor(array) for name, array in tensors[name].items()}
        missing = model.load_state_dict(state, strict=False)
        assert not missing.unexpected_keys
        assert {name.split(".")[-1] for name in missing.missing_keys} <= TIED
        model.tie_weights()
        return model.double().eval()

    discriminator = build("discriminator", config, "PreTraining")
    generator = build("generator", replaced_tokens.generator_config(config), "MaskedLM")
    embeddings = discriminator.electra.embeddings
    generator.electra.embeddings = embeddings
    generator.generator_lm_head.weight = embeddings.word_embeddings.weight
    inputs = {name: torch.tensor(batch[ours]).long() for name, ours in INPUTS.items()}
    inputs["attention_mask"] = inputs["attention_mask"].clamp(max=1)
    chosen = batch["masked_weights"] > 0
    labels = np.full(batch["tokens"].shape, -100)
    tokens, original = batch["tokens"].copy(), batch["tokens"].copy()
    for row, slot in np.argwhere(chosen):
        position = batch["masked_positions"][row, slot]
        original[row, position] = labels[row, position] = batch["masked_targets"][row, slot]
        tokens[row, position] = samples[row, slot]
    mlm_loss = generator(**inputs, labels=torch.tensor(labels)).loss
    inputs["input_ids"] = torch.tensor(tokens).long()
    replaced = torch.tensor(tokens != original).double()
    replaced_loss = discriminator(**inputs, labels=replaced).loss
    (mlm_loss + 50 * replaced_loss).backward()
    losses = {"mlm": mlm_loss.item(), "replaced": replaced_loss.item()}
    found = {}
    for name, model in (("generator", generator), ("discriminator", discriminator)):
        found[name] = {key: each.grad.numpy() for key, each in model.named_parameters()}
    return losses, found


SIZES = {"num_hidden_layers": "layers", "hidden_size": "width", "num_attention_heads": "heads"}
SIZES |= {"max_position_embeddings": "max_length", "type_vocab_size": "type_vocabulary"}
INPUTS = {"input_ids": "tokens", "attention_mask": "sequence_ids", "token_type_ids": "segments"}
TIED = {"position_ids", "token_type_ids", "weight", "bias"}


@pytest.mark.full
@pytest.mark.parametrize("keys", [[], ["model.embedding_width=0"], ["objective.generator=2"]])
def test_losses_and_gradients_equal_those_of_transformers(keys):
    """Of its two classes put together, given the samples."""
    from bert_jax.convert import names

    config = small_config(*ELECTRA, *keys)
    objective = base.make(config, VOCABULARY)
    params, batch = small_params(objective), small_batch()
    batch["segments"] = np.where(batch["sequence_ids"], batch["segments"], 0)
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + draw.normal(0, 0.1, x.shape).astype(np.float32), params)
    generator = replaced_tokens.generator_config(config)

    def to_theirs(tree, of_generator: bool = False) -> dict:
        settings, part = config, tree
        if of_generator:
            settings, part = generator, replaced_tokens.generator_params(tree)
        return names.tensors(part, settings, VOCABULARY.size, "huggingface")[1]

    samples = np.asarray(jax.jit(objective.outputs)(params, batch)["samples"])
    tensors = {"discriminator": to_theirs(params), "generator": to_theirs(params, True)}
    losses, expected = of_transformers(config, tensors, batch, samples)

    def loss(params):
        totals = objective.weights(batch)
        return objective.loss(params, batch, totals, jnp.uint32(prng.EVALUATION), train=False)

    (value, metrics), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    for name, theirs in losses.items():
        total, weight = metrics[f"{name}_loss"]
        assert total / weight == pytest.approx(theirs, rel=1e-5)
    value, expected_value = float(value), losses["mlm"] + 50 * losses["replaced"]
    assert value == pytest.approx(expected_value, rel=1e-5)
    ours = {"discriminator": to_theirs(gradient), "generator": to_theirs(gradient, True)}
    worst = 0.0
    for name, arrays in ours.items():
        assert len(arrays) > 20
        for key, array in arrays.items():
            theirs = expected[name][key]
            scale = max(abs(theirs).max(), 1e-3)
            worst = max(worst, abs(array - theirs).max() / scale)
    print(f"loss {abs(value / expected_value - 1):.1e}, gradients {worst:.1e}")
    assert worst < 1e-4
