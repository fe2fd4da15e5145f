"""Fine-tuning as GPT: a causal model with one special token gets others, and learns; and ULMFiT's three steps."""

import json

import jax
import numpy as np
import pytest
from kits import corpora, labelled, runs
from kits.labelled import tokenizer as wordpiece
from kits.malformed_inputs import refused
from kits.runs import assert_same_bits, lines, params
from kits.small import SMALL, overrides
from kits.vocabularies import gpt2_like, make_model, save_and_open

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import vocabulary_extension
from bert_jax.errors import BadInput
from bert_jax.inference import predict
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import ALL
from bert_jax.train import pretrain

LM = ("objective.name=causal_lm", "task.name=token_blocks")
GPT = {"tokenizer.add_special": True, "objective.lm_weight": 0.5}


def open_gpt2(directory):
    gpt2_like().save(str(directory / "tokenizer.json"))
    return tokenizers.from_file(directory / "tokenizer.json", True)


@pytest.mark.parametrize(
    "make, new",
    [
        (open_gpt2, ["pad", "cls", "sep"]),
        (lambda path: save_and_open(path, make_model()), ["pad"]),
        (lambda path: save_and_open(path, make_model(bos_id=-1)), ["pad", "cls"]),
        (lambda path: wordpiece(), []),
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_special_tokens_get_pieces_of_their_own(tmp_path, make, new, is_causal):
    before = make(tmp_path)
    after = vocabulary_extension.with_special(before, is_causal)
    if is_causal:
        new = [*new, "end"]
    assert after.pieces == [*before.pieces, *(ALL[name] for name in new)]
    ids = range(before.size, after.size)
    assert after.special == before.special | dict(zip(new, ids, strict=True))
    assert after.cls != after.sep and (new or after is before)
    texts = ["the quick [CLS] fox", "[SEP]", "of an [END]", "", *labelled.texts(20)]
    assert after.encode(texts) == before.encode(texts)
    after.save(tmp_path / "saved")
    saved = tokenizers.load(tmp_path / "saved")
    assert (saved.fingerprint, saved.special) == (after.fingerprint, after.special)
    assert vocabulary_extension.with_special(saved, is_causal) is saved


def test_a_piece_of_text_is_no_special_token(tmp_path):
    """An added token of another program."""
    library = gpt2_like()
    library.add_tokens(["[END]"])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizers.from_file(tmp_path / "tokenizer.json", True)
    assert "end" not in tokenizer.special
    (ids,) = tokenizer.encode(["the [END]"])
    assert ids[-1] == tokenizer.size - 1
    with pytest.raises(BadInput, match=r"tokenizer.add_special=True.*\[END\]"):
        vocabulary_extension.with_special(tokenizer, True)


@pytest.fixture(scope="module", params=["gpt", pytest.param("bert", marks=pytest.mark.full)])
def source(request, tmp_path_factory):
    """(directory, parameters) of a causal LM with a vocabulary like GPT-2's."""
    directory = tmp_path_factory.mktemp(request.param)
    words = open_gpt2(directory)
    keys = f"model.name={request.param}", "model.layers=1", *LM
    *_, params = runs.make_run(directory / "run", *keys, words=words)
    return directory / "run", params


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    runs.use_devices(monkeypatch, 1)


def tune(source, directory, **changes) -> dict:
    """Fine-tunes on texts that are short or long; returns the last line of the log."""
    data = labelled.sentences(directory / "data")
    keys = labelled.places(source, data) | GPT | changes
    return labelled.tune(labelled.load("glue:sst2", keys), directory / "run")


@pytest.mark.slow
def test_a_run_starts_with_the_body_and_fresh_rows_for_new_pieces(source, tmp_path):
    run, before = source
    keys = {"optimizer.learning_rate": 0.0, "optimizer.weight_decay": 0.0, "task.epochs": 0.1}
    keys["phases.main.length"] = 8
    tune(run, tmp_path, **keys)
    after = params(tmp_path / "run")
    words = after["network"]["embedder"].pop("words")
    old = np.asarray(before["network"]["embedder"]["words"])[:501]
    np.testing.assert_array_equal(words[:501], old)
    new = words[501:505]
    assert 0.01 < new.std() < 0.04 and not words[505:].any()
    expected = before["network"] | {"embedder": dict(before["network"]["embedder"])}
    del expected["embedder"]["words"]
    expected.pop("pooler", None)
    assert_same_bits(after["network"], expected)
    saved = json.loads((tmp_path / "run/config.json").read_text())
    assert saved["objective"]["causal"] is True


def label_logits(directory, texts: list[str]) -> np.ndarray:
    """Returns the logits of the run in a directory, by the vectors of `features`."""
    (directory / "lines.txt").write_text("\n".join(texts))
    paths = {"--model": "run", "--input": "lines.txt", "--output": "vectors.npy"}
    options = [f"{key}={directory / name}" for key, name in paths.items()]
    assert main(["features", *options, "--pool", "summary"]) == 0
    head = params(directory / "run")["label"]
    return np.load(directory / "vectors.npy") @ head["kernel"] + head["bias"]


@pytest.mark.slow
def test_it_learns_texts_and_labels(source, tmp_path):
    """`predict` and `features` give what the evaluation has; another start is that of a fine-tuned run."""
    last = tune(source[0], tmp_path)
    train = [line for line in lines(tmp_path / "run") if line["split"] == "train"]
    assert last["accuracy"] > 0.9 and train[-1]["lm_loss"] < train[0]["lm_loss"] - 1
    found, scores = predict.predict(tmp_path / "run", tmp_path / "data/dev.tsv")
    assert scores["accuracy"] == last["accuracy"] and len(found) == 40
    logits = label_logits(tmp_path, labelled.texts(40, 1))
    expected = [row["probabilities"]["short"] for row in found]
    np.testing.assert_allclose(jax.nn.softmax(logits)[:, 1], expected, rtol=0, atol=1e-5)
    config = labelled.load("glue:sst2", labelled.places(tmp_path / "run", tmp_path / "data"))
    resolved, *_ = labelled.resolve(config)
    assert resolved.objective.causal


def test_a_vocabulary_without_padding_names_the_key(source, tmp_path):
    data = labelled.sentences(tmp_path / "data")
    command = labelled.command(labelled.places(source[0], data), tmp_path / "run")
    assert "tokenizer.add_special=True" in refused(*command)


# --- ULMFiT ---------------------------------------------------------------------------------------

SUBJECTS = corpora.WORDS[:9], corpora.WORDS[9:18]  # words of the texts with each label
MASK = 4  # a piece that no text has: without a language model, a classifier does not train its embedding


def train_lm(directory, texts, **changes):
    """Pretrains on texts; returns the embeddings. The loss of the training rows falls."""
    keys = {key: value for key, value in SMALL.items() if "max_predictions" not in key}
    keys |= {"corpus.source": corpora.write(directory / "corpus.txt", texts)}
    keys |= {"store": directory / "store", "model.name": "gpt", "evaluate.every": 20}
    config = configs.load("demo", [*LM, *overrides(keys | changes)])
    assert pretrain(config, directory / "run") == 0
    losses = [line["loss"] for line in lines(directory / "run") if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.05
    return params(directory / "run")["network"]["embedder"]["words"]


@pytest.mark.full
def test_the_three_steps_of_ulmfit(tmp_path):
    """Each starts from the body of the one before."""
    general, task, classifier = (tmp_path / name for name in ("general", "task", "classifier"))
    data = classifier / "data"
    data.mkdir(parents=True)
    texts = []
    for seed, name in enumerate(("dev", "train")):
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 2, 160)
        texts = [" ".join(draw.choice(SUBJECTS[label], 6)) for label in labels]
        labelled.write_tsv(data / f"{name}.tsv", zip(texts, labels, strict=True))
    first = train_lm(general, corpora.make_text(60))
    vocabulary = general / "store/tokenizer/vocab.txt"
    keys = {"init_from": general / "run", "tokenizer.path": vocabulary}
    second = train_lm(task, texts, **keys)
    keys = labelled.places(task / "run", data) | {"objective.pool": "concat", "task.epochs": 0.0}
    keys |= {"schedule.name": "slanted", "schedule.warmup": 5, "phases.main.steps": 60}
    keys |= {"optimizer.layer_decay": 0.385, "optimizer.unfreeze_every": 5, "log.every": 20}
    keys |= {"optimizer.learning_rate": 3e-2, "optimizer.weight_decay": 0.0}
    keys |= {"phases.main.length": 16}
    last = labelled.tune(labelled.load("glue:sst2", keys), classifier / "run")
    words = params(classifier / "run")["network"]["embedder"]["words"]
    assert (words[MASK] == second[MASK]).all() and (words[MASK] != first[MASK]).any()
    assert (words != second).any()
    losses = [line["loss"] for line in lines(classifier / "run") if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.3 and last["accuracy"] > 0.9
    info = json.loads((classifier / "run/run.json").read_text())
    assert info["fresh"] == ["label"] and info["imported"]["step"] == 20
