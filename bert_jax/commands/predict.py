"""Fills in masks with a trained model."""

from pathlib import Path

import jax
import numpy as np

from bert_jax import cli
from bert_jax.commands import load_model
from bert_jax.data import batch
from bert_jax.errors import BadInput

MODEL = "directory of a run, or of another program's model"
OPTIONS = [
    cli.option("--model", MODEL, type=cli.run_place, **cli.NEEDED),
    cli.option("--top", "candidates a mask", type=cli.positive, default=5),
    cli.option("texts", "with one or more [MASK]", nargs="+", metavar="TEXT"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse(overrides)
    values = predict(options.model, options.texts, options.top)
    return cli.show(options, values, "\n".join(map(describe, values)))


def predict(directory: Path, texts: list[str], top: int = 5) -> list[dict]:
    """[{text, masks: [[{piece, probability}]]}]: for every text its masks in order, each with the `top` likeliest."""
    run = load_model.open_model(directory)
    load_model.check_masks(directory, run)
    return [fill(run, text, top) for text in texts]


def fill(run, text: str, top: int) -> dict:
    outputs = jax.jit(run.objective.outputs)(run.params, encode(run, text))
    probabilities = np.asarray(jax.nn.softmax(outputs["mlm_logits"][0], axis=-1))[
        :, : run.vocabulary.size
    ]
    masks = []
    for row in probabilities:
        best = np.argsort(-row)[:top]
        masks.append(
            [{"piece": run.tokenizer.readable(id), "probability": float(row[id])} for id in best]
        )
    return {"text": text, "masks": masks}


def encode(run, text: str) -> dict:
    """One row, [CLS] text [SEP], whose masked positions are those of its masks."""
    try:
        text.encode()
    except UnicodeEncodeError:  # an argument whose bytes are no UTF-8
        raise BadInput(f"{text[:40]!r}: not UTF-8") from None
    ids = run.tokenizer.encode_with_masks(text)
    ids = [run.vocabulary.cls, *ids, run.vocabulary.sep]
    masked = [place for place, id in enumerate(ids) if id == run.vocabulary.mask]
    if not masked:
        raise BadInput(f"{text!r}: there is no [MASK] to fill in")
    longest = run.config.model.positions
    if len(ids) > longest:
        raise BadInput(f"{text[:40]!r}...: {len(ids)} tokens, the model has {longest} positions")
    # A few lengths instead of one a text, so that texts share compiled programs.
    length = min(longest, -(-len(ids) // 32) * 32)
    arrays = {
        name: np.zeros(leaf.shape, leaf.dtype)
        for name, leaf in batch.shapes(1, length, len(masked)).items()
    }
    arrays["tokens"][0] = run.vocabulary.pad
    arrays["tokens"][0, : len(ids)] = ids
    arrays["positions"][0, : len(ids)] = np.arange(len(ids))
    arrays["sequence_ids"][0, : len(ids)] = 1
    arrays["masked_positions"][0] = masked
    arrays["masked_weights"][0] = 1
    return arrays


def describe(result: dict) -> str:
    """For people: the text, then a line a mask."""
    lines = [result["text"]]
    for number, candidates in enumerate(result["masks"], 1):
        shown = "  ".join(f"{c['piece']} {c['probability']:.3f}" for c in candidates)
        lines.append(f"  [MASK] {number}: {shown}")
    return "\n".join(lines)
