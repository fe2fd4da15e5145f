"""Perplexity by sliding windows: equal to a loop over single windows; comparable between vocabularies; bad input."""

import json
import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.runs import make_run, untrained
from kits.texts import PROSE
from kits.vocabularies import write_bpe_files

from bert_jax.cli import main
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.inference import batches, evaluate_texts, perplexity, table, token_scores
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
        monkeypatch.setattr(open_model, "open_model", lambda name, overrides: by_name[name])
        config = models["masked"].config
        return evaluate_texts.evaluate_models(names, config, lambda line: None, file, stride)

    return run


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 30])
@pytest.mark.parametrize("stride", [1, 3, 7])
def test_windows_score_each_token_once_with_enough_context(size, stride):
    length = 8
    row = np.arange(size + 1)
    scored = []
    for ids, number in perplexity.cut_windows(row, length, stride):
        assert len(ids) <= length and 0 < number < len(ids)
        assert np.shares_memory(ids, row)  # all windows of a long document fit in memory
        assert ids.tolist() == [*range(ids[0], ids[-1] + 1)]
        assert ids[0] == 0 or len(ids) - number >= length - stride
        scored += ids[-number:].tolist()
    assert scored == [*range(1, size + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("stride", [0, 5])
def test_the_nats_are_those_of_single_windows(models, stride):
    """Each token by a forward pass of its own, from the last tokens before it that its window has."""
    model = models["wordpiece"]
    texts = [TEXT, PROSE[1][:30]]
    values = perplexity.evaluate(model, texts, stride)
    stride = stride or LENGTH // 2
    size = model.vocabulary.size
    total = tokens = 0
    for ids in model.tokenizer.encode(texts):
        stream = [model.tokenizer.sep, *ids]
        tokens += len(ids)
        place = 1
        while place < len(stream):
            stop = LENGTH if place == 1 else place + stride
            stop = min(stop, len(stream))
            window = stream[max(0, stop - LENGTH) : stop]
            batch = batches.make_batch([[(window, 0)]], len(window))
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
    uniform = byte._replace(objective=replace(byte.objective, outputs=blank))
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


def test_text_without_a_score_is_not_counted(tmp_path, monkeypatch):
    """A vocabulary without an end-of-text token has no context for first tokens."""

    def score_rows(model, rows, counts):
        assert all(row.base is not None for row in rows)  # they share the memory of their text
        return -np.array(counts)

    monkeypatch.setattr(token_scores, "score_rows", score_rows)
    names = "vocab.json", "merges.txt"
    words = tokenizers.from_file(write_bpe_files(tmp_path, names, True), True)
    model = untrained(words, *CAUSAL)
    texts = ["  the dog sleeps", "The", "A cat\n"]
    firsts = [words.decode(ids[:1]).strip() for ids in words.encode(texts)]
    rests = "".join(text.lstrip()[len(first) :] for text, first in zip(texts, firsts, strict=True))
    values = perplexity.evaluate(model, texts, 0)
    tokens = sum(len(ids) - 1 for ids in words.encode(texts))
    assert values["tokens"] == tokens and len(rests) < 20
    assert values["bits_per_byte"] == pytest.approx(tokens / math.log(2) / len(rests))
    assert values["nats_per_word"] == pytest.approx(tokens / len(rests.split()))
    assert perplexity.evaluate(model, ["🙂 the 🙂", "🙂"], 0)["unknown"] == 1
    with pytest.raises(BadInput, match="no token"):
        perplexity.evaluate(model, ["the"], 0)


def test_numbers_of_any_width_are_in_columns():
    models = [
        {"model": "a", "word_perplexity": 1e17, "tokens": 12_345_678, "is_exact": True},
        {"model": "bcd", "word_perplexity": 2.5, "tokens": 1, "is_exact": True},
    ]
    lines = table.lines(models)
    assert len({*map(len, lines)}) == 1
    assert lines[0].startswith("model  ") and lines[2].split() == ["bcd", "2.5000", "1"]


def test_documents_are_files_or_lines_of_json(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    assert [*evaluate_texts.read_documents(tmp_path / "a.txt")] == [TEXT]
    lines = [{"text": TEXT}, {"text": "b", "id": 1}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [*evaluate_texts.read_documents(tmp_path / "a.jsonl")] == [TEXT, "b"]
    (tmp_path / "a.jsonl").rename(tmp_path / "A.JSONL")
    assert [*evaluate_texts.read_documents(tmp_path / "A.JSONL")] == [TEXT, "b"]
    (tmp_path / "a.json.txt").write_text("[1]")
    assert [*evaluate_texts.read_documents(tmp_path / "a.json.txt")] == ["[1]"]


@pytest.mark.parametrize(
    "name, content, named",
    [
        ("a.jsonl", '{"text": "a"}\n{"id": 2}\n', "a.jsonl:2"),
        ("a.JSON", '[{"text": "a"}, {"text": ""}]', "row 2"),
        ("a.csv", "text\na, b\n", "a.csv:2"),
        ("a.tsv", "id\n1\n", "a.tsv: no columns named 'text'"),
        ("a.txt", "", "a.txt: has no text"),
        ("a.jsonl", "", "a.jsonl: .*it has none"),
    ],
)
def test_a_table_without_text_is_refused(tmp_path, name, content, named):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=named):
        [*evaluate_texts.read_documents(tmp_path / name)]


def test_what_does_not_compare_is_refused(evaluate, models, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="masked: objective 'mlm' cannot continue"):
        evaluate(["wordpiece", "masked"])
    monkeypatch.setattr(token_scores, "score_rows", None)  # before anything is computed
    lengths = "model.max_length=64", "phases.main.length=64"
    longer = untrained(models["wordpiece"].tokenizer, *CAUSAL, *lengths)
    with pytest.raises(BadInput, match="--stride 32: .*32 positions of wordpiece"):
        evaluate(["longer", "wordpiece"], stride=LENGTH, longer=longer)
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


@pytest.mark.parametrize(
    "options, named",
    [
        (["--stride", "9"], "--stride"),
        (["--input", "text.txt", "--beam", "2"], "evaluate: "),
        (["--input", "text.txt", "--config", "demo"], "evaluate: "),
        (["--reference", "text.txt"], "evaluate: "),
        (["--input", "text.txt", "--config.seed=1"], "seed"),
    ],
)
def test_options_without_their_text_are_refused(options, named):
    assert named in refused("evaluate", "--model", "none", *options)
