"""Fine-tunes a model using only Hugging Face transformers and PyTorch: the reference for `bert-jax finetune`.

    python benchmarks/finetune_transformers.py --model exported --data DIR --tasks SST-2 STS-B

DIR has GLUE's directories as they are distributed (SST-2/train.tsv) and wnut17/. Prints a Markdown row per task: the
mean and the standard deviation over seeds of the score on the development set, with the best of the learning rates by
the first seed, and the rows a second of training. With --random-weights, a second row has the same network without its
trained weights. Like the users of an export, the script does not import bert_jax. Needs the extra `parity`.
"""

import argparse
import csv
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
import transformers
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

LENGTH = 128  # tokens
IGNORED = -100  # the label that PyTorch's cross entropy ignores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="an exported directory")
    parser.add_argument("--data", type=Path, required=True, help="the directory of the tasks")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[5e-5])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--random-weights", action="store_true", help="as a second row")
    parser.add_argument("--steps", type=int, default=-1, help="at most; to measure the speed")
    parser.add_argument("--padding", choices=("longest", "max_length"), default="longest")
    parser.add_argument("--order", choices=("random", "group_by_length"), default="random")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    for name in options.tasks:
        for is_random in range(1 + options.random_weights):
            print(row(name, is_random, options), flush=True)


def row(name: str, is_random: bool, options) -> str:
    """Returns the Markdown row of a task."""
    task = TASKS[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    train, dev = (task.read(options.data / file) for file in task.files)
    train, dev = ([task.encode(tokenizer, *example) for example in part] for part in (train, dev))

    def trial(rate: float, seed: int) -> tuple[float, float]:
        transformers.set_seed(seed)
        model = task.make(options.model, is_random)
        trainer = make_trainer(model, task, tokenizer, train, rate, seed, options)
        speed = trainer.train().metrics["train_samples_per_second"]
        score = task.score(trainer.predict(dev))
        print(
            f"{name}, rate {rate:g}, seed {seed}: {score:.4f}, {speed:.1f} rows/s", file=sys.stderr
        )
        return score, speed

    first, rate = max((trial(rate, 0), rate) for rate in options.learning_rates)
    scores, speeds = zip(
        first, *(trial(rate, seed) for seed in range(1, options.seeds)), strict=True
    )
    spread = f" +- {stdev(scores):.4f}" if len(scores) > 1 else ""
    weights = "random weights" if is_random else "trained"
    return (
        f"| {name}, {task.metric} on {len(dev)} | {weights} | {mean(scores):.4f}{spread}, rate {rate:g}"
        f" | {mean(speeds):.1f} rows/s |"
    )


def make_trainer(model, task, tokenizer, train, rate, seed, options) -> transformers.Trainer:
    """Returns a Trainer of the recipe of arXiv:1810.04805: AdamW, a tenth of the steps warm-up, linear decay."""
    length = LENGTH if options.padding == "max_length" else None
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=options.epochs,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=64,
        learning_rate=rate,
        weight_decay=0.01,
        warmup_steps=0.1,
        train_sampling_strategy=options.order,
        seed=seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        logging_steps=1_000_000,
    )
    collate = task.collator(tokenizer, padding=options.padding, max_length=length)
    return transformers.Trainer(model, arguments, collate, train_dataset=train)


def read_tsv(path: Path, header: bool) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[header:]


