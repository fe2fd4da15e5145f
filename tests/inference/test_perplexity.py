"""Perplexity by sliding windows: equal to a loop over single windows; comparable between vocabularies; bad input."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.runs import make_run, untrained
from kits.texts import PROSE

from bert_jax.cli import main
from bert_jax.commands import evaluate as command
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.inference import fill_mask, perplexity
from bert_jax.tokenizers import tokenizer as tokenizers

CAUSAL = "objective.name=causal_lm", "task.name=token_blocks"
LENGTH = 32  # of the small config
TEXT = "  " + " ".join(PROSE)[:300] + "\r\n\r\n" + PROSE[0] + "\n"


@pytest.fixture(scope="module")
def models():
    kinds = {"wordpiece": 300, "byte_bpe": 400}
    trained = {kind: tokenizers.train(kind, PROSE, size, False) for kind, size in kinds.items()}
    causal = {kind: untrained(words, *CAUSAL) for kind, words in trained.items()}
    return causal | {"masked": untrained(trained["wordpiece"])}


@pytest.fixture
def evaluate(tmp_path, monkeypatch, models):
    """evaluate(names, file, stride, **other models): the values of these models on a file."""

    def run(names, file=None, stride=0, **others):
        if file is None:
            file = tmp_path / "text.txt"
            file.write_bytes(TEXT.encode())
        by_name = models | others
        monkeypatch.setattr(load_model, "open_model", lambda name, overrides: by_name[name])
        config = models["masked"].config
        return command.evaluate_models(names, config, lambda line: None, file, stride)

    return run


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize("stride", [1, 3, 7])
def test_windows_score_each_token_once_with_enough_context(size, stride):
    length = 8
    row = [*range(size + 1)]
    scored = []
    for ids, number in perplexity.cut_windows(row, length, stride):
        assert len(ids) <= length and 0 < number < len(ids)
        assert ids == row[ids[0] : ids[-1] + 1]
        assert ids[0] == 0 or len(ids) - number >= length - stride
        scored += ids[-number:]
    assert scored == row[1:]


@pytest.mark.slow
@pytest.mark.parametrize("stride", [0, 5])
def test_the_nats_are_those_of_single_windows(models, stride):
    """Each token by a forward pass of its own, from the last tokens before it that its window has."""
    model = models["wordpiece"]
    texts = [TEXT, PROSE[1][:30]]
    values = perplexity.evaluate(model, texts, stride, perplexity.count(texts))
    stride = stride or LENGTH // 2
    size = model.vocabulary.size
    plain = model.vocabulary._replace(cls=None, sep=None)
    total = tokens = 0
    for ids in model.tokenizer.encode(texts):
        stream = [model.tokenizer.sep, *ids]
        tokens += len(ids)
        place = 1
        while place < len(stream):
            stop = LENGTH if place == 1 else place + stride
            stop = min(stop, len(stream))
            window = stream[max(0, stop - LENGTH) : stop]
            batch = fill_mask.make_batch([window], 1, len(window), 0, plain)
            logits = model.objective.outputs(model.params, batch)["lm_logits"][0, :, :size]
            logits = np.float64(logits)
            for back in range(place - stop, 0):
                row = logits[back - 1]
                total += np.log(np.exp(row).sum()) - row[window[back]]
            place = stop
    assert values["tokens"] == tokens
    assert values["nats_per_token"] == pytest.approx(total / tokens, rel=1e-5)


@pytest.mark.slow
def test_models_of_different_vocabularies_compare(evaluate, models):
    """A uniform model has the logarithm of its vocabulary's size for each token."""
    byte = models["byte_bpe"]
    blank = lambda params, batch: {"lm_logits": jnp.zeros((*batch["tokens"].shape, 400))}  # noqa: E731
    uniform = byte._replace(objective=byte.objective._replace(outputs=blank))
    values = evaluate(["wordpiece", "byte_bpe", "u", "byte_bpe"], u=uniform)
    words, pieces, last, again = values.pop("models")
    counts = {"documents": 1, "words": len(TEXT.split())}
    assert values == counts | {"characters": len(TEXT), "bytes": len(TEXT.encode())}
    assert pieces == again and not words["is_exact"] and pieces["is_exact"]
    assert "held_out" not in words and words["tokens"] != pieces["tokens"] == last["tokens"]
    nats = last["tokens"] * math.log(400)
    assert last["perplexity"] == pytest.approx(400)
    assert last["nats_per_word"] == pytest.approx(nats / values["words"])
    assert last["word_perplexity"] == pytest.approx(math.exp(nats / values["words"]))
    assert last["bits_per_byte"] == pytest.approx(nats / math.log(2) / values["bytes"])
    assert last["bits_per_character"] == pytest.approx(nats / math.log(2) / len(TEXT))


@pytest.mark.slow
def test_masked_models_are_evaluated_on_a_file_too(evaluate):
    values = evaluate(["masked", "masked"])
    one, other = values["models"]
    assert one == other and values["words"] > 0 and one["nats_per_word"] > 0


def test_documents_are_files_or_lines_of_json(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    assert [*command.read_documents(tmp_path / "a.txt")] == [TEXT]
    lines = [{"text": TEXT}, {"text": "b", "id": 1}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [*command.read_documents(tmp_path / "a.jsonl")] == [TEXT, "b"]
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"id": 2}\n')
    with pytest.raises(BadInput, match="a.jsonl:2"):
        [*command.read_documents(tmp_path / "a.jsonl")]


def test_what_does_not_compare_is_refused(evaluate, models, tmp_path):
    objective = models["masked"].objective._replace(vocabulary_outputs=())
    neither = models["masked"]._replace(objective=objective)
    with pytest.raises(BadInput, match="masked"):
        evaluate(["wordpiece", "masked"])
    with pytest.raises(BadInput, match="n: objective"):
        evaluate(["n"], n=neither)
    with pytest.raises(BadInput, match="--stride: masked"):
        evaluate(["masked"], stride=3)
    with pytest.raises(BadInput, match="--stride 32"):
        evaluate(["wordpiece"], stride=LENGTH)
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(BadInput, match="empty.txt"):
        evaluate(["wordpiece"], tmp_path / "empty.txt")


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    make_run(tmp_path / "run", *CAUSAL, kind="byte_bpe")
    (tmp_path / "text.txt").write_text(PROSE[0])
    model = ["evaluate", "--model", f"{tmp_path}/run"]
    text = ["--input", f"{tmp_path}/text.txt"]
    assert main([*model, *text, "--stride", "9", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["perplexity"] > 1
    for options in (
        ["--stride", "9"],
        [*text, "--beam", "2"],
        [*text, "--config", "demo"],
        ["--reference", tmp_path / "text.txt"],
    ):
        assert "evaluate: " in (line := refused(*model, *options)) or "--stride" in line
