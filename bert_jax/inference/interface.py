"""The Python interface: a model in use, see `bert_jax.load`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.convert import open_model
from bert_jax.data.sources.text import replace_surrogates
from bert_jax.errors import BadInput
from bert_jax.inference import (
    attention,
    features,
    fill_mask,
    generate,
    perplexity,
    predict,
    token_scores,
)
from bert_jax.inference.attention import AttentionWeights

BEAMS = predict.BEAMS
Texts = str | Sequence[str]


class Model:
    """A model in use, which `bert_jax.load` opens. Its methods are what the commands call.

    A method takes a text and returns its result, or a list of texts and returns the list of their results. It raises
    `bert_jax.errors.BadInput` for a text that a command would refuse, and for what the model cannot do.
    """

    def __init__(self, name: Path | str, dtype: str):
        self.name = name
        model = open_model.open_model(name, [f"dtype={dtype}"], head="label")
        self.loaded = model._replace(params=jax.device_put(model.params))
        self.searches = {}  # {(beams, length_penalty): the model that translates by them}

    def __repr__(self) -> str:
        config = self.loaded.config
        abilities = ", ".join(["encode", *self.loaded.objective.can])
        return f"bert_jax.load({str(self.name)!r})  # {config.model.name}: {abilities}"

    def fill(self, texts: Texts, top: int = 5) -> list[list[dict]] | list[list[list[dict]]]:
        """Returns [{piece, probability}] of the `top` most likely pieces for each [MASK] of a text."""
        self.check("fill")

        def run(texts):
            return fill_mask.candidates(self.loaded, texts, top, locations(texts))

        return each(texts, run)

    def encode(self, texts: Texts, layers: int | str = -1, pool: str = "mean") -> np.ndarray | list:
        """Returns float32[D] of a text, float32[texts, D] of several: the mean of the vectors of its tokens.

        layers: an index or, as text, a slice of the layers whose states are joined; 0 is the embeddings.
        pool: mean, max, first, last, concat or summary, as of `bert-jax features`; none for float32[tokens, D].
        """

        def run(texts):
            vectors, ends, _ = features.encode(self.loaded, texts, str(layers), pool)
            return vectors if pool != "none" else np.split(vectors, ends[:-1])

        return each(texts, run)

    def predict(
        self, texts: str | tuple[str, ...] | Sequence[str | tuple[str, ...]]
    ) -> dict | list[dict]:
        """Returns {prediction, ...} of a text as `bert-jax predict --json` does, of a fine-tuned model. A tuple is one
        example of several texts, such as a question and the text with its answer."""
        self.check("label", "answer")

        def run(texts):
            examples = []
            for text in texts:
                parts = [text] if isinstance(text, str) else [*text]
                made = predict.read_examples(self.loaded, parts)
                if len(made) != 1:
                    raise BadInput(f"{parts}: expected the texts of one example in a tuple")
                examples += made
            return predict.predict_examples(self.loaded, examples)[0]

        return each(texts, run)

    def translate(
        self, texts: Texts, beams: int = BEAMS, length_penalty: float | None = None
    ) -> str | list[str]:
        """Returns the translation of a text, by a beam search; one beam is a greedy search."""
        self.check("translate")
        model = self._with_search(beams, length_penalty)

        def run(texts):
            results, _ = predict.predict_examples(model, predict.read_examples(model, texts))
            return [result["prediction"] for result in results]

        return each(texts, run)

    def generate(self, texts: Texts, **options: float | str | Sequence[str]) -> list:
        """Returns the list of continuations of a text, without it: one, or `samples` of them.

        options: tokens, temperature, top_k, top_p, samples, seed, stop (a text, or several), beams, length_penalty, as
            of `bert-jax predict`.
        """
        self.check("continue")
        stop = options.get("stop", ())
        if stop:
            options["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        request = generate.make_request(options)
        return each(texts, lambda texts: generate.generate(self.loaded, texts, request))

    def score(self, texts: Texts, masking: str | None = None) -> np.ndarray | float:
        """Returns float64[texts], log-probabilities in nats; of a masked model pseudo-log-likelihoods.

        masking: what a masked model does not see of a word when it scores a piece: `word` (the default) or `token`.
        """
        self.check("score")
        token_scores.check_masking(self.name, self.loaded, masking)

        def run(texts):
            return token_scores.score_sentences(self.loaded, texts, locations(texts), masking)[0]

        return each(texts, run)

    def perplexity(self, texts: Texts, stride: int = 0) -> dict:
        """Returns perplexity, bits_per_byte and other measures of a causal model on all texts, by sliding windows.

        stride: tokens that a window scores; 0: half a window.
        """
        self.check("continue")
        perplexity.check_stride(self.name, self.loaded, stride)
        return perplexity.evaluate(
            self.loaded, [texts] if isinstance(texts, str) else texts, stride
        )

    def attention(self, text: str, second: str | None = None) -> AttentionWeights:
        """Returns the attention of all layers and heads in a text; the last expression of a notebook's cell shows it.

        second: of a pair of texts; for a model that translates, the translation, by default its own.
        """
        model = self.loaded
        if model.can("translate"):
            model = self._with_search(BEAMS, None)
        texts = [text] if second is None else [text, second]
        [result] = each(texts, lambda texts: [attention.compute(model, self.name, texts)])
        return result

    def _with_search(self, beams: int, length_penalty: float | None) -> Any:
        """Returns the model that translates by this search; it is made once."""
        key = beams, length_penalty
        if key not in self.searches:
            search = {"beams": beams, "length_penalty": length_penalty}
            self.searches[key] = predict.with_search(self.loaded, search)
        return self.searches[key]

    def check(self, *abilities: str) -> None:
        """Raises BadInput for a model that has none of these abilities."""
        open_model.check_can(self.name, self.loaded, *abilities)


def each(texts, run: Callable) -> Any:
    """Returns what a function of a list of texts returns, an empty list of none; of a single text or tuple, the first
    of its results. Lone surrogates become U+FFFD."""
    is_single = isinstance(texts, str | tuple)
    texts = [texts] if is_single else [*texts]
    if not texts:
        return []
    for text in texts:
        if not isinstance(text, str | tuple):
            raise BadInput(f"{text!r}: expected text")
    results = run(replace_surrogates(texts))
    return results[0] if is_single else results


def locations(texts: list[str]) -> list[str]:
    """Returns the names of texts in messages."""
    return [repr(text[:40]) for text in texts]
