"""Where a run's batches come from: the token store, by TensorFlow, or saved batches, without it.

A machine that only reads saved batches needs no TensorFlow: `pip install --no-deps .`, and beside it jax flax optax
orbax-checkpoint ml-collections tokenizers sentencepiece protobuf safetensors tensorboardX tqdm.

Both kinds of feed have

    key, path           the key of the config that names it, and the directory, which has a copy of the `tokenizer`
    fingerprint         the store's, whose content decides every batch
    unigram_entropy     nats, of the training split
    vocabulary          Vocabulary
    train(phase, first, last, positions)    the batches of steps first..last-1 of the run, all of `phase`
    heldout(phase, batch, positions)        held-out batches, the same at every iteration, and how many `rows`
    check_hashes()      raises BadInput where a file is not what was written
    check_unchanged()   raises BadInput where a file has changed since the feed was opened; a stat a file where none has

where batches are NumPy arrays (the batch contract), and positions are the rows to make of each, by default all.
"""

from collections.abc import Iterable, Iterator

import jax
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import batch_files, batch_spec, download
from bert_jax.data import manifest as manifests
from bert_jax.data import store as stores
from bert_jax.data.batch_files import SavedFeed
from bert_jax.data.sentence_pairs import check_rules
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.special_tokens import Vocabulary


def open_feed(config: ConfigDict, step: int | None = None) -> "StoreFeed | SavedFeed":
    """What a config reads, as it is there, its hashes checked if the config says so; with a step, all that a run needs
    from this step on, or BadInput: a store is prepared if it is missing, and hashes are left to the run."""
    if config.batches:
        hashes, read = config.verify_store, batch_files.read_manifest
        feed = SavedFeed(config, download.local(config.batches, hashes=hashes, read=read))
    elif step is None:
        place = download.local(config.store, hashes=config.verify_store)
        feed = StoreFeed(config, stores.open_store(place))
    else:
        feed = StoreFeed(config, prepared(config))
    if step is not None:
        feed.check(step)
    elif config.verify_store:
        feed.check_hashes()
    return feed


def prepared(config: ConfigDict) -> stores.Store:
    """The store of a config, prepared first if it is missing; it has to be of this config."""
    from bert_jax.data import prepare

    import_stream()  # before hours of work, not after them
    if not download.is_there(config.store):
        if jax.process_count() > 1:
            raise BadInput(f"config.store={config.store}: missing; run bert-jax prepare first")
        prepare.prepare(config)
    return prepare.open_or_refuse(config)


def import_stream():
    """bert_jax.data.stream, with TensorFlow."""
    try:
        from bert_jax.data import stream
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise BadInput(
            "config.batches='': TensorFlow, which reads the token store, is not installed; on a machine that has it,"
            " bert-jax inspect --steps A:B --save DIR makes batches for this one"
        ) from None
    return stream


class StoreFeed:
    """Batches made from the token store as they are needed."""

    key = "store"

    def __init__(self, config: ConfigDict, store: stores.Store):
        self.stream = import_stream()
        self.config, self.store, self.path = config, store, store.path
        self.fingerprint = store.fingerprint
        self.unigram_entropy = store.manifest["unigram_entropy"]
        self.vocabulary = Vocabulary(store.manifest["vocabulary"], **store.manifest["special"])
        self.word_starts = tokenizer.load(store.path / "tokenizer").word_starts
        self.check_unchanged = manifests.watch(store.path, store.manifest)

    def check(self, step: int) -> None:
        """Raises BadInput where rows of a phase cannot be made."""
        for phase in configs.phases(self.config):
            for split in self.store.splits.values():
                check_rules(split, batch_spec.spec(self.config, phase.name).rules)

    def train(self, phase, first: int, last: int, positions=None) -> Iterator[dict]:
        spec = batch_spec.spec(self.config, phase.name)
        steps = first - phase.first, last - phase.first
        return self.stream.train_batches(self.store, self.word_starts, spec, *steps, positions)

    def heldout(self, phase, batch: int, positions=None) -> Iterable[dict]:
        spec = batch_spec.spec(self.config, phase.name)._replace(batch=batch)
        rows = self.config.evaluate.rows
        return self.stream.Heldout(self.store, self.word_starts, spec, rows, positions)

    def check_hashes(self) -> None:
        stores.open_store(self.path, hashes=True)
