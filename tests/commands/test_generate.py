"""Texts that causal LMs continue: against the compiled loops of decoding.py, in other batches and under a mesh."""

import gzip
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import runs
from kits.malformed_inputs import refused
from kits.small import mesh_of

from bert_jax import prng
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.inference import batches, generate
from bert_jax.inference.generate import Request
from bert_jax.layers import decoding
from bert_jax.tokenizers import tokenizer as tokenizers

KEYS = ["objective.name=causal_lm", "task.name=token_blocks", "model.initializer=0.3"]
KEYS += ["model.layers=1", "model.max_length=64", "phases.main.length=64"]
PROMPTS = ["once upon", "a", "", "three\n\nlines ", "to be", "or not", "ä€", "x y z"]
ASCII_END = 5 + 128
T = 12
DRAWS = Request(T, temperature=1.5, top_k=50, top_p=0.9, seed=3)


@pytest.fixture(scope="module")
def model():
    """A random model with 256 bytes as its vocabulary."""
    return runs.untrained(tokenizers.train("bytes", [], 0, False), *KEYS, "model.name=gpt")


def texts(model, request, prompts=PROMPTS):
    return generate.generate(model, prompts, request)


def encode(model, prompts) -> list[list[int]]:
    return [ids or [model.vocabulary.sep] for ids in model.tokenizer.encode(prompts)]


@pytest.fixture(scope="module")
def expected(model):
    """{request: the continuations that the loops of decoding.py decode, of prompts of a batch of their own length}."""
    encoded = encode(model, PROMPTS)
    length = max(map(len, encoded))
    batch = batches.make_batch([[(ids, 0)] for ids in encoded], length)
    first = np.array([ids[-1] for ids in encoded], np.int32)
    keys = np.array([prng.key(3, number, 0) for number in range(len(encoded))])

    @jax.jit
    def decode(params, batch):
        def step(tokens, caches):
            logits, caches = apply(tokens, caches, method="step")
            special = jnp.arange(logits.shape[-1]) < 5
            special &= jnp.arange(logits.shape[-1]) % 2 == 0  # [PAD], [CLS], [MASK]
            return jnp.where(special, -1e9, logits), caches

        def apply(*arguments, method):
            return model.objective.module.apply({"params": params}, *arguments, method=method)

        caches = apply(batch, length + 3 * decoding.rooms(T)[0], method="start")
        stop = decoding.Stop(model.vocabulary.sep, T)
        choose = partial(decoding.draw, keys=keys, cut=decoding.Cut(1.5, 50, 0.9))
        search = decoding.Search(3, 0.5, "transformers")
        return {
            Request(T): decoding.greedy(step, caches, first, stop),
            DRAWS: decoding.follow(step, caches, first, stop, choose),
            Request(T, beams=3, length_penalty=0.5): decoding.beam(
                step, caches, first, stop, search
            ),
        }

    results = {}
    for request, decoded in jax.device_get(decode(model.params, batch)).items():
        results[request] = []
        for row, ids in enumerate(encoded):
            tokens = decoded.tokens[row, 0, : decoded.lengths[row, 0]].tolist()
            text = model.tokenizer.decode(ids + tokens)
            results[request].append([text.removeprefix(PROMPTS[row])])
    return results


@pytest.mark.slow
def test_texts_are_those_of_the_compiled_loops(model, expected):
    assert len({str(value) for value in expected.values()}) == 3
    for request, continuations in expected.items():
        assert texts(model, request) == continuations


@pytest.mark.slow
def test_texts_depend_neither_on_the_batch_nor_on_the_mesh(model, expected, monkeypatch):
    with jax.set_mesh(mesh_of((8, 1, 1))):
        assert texts(model, DRAWS) == expected[DRAWS]
    monkeypatch.setattr(generate, "ROWS", 3)
    for request in (Request(T), DRAWS):
        assert texts(model, request) == expected[request]


@pytest.mark.parametrize("name, value", [("top_k", 3), ("top_p", 0.5), ("samples", 2), ("seed", 7)])
def test_options_of_draws_make_the_temperature_1(name, value):
    assert generate.make_request({name: value}).temperature == 1
    assert generate.make_request({name: value, "temperature": 0.5}).temperature == 0.5
    assert generate.make_request({"tokens": 3}).temperature == 0


@pytest.mark.slow
@pytest.mark.parametrize("rows, lengths", [(16, [64]), (2, [64, 32])])
@pytest.mark.parametrize("beams", [0, 4])
def test_a_long_prompt_shortens_neither_other_texts_nor_their_batches(
    model, monkeypatch, beams, rows, lengths
):
    prompts = ["a", "b" * 50, "c"]
    request = Request(beams=beams, length_penalty=2.0)
    alone = [texts(model, request, [prompt])[0] for prompt in prompts]
    padded = []

    make_batch = batches.make_batch

    def record(texts, length, *rest):
        padded.append(length)
        return make_batch(texts, length, *rest)

    monkeypatch.setattr(batches, "make_batch", record)
    monkeypatch.setattr(generate, "ROWS", rows)
    assert texts(model, request, prompts) == alone
    assert padded == lengths
    assert len(alone[0][0]) > 14  # the new tokens of the long one


@pytest.mark.slow
def test_draws_are_those_of_the_seed_and_the_sample(model):
    (drawn,) = texts(model, DRAWS._replace(samples=3), ["a"])
    assert len(set(drawn)) == 3
    assert texts(model, DRAWS, ["a"]) == [drawn[:1]]
    assert texts(model, DRAWS._replace(seed=4), ["a"]) != [drawn[:1]]
    (best,) = texts(model, Request(T), ["a"])
    assert texts(model, DRAWS._replace(top_k=1, samples=2), ["a"]) == [best * 2]


