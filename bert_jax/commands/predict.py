"""`predict`: predicts the pieces at [MASK] in texts."""

from pathlib import Path

import jax
import numpy as np

from bert_jax import cli
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.objectives import fill_mask

MODEL = "directory of a run, or of a model of another program"
OPTIONS = [
    cli.option("--model --workdir", MODEL, type=cli.to_address, **cli.REQUIRED),
    cli.option("--top", "number of candidates for each mask", type=cli.positive, default=5),
    cli.option("texts", "text with one or more [MASK]", nargs="+", metavar="TEXT"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    values = predict(options.model, options.texts, options.top)
    return cli.show(options, values, "\n".join(map(describe, values)))


def predict(directory: Path, texts: list[str], top: int = 5) -> list[dict]:
    """Returns [{text, masks: [[{piece, probability}]]}]: the `top` most likely pieces for each mask of each text."""
    model = load_model.open_model(directory)
    load_model.check_masks(directory, model)
    model = model._replace(params=jax.device_put(model.params))
    return [predict_text(model, text, top) for text in texts]


def predict_text(model, text: str, top: int) -> dict:
    """Returns the result of one text."""
    outputs = jax.jit(model.objective.outputs)(model.params, encode(model, text))
    logits = outputs["mlm_logits"][0, :, : model.vocabulary.size]
    masks = []
    for row in np.asarray(jax.nn.softmax(logits, axis=-1)):
        best = np.argsort(-row)[:top]
        masks.append(
            [{"piece": model.tokenizer.readable(id), "probability": float(row[id])} for id in best]
        )
    return {"text": text, "masks": masks}


def encode(model, text: str) -> dict:
    """Returns a batch of one row, whose masked positions are the masks of the text."""
    try:
        text.encode()
    except UnicodeEncodeError:  # the bytes of the argument are not UTF-8
        raise BadInput(f"{text[:40]!r}: not UTF-8") from None
    ids = model.tokenizer.encode_with_masks(text)
    masks, longest = ids.count(model.vocabulary.mask), model.config.model.max_length
    if not masks:
        raise BadInput(f"{text!r}: has no [MASK] to fill in")
    if len(ids) + 2 > longest:
        raise BadInput(
            f"{text[:40]!r}...: {len(ids) + 2} tokens, the model has {longest} positions"
        )
    # Lengths are rounded up to multiples of 32, so that texts share compiled programs.
    length = min(longest, -(-(len(ids) + 2) // 32) * 32)
    return fill_mask.make_batch([ids], 1, length, masks, model.vocabulary)


def describe(result: dict) -> str:
    """Returns the text, and a line for each mask."""
    lines = [result["text"]]
    for number, candidates in enumerate(result["masks"], 1):
        shown = "  ".join(f"{c['piece']} {c['probability']:.3f}" for c in candidates)
        lines.append(f"  [MASK] {number}: {shown}")
    return "\n".join(lines)
