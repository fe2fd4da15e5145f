"""Writes bert.npz: values of BERT, ALBERT and ModernBERT in transformers, and of the original optimizer, in float64.

python tests/golden/make_bert.py        (needs torch and transformers; the file has their `versions`)

`schedule` is the optimizer's schedule (JSON). Each case has `{case}/config` (JSON, of its class) and, as float32,
    before/NAME, after/NAME        the parameters before and after the optimizer's steps
    steps/NAME[N, B, L or none]    the batches of these steps
    rows/..., one/...              all values of the first of these batches, and of a batch whose rows have one token:
        batch/NAME, hidden_states[layers + 1, B, L, D] with the embeddings' first, pooled[B, D], mlm_logits[B, L, V],
        pair_logits[B, 2], mlm_loss, nsp_loss, loss, gradient/NAME; ModernBERT has no pooled, pair_logits and nsp_loss
The NAMEs of parameters and batches are those of transformers.
"""

import json
import re
from pathlib import Path

import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy

FILE = Path(__file__).parent / "bert.npz"
SMALL = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
# The epsilon of the second case is large, so that code that ignores it fails.
CASES = {
    "tanh": dict(SMALL, vocab_size=61, max_position_embeddings=16, type_vocab_size=2)
    | dict(hidden_act="gelu_new", layer_norm_eps=1e-12),
    "exact": dict(SMALL, vocab_size=130, max_position_embeddings=11, type_vocab_size=3)
    | dict(hidden_act="gelu", layer_norm_eps=1e-3),
    # The second of three layers sees two tokens to each side.
    "modern": SMALL
    | dict(model_type="modernbert", vocab_size=130, max_position_embeddings=16, pad_token_id=0)
    | dict(num_hidden_layers=3, global_attn_every_n_layers=2, local_attention=4)
    | dict(norm_eps=1e-3, global_rope_theta=50.0),
    "shared": SMALL
    | dict(model_type="albert", vocab_size=61, max_position_embeddings=11, type_vocab_size=2)
    | dict(num_hidden_layers=3, embedding_size=8, hidden_act="gelu_new", layer_norm_eps=1e-3),
}
# {model_type: class with all heads}
CLASSES = {
    "bert": "BertForPreTraining",
    "albert": "AlbertForPreTraining",
    "modernbert": "ModernBertForMaskedLM",
}
STEPS = 10
# Of the learning rate. A higher peak would amplify the rounding of the key biases' gradients, which are zero.
SCHEDULE = dict(peak=3e-4, warmup=4, total=20)
BETA1, BETA2, EPSILON, DECAY, CLIP = 0.9, 0.999, 1e-6, 0.01, 1.0


def make_model(config: dict, draw: np.random.Generator, deviation: float = 0.2):
    """Returns a model with its heads, without dropout, in float32; no bias is 0 and no scale is 1."""
    keys = {"model_type": "bert"} | config
    settings = transformers.AutoConfig.for_model(**keys)
    model = getattr(transformers, CLASSES[keys["model_type"]])(settings).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = deviation * draw.standard_normal(parameter.shape, np.float32)
            scale = name.lower().endswith("norm.weight")
            parameter.copy_(torch.from_numpy(values + np.float32(scale)))
    return model


def make_batch(config: dict, draw: np.random.Generator, lengths: list[int], width: int) -> dict:
    """Returns rows of these lengths, padded to `width`, and at least one prediction.

    Every other row has all segments, the others only the first.
    """
    lengths = np.array(lengths)[:, None]
    positions = np.broadcast_to(np.arange(width), (len(lengths), width))
    real = positions < lengths
    chosen = (draw.random(real.shape) < 0.3) & real
    chosen[0, 0] = True
    tokens, labels = (draw.integers(5, config["vocab_size"], real.shape) for _ in range(2))
    batch = dict(input_ids=tokens * real, attention_mask=real.astype(np.int64))
    batch["labels"] = np.where(chosen, labels, -100)
    if segments := config.get("type_vocab_size"):
        batch["token_type_ids"] = positions * segments // lengths * real
        batch["token_type_ids"][1::2] = 0
        batch["next_sentence_label"] = draw.integers(0, 2, len(lengths))
    return batch


