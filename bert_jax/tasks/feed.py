"""The source of a run's batches: the token store, read by TensorFlow, or saved batches, read without it.

A machine that reads only saved batches needs no TensorFlow: run `pip install --no-deps .`, and install jax flax optax
orbax-checkpoint ml-collections tokenizers sentencepiece protobuf safetensors tensorboardX tqdm.

Both types of feed have

    key, path           the config key that names the directory, and its path; it has a copy of the `tokenizer`
    fingerprint         that of the store, whose content decides every batch
    unigram_entropy     of the training split, in nats
    vocabulary          Vocabulary
    splits              the names of the splits that are evaluated
    score, review       the functions of the dataset, or None
    train(phase, first, last, positions)    the batches of steps first..last-1 of the run, all in `phase`
    evaluation(phase, split, batch, positions)    batches of such a split, the same at every iteration
    check_hashes()      raises BadInput if the SHA-256 of a file differs from the manifest

Batches are NumPy arrays (the batch contract in batch.py). positions: the rows of each batch to make; all by default.
"""

from collections.abc import Callable, Iterable, Iterator

import jax
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import batch_files, download, mixture, origin
from bert_jax.data import store as stores
from bert_jax.data.batch_files import SavedFeed
from bert_jax.errors import BadInput
from bert_jax.tasks import base
from bert_jax.tasks.supervised import examples
from bert_jax.tokenizers.special_tokens import Vocabulary, check_task


def open_feed(config: ConfigDict, step: int | None = None) -> "StoreFeed | SavedFeed":
    """Opens the store or the saved batches of a config.

    Without `step`, opens existing files and verifies their hashes if config.verify_store is set. With `step`, prepares
    a missing store, and raises BadInput unless a run can continue from this step to its end; the run itself verifies
    the hashes.
    """
    if config.batches:
        check_unscored(config)
        read = batch_files.read_manifest
        path = download.local(config.batches, hashes=config.verify_store, read=read)
        saved = read(path)["config"]
        base.take_filled(config, {key: saved.get(f"task.{key}", ()) for key in config.task})
        splits = base.make(config).splits[1:]
        feed = SavedFeed(config, path, splits, made_from(config, saved))
        if step is not None:
            feed.check(step)
    elif step is None:
        path = download.local(config.store, hashes=config.verify_store)
        feed = StoreFeed(config, stores.open_store(path))
    else:
        log = print if jax.process_index() == 0 else lambda line: None
        feed = prepare_feed(config, log)
    if step is None and config.verify_store:
        feed.check_hashes()
    return feed


def made_from(config: ConfigDict, saved: dict) -> dict:
    """Returns the config keys that decide the content of a store. saved: those of saved batches, which say what files
    were that are missing now."""
    if examples.of(config):
        return {"task.data": saved.get("task.data")} | examples.made_from(config)
    return origin.made_from(config)


def check_unscored(config: ConfigDict) -> None:
    """Raises BadInput for a task that cannot use saved batches: its scores need a store, or its batches have several
    lengths."""
    dataset = base.make(config)
    if dataset.score or (dataset.sizes and dataset.cuts_training):
        reason = "its rows are those of a store, not of saved batches"
        if not dataset.cuts_training:
            reason = "saved batches have the arrays of the loss alone; set config.task.metrics=()"
        raise BadInput(f"config.task.name={config.task.name}: {reason}")


def prepare_feed(config: ConfigDict, log: Callable[[str], None]) -> "StoreFeed":
    """Opens the store of a config, as `open_or_prepare` does, for its batches.

    Raises BadInput, too, if TensorFlow is missing, or the store with several processes.
    """
    import_stream()  # reported before hours of work
    base.check_prepared(config)
    feed = StoreFeed(config, open_or_prepare(config, log))
    feed.mixed()  # refused before anything is compiled
    return feed


def open_or_prepare(config: ConfigDict, log: Callable[[str], None]) -> stores.Store:
    """Opens the store of a config, of running text or of examples; prepares it first if it is missing.

    If its text has changed since, logs a line, and opens it as it is. Raises BadInput if another config built it.
    """
    from bert_jax.data.preparation import prepare

    if examples.of(config):
        return examples.open_or_build(config)
    if not download.exists(config.store):
        prepare.prepare(config, log)
    store, changed = prepare.open_matching(config)
    if changed:
        log(f"{changed}; the store is used as it is")
    return store


def import_stream():
    """Imports bert_jax.data.stream, and with it TensorFlow. Raises BadInput if TensorFlow is not installed."""
    try:
        from bert_jax.data import stream
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        hint = "save batches where it is installed: bert-jax inspect --steps A:B --save DIR"
        raise BadInput(f"config.batches='': no TensorFlow to read the store; {hint}") from None
    return stream


class StoreFeed:
    """A feed that makes batches from the token store on demand."""

    key = "store"

    def __init__(self, config: ConfigDict, store: stores.Store):
        """Raises BadInput if the rows of a phase cannot be made from the store, or if its vocabulary lacks special
        tokens or word marks that the task needs."""
        check_task(config, store.tokenizer, store.path)
        self.stream = import_stream()
        self.config = config
        self.store = store
        self.path = store.path
        base.fill(config, store)
        self.dataset = base.make(config, store)
        self.splits = self.dataset.splits[1:]
        self.score = self.dataset.score
        self.review = self.dataset.review
        self.fingerprint = store.fingerprint
        self.unigram_entropy = store.manifest["unigram_entropy"]
        self.vocabulary = Vocabulary(store.manifest["vocabulary"], **store.manifest["special"])
        self.tokens = mixture.tokens_of(store.manifest["sources"])  # of each source that has a name

    def mixed(self) -> list[mixture.Mixed]:
        """Returns the rows of each phase with a mixture. Raises BadInput if a source has too few."""
        split = self.dataset.splits[0]
        phases = [phase for phase in configs.phases(self.config) if phase.mixture]
        return [mixture.Mixed(self.dataset, phase, split, self.config.seed) for phase in phases]

    def train(self, phase, first: int, last: int, positions=None) -> Iterator[dict]:
        split = self.dataset.splits[0]
        seed = self.config.seed
        pipeline = self.stream.Pipeline(self.dataset, phase, split, seed, phase.batch, positions)
        return self.stream.batches(pipeline, first - phase.first, last - phase.first)

    def evaluation(self, phase, split: str, batch: int, positions=None) -> Iterable[dict]:
        rows = self.config.evaluate.rows
        if self.tokens and split != self.splits[0]:  # of one source
            rows = max(1, rows // len(self.tokens))
        return self.stream.EvaluationBatches(self.dataset, phase, split, rows, batch, positions)

    def check_hashes(self) -> None:
        stores.open_store(self.path, hashes=True)
