"""Pairs and masks of BERT's own create_pretraining_data.py and ours, on the same tokens: shares over several seeds.

python tests/kits/original_program.py --original DIR --text FILE --vocabulary FILE [--seeds 5] [--copies 5]

DIR has the files create_pretraining_data.py and tokenization.py of google-research/bert. The text has one sentence a
line, and blank lines between documents; the original's tokenizer reads it for both. Prints a Markdown table: the mean
over the seeds with its standard error, and the difference of the means in standard errors.
"""

import argparse
import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

LENGTH, PREDICTIONS = 128, 20
FORMATS = {
    "rows per document and pass": ".3f", "random B": ".4f", "full rows": ".4f", "truncated pairs": ".4f",
    "tokens of a row": ".2f", "tokens of A": ".2f", "tokens of B": ".2f", "masks of a row": ".3f",
    "masks: [MASK]": ".4f", "masks: other": ".4f", "masks: kept": ".4f",
}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("original", "text", "vocabulary"):
        options.add_argument(f"--{name}", required=True)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--copies", type=int, default=5, help="passes over the text")
    options = options.parse_args()
    program, tokenizer, documents = load_original(options)
    seeds = range(1, options.seeds + 1)
    theirs = [
        original(program, tokenizer, documents, options.copies, seed, options.text)
        for seed in seeds
    ]
    with tempfile.TemporaryDirectory() as directory:
        store = make_store(Path(directory) / "store", tokenizer, documents)
        mine = [ours(store, options.copies, seed) for seed in seeds]
    print(
        f"| {options.seeds} seeds | the original | ours | difference |\n| --- | --- | --- | --- |"
    )
    for name, form in FORMATS.items():
        values = np.array([[run[name] for run in runs] for runs in (theirs, mine)])
        means, errors = values.mean(1), values.std(1, ddof=1) / np.sqrt(options.seeds)
        cells = [f"{a:{form}} ± {b:{form}}" for a, b in zip(means, errors, strict=True)]
        difference = (means[1] - means[0]) / np.hypot(*errors)
        print(f"| {name} | {' | '.join(cells)} | {difference:+.1f} |")


def load_original(options):
    """Returns the original's module, by TensorFlow's names of version 1, its tokenizer, and the documents' tokens."""
    sys.modules["tensorflow"] = tf.compat.v1
    sys.path.insert(0, options.original)
    import create_pretraining_data as program
    import tokenization

    sys.modules["tensorflow"] = tf
    program.FLAGS(["program", "--input_file=-", "--output_file=-", "--vocab_file=-"])
    tokenizer = tokenization.FullTokenizer(options.vocabulary, do_lower_case=True)
    tokenizer.tokenize = functools.cache(tokenizer.tokenize)  # the program tokenizes for each seed
    texts = Path(options.text).read_text().split("\n\n")
    documents = [[tokenizer.tokenize(line) for line in text.splitlines()] for text in texts]
    documents = [[sentence for sentence in document if sentence] for document in documents]
    return program, tokenizer, [document for document in documents if document]


def original(program, tokenizer, documents, copies: int, seed: int, text: str) -> dict:
    """Returns the shares of the original's rows."""
    import random

    truncated, truncate = [], program.truncate_seq_pair

    def count(a, b, room, rng):
        truncated.append(len(a) + len(b) > room)
        truncate(a, b, room, rng)

    program.truncate_seq_pair = count
    settings = copies, 0.1, 0.15, PREDICTIONS, random.Random(seed)
    made = program.create_training_instances([text], tokenizer, LENGTH, *settings)
    program.truncate_seq_pair = truncate
    kinds = np.zeros(3)
    for row in made:
        for place, target in zip(row.masked_lm_positions, row.masked_lm_labels, strict=True):
            shown = row.tokens[place]
            kinds[0 if shown == "[MASK]" else 2 if shown == target else 1] += 1
    b = np.array([sum(row.segment_ids) - 1 for row in made])
    a = np.array([len(row.tokens) for row in made]) - b - 3
    random_b = np.array([row.is_random_next for row in made])
    return shares(a, b, random_b, np.mean(truncated), kinds, copies * len(documents))


def shares(a, b, random_b, truncated: float, kinds, documents: int) -> dict:
    """a, b, random_b: [R], lengths and whether B is random. kinds: numbers of [MASK], other and kept tokens."""
    masks = dict(zip(("[MASK]", "other", "kept"), kinds / kinds.sum(), strict=True))
    return {
        "rows per document and pass": len(a) / documents,
        "random B": random_b.mean(),
        "full rows": (a + b + 3 == LENGTH).mean(),
        "truncated pairs": truncated,
        "tokens of a row": (a + b + 3).mean(),
        "tokens of A": a.mean(),
        "tokens of B": b.mean(),
        "masks of a row": kinds.sum() / len(a),
    } | {f"masks: {kind}": share for kind, share in masks.items()}


def make_store(path: Path, tokenizer, documents):
    from kits import stores

    ids = [[tokenizer.convert_tokens_to_ids(sentence) for sentence in d] for d in documents]
    names = dict(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
    stores.SPECIAL.update({name: tokenizer.vocab[piece] for name, piece in names.items()})
    return stores.make_store(path, ids, vocabulary=len(tokenizer.vocab))


def ours(store, copies: int, seed: int) -> dict:
    """Returns the shares of our rows, in as many epochs."""
    from kits import pairs

    from bert_jax.tasks import pair_rows

    spec = pairs.Spec(seed, 0, LENGTH, 64, PREDICTIONS, "nsp", "token", 0.15, 0.8, 0.1, 0.1)
    split, truncated, limit = store.splits["train"], [], pair_rows.truncated_lengths

    def count(a, b, room):
        truncated.append(a + b > room)
        return limit(a, b, room)

    pair_rows.truncated_lengths = count
    index = [part for n in range(copies) for part in pair_rows.build(split, spec.rules, n)]
    pair_rows.truncated_lengths = limit
    rows, kinds = pair_rows.unpack(np.concatenate(index)), np.zeros(3)
    words, mask = np.ones(store.manifest["vocabulary"], bool), store.manifest["special"]["mask"]
    steps = copies * pairs.steps_per_epoch(store, spec)
    for batch in pairs.train_batches(store, words, spec, 0, steps):
        shown = np.take_along_axis(batch["tokens"], batch["masked_positions"], 1)
        used, kept = batch["masked_weights"] > 0, shown == batch["masked_targets"]
        masked = shown == mask
        kinds += [(used & masked).sum(), (used & ~masked & ~kept).sum(), (used & kept).sum()]
    kinds *= len(rows.label) / (steps * spec.batch)  # rows that fill no batch are left out
    documents = copies * len(split.document_ends)
    truncated = np.concatenate(truncated).mean()
    return shares(rows.a_length, rows.b_length, rows.label, truncated, kinds, documents)


if __name__ == "__main__":
    main()