def evaluate(model, batch: dict) -> dict:
    """Returns all values of a batch, in the model's data type; the losses are normalised as in the original code."""
    inputs = {name: torch.from_numpy(array) for name, array in batch.items()}
    labels, pairs = inputs.pop("labels"), inputs.pop("next_sentence_label", None)
    outputs = model(**inputs, output_hidden_states=True)
    logits = outputs.logits if pairs is None else outputs.prediction_logits
    nats = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    mlm_loss = nats / ((labels >= 0).sum() + 1e-5)
    states = torch.stack(outputs.hidden_states)
    values = dict(hidden_states=states, mlm_logits=logits, mlm_loss=mlm_loss, loss=mlm_loss)
    if pairs is not None:
        is_albert = model.config.model_type == "albert"
        pair_logits = outputs.sop_logits if is_albert else outputs.seq_relationship_logits
        nsp_loss = cross_entropy(pair_logits, pairs)
        values |= dict(
            pooled=model.base_model(**inputs).pooler_output,
            pair_logits=pair_logits,
            nsp_loss=nsp_loss,
            loss=mlm_loss + nsp_loss,
        )
    model.zero_grad()
    values["loss"].backward()
    values |= {f"gradient/{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {name: value.detach().numpy() for name, value in values.items()}


def rate(step: int, peak: float, warmup: int, total: int) -> float:
    """Returns the learning rate: linear warm-up, then the linear decay that would have started at step 0."""
    return peak * step / warmup if step < warmup else peak * (1 - step / total)


def optimize(parameters: dict, gradients: dict, moments: dict, rate: float) -> None:
    """Takes one step of the original optimizer in place, on {name: NumPy array or PyTorch tensor}.

    Gradients are clipped by their global norm; Adam has no bias correction; weight decay is decoupled. moments: {name:
    (m, v)}, empty before the first step.
    """
    norm = sum((gradient**2).sum() for gradient in gradients.values()) ** 0.5
    for name, parameter in parameters.items():
        gradient = gradients[name] * (CLIP / max(norm, CLIP))
        m, v = moments.get(name, (0.0, 0.0))
        m = BETA1 * m + (1 - BETA1) * gradient
        v = BETA2 * v + (1 - BETA2) * gradient**2
        moments[name] = m, v
        update = m / (v**0.5 + EPSILON)
        if not re.search("[Nn]orm|bias", name):
            update = update + DECAY * parameter
        parameter -= rate * update


def train(model, batches: list[dict]) -> dict:
    """Trains the model with one step on each batch; returns its parameters."""
    # Views of the model's parameters: changing them changes the model.
    parameters = {name: value.detach().numpy() for name, value in model.named_parameters()}
    moments = {}
    for step, batch in enumerate(batches):
        gradients = {
            name.removeprefix("gradient/"): value
            for name, value in evaluate(model, batch).items()
            if name.startswith("gradient/")
        }
        optimize(parameters, gradients, moments, rate(step, **SCHEDULE))
    return parameters


def make_case(config: dict, seed: int) -> dict:
    draw = np.random.default_rng(seed)
    model = make_model(config, draw).double()
    width = config["max_position_embeddings"]
    batches = [make_batch(config, draw, [width, 9, 1, 7], width)]
    for _ in range(STEPS - 1):
        batches.append(make_batch(config, draw, draw.integers(1, width + 1, 4), width))
    case = {f"before/{name}": value.detach().numpy() for name, value in model.named_parameters()}
    case = {name: array.copy() for name, array in case.items()}
    for part, batch in (("rows", batches[0]), ("one", make_batch(config, draw, [1, 1], 1))):
        case |= {f"{part}/batch/{name}": array for name, array in batch.items()}
        case |= {f"{part}/{name}": array for name, array in evaluate(model, batch).items()}
    for name in batches[0]:
        case[f"steps/{name}"] = np.stack([batch[name] for batch in batches])
    case |= {f"after/{name}": array for name, array in train(model, batches).items()}
    return case


def make() -> dict:
    """Returns all arrays of the file."""
    versions = {module.__name__: module.__version__ for module in (torch, transformers)}
    arrays = {"versions": np.array(json.dumps(versions))}
    arrays["schedule"] = np.array(json.dumps(SCHEDULE))
    for seed, (case, config) in enumerate(CASES.items()):
        arrays[f"{case}/config"] = np.array(json.dumps(config))
        for name, array in make_case(config, seed).items():
            is_integer = np.issubdtype(array.dtype, np.integer)
            arrays[f"{case}/{name}"] = array.astype(np.int16 if is_integer else np.float32)
    return arrays


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())
