"""Classification of tokens and multiple choice: losses, rows cut to several lengths, the models of transformers."""

import jax
import numpy as np
import pytest
from kits import labelled
from kits.labelled import LENGTH, WORDS
from scipy.special import log_softmax

from bert_jax.convert import load_model
from bert_jax.data import stream
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture(scope="module", params=["ner", "swag"])
def world(request, tmp_path_factory):
    """(config, store, dataset, phase) of rows of many sizes."""
    directory, draw = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    model = labelled.start(directory)
    if request.param == "ner":
        for name in ("train.txt", "dev.txt"):
            labelled.write_entities(directory / name, 24, seed=0)
    else:
        keys = "sent1 sent2 ending0 ending1 ending2 ending3".split()
        sizes = np.repeat(np.arange(24) // 6 + 1, len(keys))
        texts = (" ".join(draw.choice(WORDS[:50], size)) for size in sizes)
        columns = "\t".join([*keys, "label"])
        rows = ("\t".join([*(next(texts) for _ in keys), str(draw.integers(4))]) for _ in range(24))
        table = "\n".join([columns, *rows])
        for name in ("train.tsv", "dev.tsv"):
            (directory / name).write_text(table)
    files = {} if request.param == "ner" else {"task.train": "train.tsv", "task.dev": "dev.tsv"}
    places = labelled.places(model, directory)
    return labelled.resolve(labelled.load(request.param, places, **files))


def test_the_loss_is_the_mean_cross_entropy(world):
    """Over labelled pieces, or rows."""
    config, store, dataset, phase = world
    _, batch = labelled.batch_of(dataset, phase)
    objective, params = labelled.random_params(config, store, batch)
    weights = objective.weights(batch)
    loss = jax.jit(objective.loss, static_argnames="train")
    scalar, metrics = loss(params, batch, weights, np.uint32(0), train=False)
    logits = np.asarray(jax.jit(objective.outputs)(params, batch)["label_logits"], np.float64)
    used, targets = batch["label_weights"] > 0, batch["targets"]
    logits = logits if targets.ndim == 2 else logits[..., 0]
    nats = -np.take_along_axis(log_softmax(logits, axis=-1), targets[..., None], -1)[..., 0]
    assert float(scalar) == pytest.approx(nats[used].mean(), rel=1e-5)
    assert weights["label"] == metrics["label_loss"][1] == used.sum()


def test_a_row_has_the_same_logits_in_a_batch_of_any_length(world):
    config, store, dataset, phase = world
    rows, batch = labelled.batch_of(dataset, phase)
    objective, params = labelled.random_params(config, store, batch)
    run = jax.jit(objective.outputs)
    whole = np.asarray(run(params, batch)["label_logits"])
    evaluation = stream.Evaluation(dataset, phase, "train", len(rows), 8)
    lengths, places = set(), evaluation.places()
    for number, part in enumerate(evaluation):
        lengths.add(part["tokens"].shape[1])
        found = np.asarray(run(params, part)["label_logits"])
        expected = whole[places[8 * number :][:8]]
        real = part["sequence_ids"] > 0
        if config.task.name == "entities":
            found, expected = found[real], expected[:, : real.shape[1]][real]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert len(lengths) > 1 and max(lengths) <= phase.length


@pytest.mark.full
def test_logits_equal_those_of_transformers(world, tmp_path):
    """The encoder of a model of transformers is imported; its classifier is `label`."""
    torch = pytest.importorskip("torch")
    import transformers

    config, store, dataset, phase = world
    tokenizer = tokenizers.load(store.path / "tokenizer")
    is_choice = config.task.name == "choice"
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    settings = transformers.BertConfig(
        **sizes,
        vocab_size=tokenizer.size,
        max_position_embeddings=128,
        initializer_range=0.2,
        num_labels=len(config.task.labels),
    )
    kind = "MultipleChoice" if is_choice else "TokenClassification"
    torch.manual_seed(0)
    theirs = getattr(transformers, f"BertFor{kind}")(settings).eval()
    theirs.bert.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in tokenizer.pieces))
    _, batch = labelled.batch_of(dataset, phase)
    tokens, segments, sequences = (batch[name] for name in ("tokens", "segments", "sequence_ids"))
    masks = sequences > 0
    if is_choice:  # theirs has one sequence in each row
        at = [[np.flatnonzero(row == ending + 1) for ending in range(4)] for row in sequences]
        masks = np.array([[np.arange(LENGTH) < len(ids) for ids in row] for row in at])
        places = np.array([[np.pad(ids, (0, LENGTH - len(ids))) for ids in row] for row in at])
        tokens, segments = (
            np.take_along_axis(array[:, None], places, 2) * masks for array in (tokens, segments)
        )
    inputs = dict(input_ids=tokens, token_type_ids=segments, attention_mask=masks)
    with torch.no_grad():
        inputs = {name: torch.from_numpy(array.astype(np.int64)) for name, array in inputs.items()}
        expected = theirs(**inputs).logits.numpy()
    imported = load_model.open_model(tmp_path, ["dtype=float32"])
    names = set(imported.config.model) & set(config.model)
    changed = config.copy_and_resolve_references()
    changed.model.update({name: imported.config.model[name] for name in names})
    objective, _ = labelled.random_params(changed, store, batch)
    label = {name: array.detach().numpy().T for name, array in theirs.classifier.named_parameters()}
    label = {"kernel": label["weight"], "bias": label["bias"]}
    encoder = imported.params["encoder"]
    params = {"encoder": encoder, "label": label}
    found = jax.jit(objective.outputs)(params, batch)["label_logits"]
    found = np.asarray(found)
    found, expected = (found[..., 0], expected) if is_choice else (found[masks], expected[masks])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert np.abs(expected).max() > 0.1
