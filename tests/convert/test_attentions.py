"""The attention probabilities that `capture` reads beside `output_attentions` of transformers (PyTorch), of exports."""

import jax
import numpy as np
import pytest
from kits import pairs_of_texts
from kits.external_models import read_json
from kits.runs import make_run, run_batch
from kits.small import ALBERT, MODERN, ROBERTA

import bert_jax
from bert_jax.cli import main
from bert_jax.inference import attention
from bert_jax.objectives import base

pytestmark = pytest.mark.full

LARGE = "model.initializer=0.3"  # of weights, so that probabilities are far from uniform
CAUSAL = ("model.name=gpt", "objective.name=causal_lm", "task.name=token_blocks")
TRANSLATION = ("model.name=transformer", "objective.name=translation", "task.name=translation")
TRANSLATION += ("task.max_pieces=20",)
# {model_type: overrides of the small config}
KEYS = {
    "bert": (),
    "albert": (*ALBERT, "model.initializer=0.35"),
    "modernbert": (*MODERN, "task.pair_task=none"),
    "roberta": (*ROBERTA, "task.pair_task=none"),
    "gpt2": ("model.layers=2", *CAUSAL),
    "marian": ("model.layers=2", "model.decoder_layers=3", "model.feed_forward=48", *TRANSLATION),
}
# {field of their outputs: (blocks of our network, part of a block, ids of the queries)}
ENCODER = {"attentions": ("network", "attention", "sequence_ids")}
BOTH = {
    "encoder_attentions": ("network/encoder", "attention", "sequence_ids"),
    "decoder_attentions": ("network/decoder", "attention", "target_sequence_ids"),
    "cross_attentions": ("network/decoder", "context", "target_sequence_ids"),
}


def padded_batch(model_type: str, vocabulary) -> dict:
    """Returns rows of one sequence or pair each, of several lengths."""
    if model_type == "marian":
        pairs = pairs_of_texts.draw_pairs(vocabulary.size)
        return pairs_of_texts.make_batch(pairs, packed=1, length=10)
    return run_batch(vocabulary)


def captured(run, batch: dict) -> dict:
    """Returns {path of a part of a block: its probabilities [B, H, L, M] of each pass}."""
    config, vocabulary, _, params = run
    objective = base.make(config, vocabulary)

    @jax.jit
    def read(params):
        return objective.capture(params, batch, lambda module, name: name == "probabilities")[1]

    kept = jax.device_get(read(params))
    passes = {}
    for path, array in kept.items():
        passes.setdefault(path.partition("/probabilities/")[0], []).append(array)
    return passes


def attentions_of_transformers(directory, batch: dict):
    """Returns the outputs of the class in config.json."""
    torch = pytest.importorskip("torch")
    import transformers

    values = read_json(directory / "config.json")
    (name,) = values["architectures"]
    opening = getattr(transformers, name).from_pretrained
    model = opening(directory, attn_implementation="eager", dtype="float32").eval()
    inputs = {"input_ids": batch["tokens"], "attention_mask": batch["sequence_ids"] > 0}
    if values["model_type"] in ("bert", "albert"):
        inputs["token_type_ids"] = batch["segments"]
    if values["model_type"] == "marian":
        inputs["decoder_input_ids"] = batch["target_tokens"]
    inputs = {name: torch.tensor(array).long() for name, array in inputs.items()}
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


@pytest.mark.parametrize("model_type", KEYS)
def test_probabilities_are_those_of_transformers(tmp_path, model_type):
    """Of all layers, at the real tokens of padded rows."""
    run = make_run(tmp_path / "run", LARGE, *KEYS[model_type], kind="byte_bpe")
    paths = "--model", str(tmp_path / "run"), "--output", str(tmp_path / "out")
    assert main(["export", *paths]) == 0
    batch = padded_batch(model_type, run[1])
    ours = captured(run, batch)
    theirs = attentions_of_transformers(tmp_path / "out", batch)
    for field, (blocks, part, ids) in (BOTH if model_type == "marian" else ENCODER).items():
        is_real = batch[ids] > 0
        assert not is_real.all()
        paths = [path for path in sorted(ours) if path.startswith(blocks) and path.endswith(part)]
        layers = sum(map(ours.pop, paths), [])
        for number, pair in enumerate(zip(layers, getattr(theirs, field), strict=True)):
            # [real tokens, H, M]
            actual, expected = (np.asarray(array).swapaxes(1, 2)[is_real] for array in pair)
            difference = np.abs(actual - expected).max()
            print(f"{field} {number}: {difference:.1e}")
            assert difference < 1e-5 and expected.max(axis=-1).mean() > 0.25
    assert not ours


@pytest.mark.parametrize("model_type", ["bert", "modernbert", "gpt2", "marian"])
def test_the_attention_of_a_text_is_that_of_transformers(tmp_path, model_type):
    """Of an exported model, which Python opens."""
    make_run(tmp_path / "run", LARGE, *KEYS[model_type], kind="byte_bpe")
    paths = "--model", str(tmp_path / "run"), "--output", str(tmp_path / "out")
    assert main(["export", *paths]) == 0
    model = bert_jax.load(tmp_path / "out")
    text = "the quick brown fox"
    result = model.attention(text)
    ids, segments = attention.read_row(model.loaded, [text])
    arrays = {"tokens": [ids], "segments": [segments], "sequence_ids": np.ones((1, len(ids)))}
    if model_type == "marian":
        translation = "a lazy dog"
        target = attention.read_target(model.loaded, (ids, segments), [translation])
        result = model.attention(text, translation)
        arrays["target_tokens"] = [target]
    arrays = {name: np.array(array) for name, array in arrays.items()}
    theirs = attentions_of_transformers(tmp_path / "out", arrays)
    fields = BOTH if model_type == "marian" else ENCODER
    for each, field in zip(result.maps, fields, strict=True):
        expected = np.concatenate([np.asarray(array) for array in getattr(theirs, field)])
        difference = np.abs(each.weights - expected).max()
        print(f"{field}: {difference:.1e}")
        assert difference < 1e-5 and expected.max(axis=-1).mean() > 0.25
