"""The Python interface gives what the commands give, changes no setting of the process, and says what a model cannot
do."""

import inspect
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from kits.runs import make_run
from pages.test_attention_page import data_of, weights_of

import bert_jax
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.inference.interface import Model

LONG = ["phases.main.length=64", "model.max_length=64"]
GPT = ["model.name=gpt", "objective.name=causal_lm", "task.name=token_blocks"]
LABELS = ["objective.name=classifier", "task.name=classification", "task.labels=no,yes"]
TRANSLATION = ["model.name=transformer", "objective.name=translation", "task.name=translation"]
MODELS = {
    "mlm": ["task.pair_task=none"],
    "gpt": GPT,
    "pairs": [*LABELS, "task.text=a,b"],
    "questions": ["objective.name=spans", "task.name=question_answering", "task.question_length=9"],
    "translation": [*TRANSLATION, "task.max_pieces=20", "task.extra_pieces=5"],
}
TEXTS = ["the quick brown fox", "a lazy dog", "to be or not to be, that is the question " * 3]
PAIRS = [("the fox", "jumps"), ("a dog", "over the lazy fox")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """{name: the workdir of a run}."""
    directory = tmp_path_factory.mktemp("interface")
    for name, keys in MODELS.items():
        make_run(directory / name, *LONG, *keys)
    return {name: directory / name for name in MODELS}


@pytest.fixture(scope="module")
def models(runs):
    """{name: the model of a run}, all at once."""
    return {name: bert_jax.load(directory) for name, directory in runs.items()}


def command(tmp_path, name, directory, *options):
    """Returns what a command writes as JSON."""
    path = tmp_path / "result.json"
    assert main([name, "--model", str(directory), "--json", str(path), *map(str, options)]) == 0
    return json.loads(path.read_text())


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def check(model_method, expected, *options, texts=TEXTS, **keys):
    """Compares the results of texts, and of one alone, which has a batch of its own."""
    results = model_method(texts, *options, **keys)
    assert len(results) == len(texts)
    equal(results, expected)
    equal(model_method(texts[0], *options, **keys), expected[0])


def equal(ours, expected):
    """Compares texts and numbers in lists and dicts."""
    if isinstance(expected, dict):
        assert ours.keys() >= expected.keys()
        for key in expected:
            equal(ours[key], expected[key])
    elif isinstance(expected, str | bool):
        assert ours == expected
    elif isinstance(expected, list) and expected and not isinstance(expected[0], float):
        for mine, other in zip(ours, expected, strict=True):
            equal(mine, other)
    else:
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_masks(runs, models, tmp_path):
    texts = ["the [MASK] fox", "[MASK] [MASK] dog"]
    results = command(tmp_path, "predict", runs["mlm"], "--top", 3, *texts)
    check(models["mlm"].fill, [result["masks"] for result in results], 3, texts=texts)


@pytest.mark.parametrize("name", MODELS)
def test_vectors(runs, models, lines, tmp_path, name):
    output = tmp_path / "vectors.npy"
    options = "--input", lines, "--output", output, "--pool", "mean", "--layers", "-2:"
    command(tmp_path, "features", runs[name], *options)
    check(models[name].encode, np.load(output).tolist(), "-2:")
    vectors = models[name].encode(TEXTS, pool="none")
    means = [array.mean(axis=0) for array in vectors]
    np.testing.assert_allclose(means, models[name].encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("name", ["pairs", "questions"])
def test_labels_and_answers_of_pairs(runs, models, tmp_path, name):
    expected = [command(tmp_path, "predict", runs[name], *pair)[0] for pair in PAIRS]
    for result in expected:
        result.pop("id", None)
    results = models[name].predict(PAIRS)
    equal([{key: result[key] for key in expected[0]} for result in results], expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_translations(runs, models, lines, tmp_path, beams):
    results = command(tmp_path, "predict", runs["translation"], "--input", lines, "--beam", beams)
    check(models["translation"].translate, [each["prediction"] for each in results], beams)


def test_continuations(runs, models, tmp_path):
    options = "--tokens", 5, "--samples", 2, "--seed", 3, "--temperature", 0.7
    results = command(tmp_path, "predict", runs["gpt"], *options, *TEXTS[:2])
    keys = dict(tokens=5, samples=2, seed=3, temperature=0.7)
    expected = [result["continuations"] for result in results]
    check(models["gpt"].generate, expected, texts=TEXTS[:2], **keys)
    with pytest.raises(BadInput, match="--top-p 2"):
        models["gpt"].generate("a", top_p=2.0)


@pytest.mark.parametrize("name", ["mlm", "gpt"])
def test_scores(runs, models, lines, tmp_path, name):
    results = command(tmp_path, "score", runs[name], "--input", lines)["sentences"]
    check(models[name].score, [each["log_probability"] for each in results])


def test_perplexity(runs, models, tmp_path):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    [result] = command(tmp_path, "evaluate", runs["gpt"], "--input", path, "--stride", 7)["models"]
    for key in ("model", "parameters"):
        del result[key]
    equal(models["gpt"].perplexity(TEXTS, stride=7), result)


@pytest.mark.parametrize("name", ["mlm", "gpt", "translation"])
def test_attention_is_that_of_the_command(runs, models, tmp_path, name):
    page = tmp_path / "page.html"
    values = command(tmp_path, "attention", runs[name], TEXTS[0], "--output", page)
    result = models[name].attention(TEXTS[0])
    equal(result.values(), values)
    [drawn, *_] = data_of(page.read_text())
    np.testing.assert_allclose(weights_of(drawn), np.concatenate(result.weights), atol=0.00051)
    assert result._repr_html_().startswith("<iframe")


REFUSED = [["a"], ["a", "b", "c", "--output", "page.html"], ["a " * 99, "--output", "page.html"]]


@pytest.mark.parametrize("options", REFUSED)
def test_attention_refuses_texts_and_options(runs, tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(tmp_path)
    assert main(["attention", "--model", str(runs["mlm"]), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["mlm", "gpt"])
def test_attention(models, name):
    tokens, weights = models[name].attention(TEXTS[0])
    config = models[name].loaded.config.model
    assert weights.shape == (config.layers, config.heads, len(tokens), len(tokens))
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    is_causal = not np.triu(weights, 1).any()
    assert is_causal == (name == "gpt") and "##x" in tokens
    assert weights.std(axis=(0, 1)).max() > 1e-4


ABILITIES = {
    "fill": ["mlm"],
    "predict": ["pairs", "questions"],
    "translate": ["translation"],
    "generate": ["gpt"],
    "score": ["mlm", "gpt"],
    "perplexity": ["gpt"],
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ABILITIES)
def test_what_a_model_cannot_do_says_so(models, name, method):
    if name not in ABILITIES[method]:
        with pytest.raises(BadInput, match=f"{name}: objective .* cannot .*; it can "):
            getattr(models[name], method)("a text")


def test_threads_use_two_models_at_once(models):
    expected = {name: models[name].score(TEXTS) for name in ("mlm", "gpt")}
    found = {name: [] for name in expected}

    def run(name):
        for _ in range(4):
            found[name].append(models[name].score(TEXTS))

    threads = [threading.Thread(target=run, args=(name,)) for name in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, scores in expected.items():
        np.testing.assert_allclose(found[name], [scores] * 4, rtol=1e-6)


METHODS = [("mlm", "fill"), ("mlm", "encode"), ("gpt", "generate"), ("mlm", "score")]
METHODS += [("gpt", "score"), ("pairs", "predict"), ("translation", "translate")]


@pytest.mark.parametrize("name, method", METHODS)
def test_lists_without_texts_and_what_is_no_text(models, name, method):
    run = getattr(models[name], method)
    assert len(run([])) == 0
    with pytest.raises(BadInput, match="b'a': expected text"):
        run([b"a"])


def test_lone_surrogates_are_replaced(models):
    vectors = models["mlm"].encode(["a \ud800", "a \ufffd"])
    np.testing.assert_array_equal(*vectors)


def test_a_tuple_is_one_example(models):
    single = models["pairs"].predict(PAIRS[0])
    equal(single, models["pairs"].predict(PAIRS[:1])[0])
    for wrong in (["a", "b"], [("a", "b", "c"), ("d",)], [("a", "b", "c", "d")]):
        with pytest.raises(BadInput, match="example"):
            models["pairs"].predict(wrong)


WRONG = {
    "--masking": ("mlm", "score", {"masking": "foo"}),
    "--masking: .* causal": ("gpt", "score", {"masking": "token"}),
    "--stride -3": ("gpt", "perplexity", {"stride": -3}),
    "--pool foo": ("mlm", "encode", {"pool": "foo"}),
    "--samples 0": ("gpt", "generate", {"samples": 0}),
    "--tokens -3": ("gpt", "generate", {"tokens": -3}),
    "--token:": ("gpt", "generate", {"token": 5}),
}


@pytest.mark.parametrize("start", WRONG)
def test_wrong_options_are_named(models, start):
    name, method, keys = WRONG[start]
    with pytest.raises(BadInput, match=start):
        getattr(models[name], method)("the fox", **keys)


def test_a_text_may_be_the_stop(models):
    text = models["gpt"].generate("a", tokens=9)[0]
    cut = models["gpt"].generate("a", tokens=9, stop=text[3])[0]
    assert cut == text[: text.index(text[3])]


PROGRAM = """
import logging, signal, sys
import bert_jax
assert not {"jax", "tensorflow"} & sys.modules.keys()
import jax
def settings():
    return dict(jax.config.values), signal.getsignal(signal.SIGTERM), [*logging.root.handlers]
before = settings()
model = bert_jax.load(sys.argv[1])
model.fill("a [MASK]")
model.encode(["a", "b c"])
model.attention("a")
assert "tensorflow" not in sys.modules
assert settings() == before
"""


def test_a_model_changes_no_setting_and_imports_no_tensorflow(runs):
    arguments = [sys.executable, "-c", PROGRAM, runs["mlm"]]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stdout


def test_a_model_that_is_missing_is_named(tmp_path):
    with pytest.raises(BadInput, match=f"{tmp_path}/none"):
        bert_jax.load(tmp_path / "none")


def test_every_method_is_typed():
    for name, method in inspect.getmembers(Model, inspect.isfunction):
        signature = inspect.signature(method)
        parameters = [*signature.parameters.values()][1:]
        types = [each.annotation for each in parameters] + [signature.return_annotation]
        assert name == "__init__" or inspect.Signature.empty not in types, name
