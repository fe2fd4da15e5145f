"""Converts transformers' BERT, ALBERT and ModernBERT to ours, and evaluates ours like golden/make_bert.py evaluates
theirs. No PyTorch."""

import re

import jax
import numpy as np
from kits.small import small_config

from bert_jax.convert import names, settings
from bert_jax.layers import embeddings
from bert_jax.models import base as models
from bert_jax.objectives import base, mlm
from bert_jax.tokenizers.special_tokens import Vocabulary

# {the beginning of names of parameters: model.name}
NAMES = {"bert": "bert", "albert": "albert", "model": "modernbert"}
PAIR_TASKS = {"bert": "nsp", "albert": "sop"}
STATES = ("hidden_states", "pooled", "mlm_logits", "pair_logits")
LOSSES = ("mlm_loss", "nsp_loss", "loss")
# Gradients are compared relative to at least this: those of key biases are zero but for rounding.
FLOOR = 1e-3


def config_of(theirs: dict, *overrides: str):
    """Returns a small config with the model of a config of transformers, without dropout."""
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout")
    model, _ = settings.from_huggingface(
        {"model_type": "bert"} | theirs | dict.fromkeys(dropouts, 0), "config.json"
    )
    keys = [f"model.{key}={value}" for key, value in model.items()]
    keys.append(f"phases.main.length={theirs['max_position_embeddings']}")
    keys.append(f"task.pair_task={PAIR_TASKS.get(model['name'], 'none')}")
    return small_config(*keys, *overrides)


def vocabulary_of(theirs: dict) -> Vocabulary:
    return Vocabulary(theirs["vocab_size"], pad=0, unk=1, cls=2, sep=3, mask=4)


def params_of(tensors: dict) -> dict:
    """Returns our tree of {their name: array}: of parameters, gradients or the like."""
    numbers = re.findall(r"layers?\.(\d+)\.", " ".join(tensors))
    (name,) = {NAMES[first] for first in (name.split(".")[0] for name in tensors) if first in NAMES}
    layers = 1 + max(map(int, numbers))
    table = names.parameters({"name": name, "layers": layers, "embedding_width": 1})
    assert {item.huggingface for item in table} == set(tensors)
    tree = {}
    for item in table:
        array = np.split(tensors[item.huggingface], item.number)[item.place]
        array = array.T if "huggingface" in item.transposed else array
        if item.padded:
            rows = embeddings.padded_size(len(array)) - len(array)
            array = np.pad(array, [(0, rows)] + [(0, 0)] * (array.ndim - 1))
        *path, last = item.path.split("/")
        node = tree
        for name in path:
            node = node.setdefault(name, {})
        node[last] = array
    return tree


def batch_of(theirs: dict) -> dict:
    """Returns their batch, in which any position may be predicted, as one of ours (data/batch.py)."""
    labels = theirs["labels"]
    rows, length = labels.shape
    positions = np.broadcast_to(np.arange(length), labels.shape)
    arrays = {
        "tokens": theirs["input_ids"],
        "segments": theirs.get("token_type_ids", np.zeros_like(labels)),
        "positions": theirs.get("position_ids", positions),
        "sequence_ids": theirs["attention_mask"],
        "masked_positions": positions,
        "masked_targets": np.maximum(labels, 0),
        "cls_positions": np.zeros((rows, 1)),
        "pair_labels": theirs.get("next_sentence_label", np.zeros(rows))[:, None],
        "rows": np.arange(rows),
    }
    weights = {"masked_weights": labels >= 0, "pair_weights": np.ones((rows, 1))}
    return {name: array.astype(np.int32) for name, array in arrays.items()} | {
        name: array.astype(np.float32) for name, array in weights.items()
    }


def hidden_states(config, vocabulary, params, batch) -> dict:
    """Returns hidden_states[layers + 1, B, L, D], the embeddings' first, and pooled[B, D] if there is a pair loss."""
    paired = config.task.pair_task != "none"
    module = mlm.Pretrainer(models.make(config, vocabulary.size), paired)
    captured = lambda module, method: method in ("states", "summary")  # noqa: E731
    _, state = module.apply({"params": params}, batch, None, capture_intermediates=captured)
    outputs = state["intermediates"]["network"]
    states = dict(hidden_states=jax.numpy.stack(outputs["states"][0]))
    return states | (dict(pooled=outputs["summary"][0][:, 0]) if paired else {})


def evaluate(config, vocabulary, params, batch) -> dict:
    """Evaluates what golden/make_bert.py does, by our objective; `gradient` is a tree."""
    objective = base.make(config, vocabulary)

    def loss(params):
        return objective.loss(params, batch, objective.weights(batch), 0, train=False)

    @jax.jit
    def run(params):
        (scalar, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        outputs = objective.outputs(params, batch)
        totals = objective.weights(batch)
        values = dict(
            mlm_logits=outputs["mlm_logits"][..., : vocabulary.size],
            mlm_loss=metrics["mlm_loss"][0] / totals["mlm"],
            loss=scalar,
            gradient=gradient,
        )
        pair = config.task.pair_task
        if pair in totals:
            values["pair_logits"] = outputs["pair_logits"][:, 0]
            values["nsp_loss"] = metrics[f"{pair}_loss"][0] / totals[pair]
        return values | hidden_states(config, vocabulary, params, batch)

    return jax.device_get(run(params))


def differences(ours: dict, theirs: dict, real) -> dict:
    """Returns {name: largest difference at real tokens}, relative for losses and gradients. real: bool[B, L]."""
    result = {}
    for name in ours.keys() & {*STATES}:
        difference = np.abs(ours[name] - theirs[name])
        by_token = name in ("hidden_states", "mlm_logits")
        result[name] = (difference[..., real, :] if by_token else difference).max()
    for name in ours.keys() & {*LOSSES}:
        result[name] = abs(ours[name] / theirs[name] - 1)
    expected = names.by_path(params_of(within(theirs, "gradient/")))
    for name, array in names.by_path(ours["gradient"]).items():
        scale = max(np.abs(expected[name]).max(), FLOOR)
        result[f"gradient/{name}"] = np.abs(array - expected[name]).max() / scale
    return result


def check(differences: dict, states: float, gradients: float, losses: float = 1e-6) -> None:
    """Asserts that all differences are below their limits."""
    limits = dict.fromkeys(STATES, states) | dict.fromkeys(LOSSES, losses)
    wrong = {name: x for name, x in differences.items() if not x < limits.get(name, gradients)}
    assert not wrong, wrong


def within(arrays: dict, prefix: str) -> dict:
    """Returns the arrays whose names start with a prefix, by the rest of their names."""
    size = len(prefix)
    return {name[size:]: array for name, array in arrays.items() if name.startswith(prefix)}
