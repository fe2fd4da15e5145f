"""XLNet's task: rows of two texts, some of which are read backwards, and an order of the tokens to predict.

Rows are those of sentence_pairs: a text, and the one that follows it or, for half of the rows, one of another document.
[SEP] ends both, and [CLS] the row. As the authors' data has it, half of the rows are of text that is read backwards.
The tokens to predict are whole words of spans, as in ngram masking, but are not replaced: `ranks` hides them.
"""

from dataclasses import replace

from bert_jax.checks import require
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset
from bert_jax.tasks.text import masked_rows, mlm_batch, sentence_pairs
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = sentence_pairs.DEFAULTS | {
    "masking": "ngram",  # what is predicted at once, see sentence_pairs
    "mask_rate": 1 / 6,  # share of tokens that are predicted
    "mask_share": 0.0,  # no token is replaced
    "random_share": 0.0,
    "backward_share": 0.5,  # share of rows of text that is read backwards
}
PHASE_DEFAULTS = sentence_pairs.PHASE_DEFAULTS
NEEDS = masked_rows.NEEDS


def check(config) -> None:
    """Raises BadInput for the first of the task's keys that has an invalid value."""
    sentence_pairs.check(config)
    is_share = 0 <= config.task.backward_share <= 1
    require(is_share, "task.backward_share", config, "expected a share in [0, 1]")
    for name in ("mask_share", "random_share"):
        require(not config.task[name], f"task.{name}", config, "expected 0: no token is replaced")
    for name, phase in config.phases.items():
        hint = "expected 1: rows are not packed"
        require(phase.max_packed == 1, f"phases.{name}.max_packed", config, hint)


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py."""

    def shapes(phase, rows: int) -> dict:
        arrays = {
            mlm_batch.MASKED_ARRAYS: (rows, phase.keys.max_predictions),
            "ranks": (rows, phase.length),
        }
        return batch.shapes(rows, phase.length) | batch.structs(arrays)

    def make_batch(phase, split: str, rows, keys) -> dict:
        from xlnet import permutation  # imports TensorFlow

        from bert_jax.data import assemble

        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        special = store.manifest["special"]
        frame = frame_of(config).ids(special)
        is_backward = permutation.choose_backward(rows, keys, config.task.backward_share)
        rows = permutation.swap_texts(rows, is_backward)
        paired = sentence_pairs.is_paired(config)
        arrays = assemble.gather(tokens, rows, phase.length, frame, special["pad"], paired)
        is_text = arrays["maskable"]
        arrays = masked_rows.mask(config, phase, split, store, None, keys, arrays)
        # Words and spans are those of the text as it is written.
        arrays = permutation.reverse_texts(arrays, rows, frame, is_backward)
        arrays["ranks"] = permutation.ranks(arrays, is_text, keys)
        return {name: arrays[name] for name in shapes(phase, 1) if name in arrays}

    return replace(sentence_pairs.make(config, store), shapes=shapes, make=make_batch)