@pytest.mark.slow
def test_a_text_ends_at_the_end_token_or_in_front_of_a_string(model):
    """The text in front is that of a request without an end. [PAD] and [END] are never drawn."""
    words = model.params["network"]["embedder"]["words"]
    embedder = {"words": words.at[ASCII_END:].set(0)}
    network = model.params["network"]
    network = network | {"embedder": network["embedder"] | embedder}
    model = model._replace(params=model.params | {"network": network})
    ((text,),) = texts(model, DRAWS, ["a"])
    place = next(place for place in range(2, T) if text[place] not in text[:place])
    token = model.tokenizer.encode([text[place]])[0][0]
    special = model.vocabulary._replace(sep=token)
    assert texts(model._replace(vocabulary=special), DRAWS, ["a"]) == [[text[:place]]]
    for name in ("pad", "end"):
        special = model.vocabulary._replace(**{name: token})
        ((other,),) = texts(model._replace(vocabulary=special), DRAWS, ["a"])
        assert other[:place] == text[:place] and other[place] != text[place]
    stop = text[place : place + 2]
    request = DRAWS._replace(stop=("none", text[place + 1 :], stop))
    assert texts(model, request, ["a"]) == [[text[:place]]]


@pytest.mark.slow
def test_a_vocabulary_may_lack_the_end_token(model):
    model = model._replace(vocabulary=model.vocabulary._replace(sep=None))
    for request in (Request(T), Request(T, beams=2)):
        assert len(texts(model, request, ["a"])) == 1
    with pytest.raises(BadInput, match="empty"):
        texts(model, Request(T), ["a", ""])


REFUSED = {
    "--tokens 62": ("'abc' has 3 tokens", "61 of 64", "62 new"),
    "--tokens 0": ("--tokens",),
    "--top 3": ("--top",),
    "--output texts.txt": ("--output",),
    "--temperature -1": ("--temperature -1.0",),
    "--temperature nan": ("--temperature nan",),
    "--temperature 1e-42": ("--temperature 1e-42",),
    "--top-p 0": ("--top-p 0.0",),
    "--top-p 1.5": ("--top-p 1.5",),
    "--top-k -1": ("--top-k -1",),
    "--samples 0": ("--samples",),
    "--length-penalty -1 --beam 2": ("--length-penalty -1",),
    "--length-penalty 2 --seed 1": ("--length-penalty", "--beam"),
    "--beam 2 --seed 1": ("--seed", "beam"),
    "--beam 2 --temperature 0": ("--temperature", "beam"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("generate") / "run"
    words = tokenizers.train("bytes", [], 0, False)
    runs.make_run(directory, *KEYS, words=words)
    return directory


@pytest.mark.parametrize("options", REFUSED)
def test_bad_options_are_refused(run, options, monkeypatch):
    """Before anything is computed."""
    monkeypatch.setattr(generate, "steps", None)
    message = refused("predict", "--model", run, "abc", *options.split())
    for part in REFUSED[options]:
        assert part in message
    assert "--stop" in refused("predict", "--model", run, "abc", "--stop", "")


def test_a_prompt_without_room_is_named(run, tmp_path):
    (tmp_path / "prompts.txt").write_text("a\n" + "b" * 64)
    message = refused("predict", "--model", run, "--input", tmp_path / "prompts.txt")
    assert "'bbb" in message and "0 of 64" in message and "--tokens" not in message


def test_an_untrained_head_is_refused(tmp_path):
    runs.make_run(tmp_path / "run", *KEYS, step=0, fresh=["lm"])
    assert str(tmp_path / "run") in refused("predict", "--model", tmp_path / "run", "a")


def test_only_causal_models_have_options_of_generation(tmp_path):
    runs.make_run(tmp_path / "run")
    for option in ("--tokens", "--top-k", "--seed", "--stop", "--output"):
        message = refused("predict", "--model", tmp_path / "run", "a [MASK]", option, 1)
        assert message.startswith(f"{option}: ") and "'mlm'" in message


@pytest.mark.slow
def test_the_command_prints_prompts_and_their_continuations(run, tmp_path, capsys):
    """In lines of a file or on the command line."""
    (tmp_path / "prompts.txt").write_text("a b\n\nc\n")
    model = ["predict", "--model", str(run), "--tokens", "5"]
    file = ["--input", str(tmp_path / "prompts.txt")]
    options = ["--samples", "2", "--seed", "7", "--json", str(tmp_path / "texts.json")]
    assert main([*model, *file, *options]) == 0
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "texts.json").read_text())
    assert [result["text"] for result in results] == ["a b", "", "c"]
    texts = [result["text"] + part for result in results for part in result["continuations"]]
    lines = [f"--- {number}\n{text}\n" for number, text in enumerate(texts, 1)]
    assert printed == "".join(lines) and len(texts) == 6
    assert main([*model, "a b", "--seed", "7"]) == 0
    printed = capsys.readouterr().out
    assert printed == f"a b{results[0]['continuations'][0]}\n"


@pytest.mark.slow
def test_prompts_are_lines_or_texts_of_a_table(run, tmp_path, capsys):
    prompts = ["a b", "x\ny"]
    lines = [json.dumps({"text": prompt}) for prompt in prompts]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    (tmp_path / "prompts.txt.gz").write_bytes(gzip.compress(b"a b\r\nx\r\n"))
    for name, texts in {"prompts.jsonl": prompts, "prompts.txt.gz": ["a b", "x"]}.items():
        file = ["--input", str(tmp_path / name)]
        assert main(["predict", "--model", str(run), "--tokens", "2", *file, "--json", "-"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert [result["text"] for result in results] == texts
