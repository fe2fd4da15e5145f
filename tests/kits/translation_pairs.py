"""A task outside of the package whose examples are pairs of texts without labels: both are in a row, and masked
(translation language modelling, arXiv:1901.07291)."""

from bert_jax.data import batch
from bert_jax.data.dataset import Dataset
from bert_jax.tasks.supervised import examples, parallel_texts, texts
from bert_jax.tasks.text import masked_rows, mlm_batch
from bert_jax.tokenizers.special_tokens import frame_of

DEFAULTS = {**parallel_texts.DEFAULTS, **masked_rows.DEFAULTS, "text": ("en", "de")}
PHASE_DEFAULTS = masked_rows.PHASE_DEFAULTS
EXAMPLES = examples.Examples(
    load=parallel_texts.load,
    parse=parallel_texts.parse,
    encode=parallel_texts.encode,
)


def check(config):
    texts.check(config, paired=True)
    masked_rows.check(config, paired=True)


def make(config, store=None):
    frame = frame_of(config)

    def shapes(phase, rows):
        masked = batch.structs({mlm_batch.MASKED_ARRAYS: (rows, phase.keys.max_predictions)})
        return batch.shapes(rows, phase.length) | masked

    def rows(phase, split, epoch):
        return texts.pairs(store.splits[split], phase.length, frame)

    def make_batch(phase, split, rows, keys):
        from bert_jax.data import assemble

        tokens = assemble.map_file(store.splits[split].path / "tokens.npy")
        special = store.manifest["special"]
        around = frame.ids(special), special["pad"]
        arrays = assemble.gather(tokens, rows, phase.length, *around, paired=True)
        arrays = masked_rows.mask(config, phase, split, store, None, keys, arrays)
        return {name: arrays[name] for name in shapes(phase, 1) if name in arrays}

    splits = examples.split_names(config)
    return Dataset(shapes=shapes, splits=splits, rows=rows, make=make_batch)