class Texts(NamedTuple):
    """A task on texts or pairs of texts, in a .tsv file."""

    files: tuple[str, str]  # for training and for development
    columns: tuple[int, ...]  # of the texts
    label: int  # the column of the label
    labels: int  # the number of classes; 1 for a score
    metric: str
    compare: Callable  # (labels, predictions) -> score
    header: int = 1  # lines
    names: tuple[str, ...] = ()  # of the classes, where the file does not have their numbers
    collator: Callable = transformers.DataCollatorWithPadding

    def read(self, path: Path) -> Iterator[tuple[list[str], float]]:
        for line in read_tsv(path, self.header):
            label = line[self.label]
            label = self.names.index(label) if self.names else float(label)
            yield [line[i] for i in self.columns], label

    def encode(self, tokenizer, texts: list[str], label: float) -> dict:
        label = label if self.labels == 1 else int(label)
        return {**tokenizer(*texts, truncation=True, max_length=LENGTH), "label": label}

    def make(self, name: str, is_random: bool):
        model = transformers.AutoModelForSequenceClassification
        return load(model, name, is_random, num_labels=self.labels)

    def score(self, results) -> float:
        logits = results.predictions
        values = logits[:, 0] if self.labels == 1 else logits.argmax(-1)
        return float(self.compare(results.label_ids, values))


class Names(NamedTuple):
    """Named entities in CoNLL columns: a word and its BIO label in a line, sentences between empty lines."""

    files: tuple[str, str]
    kinds: tuple[str, ...]
    metric: str = "F1 of names"
    collator: Callable = transformers.DataCollatorForTokenClassification

    @property
    def labels(self) -> list[str]:
        return ["O", *(f"{edge}-{kind}" for kind in self.kinds for edge in "BI")]

    def read(self, path: Path) -> Iterator[tuple[list[str], list[int]]]:
        for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            pairs = [line.split("\t") for line in block.splitlines() if "\t" in line]
            if pairs:
                words, labels = zip(*pairs, strict=True)
                yield list(words), [self.labels.index(label) for label in labels]

    def encode(self, tokenizer, words: list[str], labels: list[int]) -> dict:
        """The first token of a word has its label."""
        arrays = tokenizer(words, is_split_into_words=True, truncation=True, max_length=LENGTH)
        numbers = arrays.word_ids()
        firsts = [word not in numbers[:place] for place, word in enumerate(numbers)]
        pairs = zip(numbers, firsts, strict=True)
        targets = [labels[n] if n is not None and first else IGNORED for n, first in pairs]
        return {**arrays, "labels": targets}

    def make(self, name: str, is_random: bool):
        model = transformers.AutoModelForTokenClassification
        return load(model, name, is_random, num_labels=len(self.labels))

    def score(self, results) -> float:
        targets = []
        predictions = []
        for labels, values in zip(results.label_ids, results.predictions.argmax(-1), strict=True):
            is_used = labels != IGNORED
            targets.append([self.labels[i] for i in labels[is_used]])
            predictions.append([self.labels[i] for i in values[is_used]])
        return float(entity_f1(targets, predictions))


def load(model, name: str, is_random: bool, **settings):
    if is_random:
        return model.from_config(transformers.AutoConfig.from_pretrained(name, **settings))
    return model.from_pretrained(name, **settings)


def spearman(targets, predictions) -> float:
    if np.ndim(targets) > 1:
        targets = targets[:, 0]
    return spearmanr(targets, predictions).statistic


def tsv(name: str, train: str = "train.tsv") -> tuple[str, str]:
    return f"{name}/{train}", f"{name}/dev.tsv"


KINDS = ("corporation", "creative-work", "group", "location", "person", "product")
ENTAILMENT = ("entailment", "not_entailment")
TASKS = {
    "SST-2": Texts(tsv("SST-2"), (0,), 1, 2, "accuracy", accuracy_score),
    "STS-B": Texts(tsv("STS-B"), (7, 8), 9, 1, "Spearman", spearman),
    "MRPC": Texts(tsv("MRPC", "train_3668_rebuilt.tsv"), (3, 4), 0, 2, "F1", f1_score),
    "CoLA": Texts(tsv("CoLA"), (3,), 1, 2, "Matthews", matthews_corrcoef, header=0),
    "RTE": Texts(tsv("RTE"), (1, 2), 3, 2, "accuracy", accuracy_score, names=ENTAILMENT),
    "WNUT-17": Names(("wnut17/wnut17train.conll", "wnut17/emerging.dev.conll"), KINDS),
}


if __name__ == "__main__":
    main()
