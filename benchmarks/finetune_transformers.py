"""Fine-tunes an exported model, using only Hugging Face transformers and PyTorch, beside random weights.

    python benchmarks/finetune_transformers.py --model exported --data DIR --tasks SST-2 STS-B

DIR has GLUE's directories as they are distributed (SST-2/train.tsv) and wnut17/. Prints a Markdown row per task: the
mean and the standard deviation over seeds of the exported model, then of the same network with random weights, each
with the better of the learning rates, and the difference beside two standard errors of it. Both sides take the same
batches. The rate is the best of the first seed, on the same development set. Like the users of an export, the script
does not import bert_jax. Needs the extra `parity`.
"""

import argparse
import csv
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
import torch
import transformers
from scipy.stats import spearmanr

LENGTH = 128  # tokens
IGNORED = -100  # the label that PyTorch's cross entropy ignores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="an exported directory")
    parser.add_argument("--data", type=Path, required=True, help="the directory of the tasks")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[3e-4, 1e-3, 2e-3])
    parser.add_argument("--seeds", type=int, default=3, help="at least 2")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    for name in options.tasks:
        task, start = TASKS[name], time.monotonic()
        train, dev = (task.read(options.data / file) for file in task.files)
        sides = [better(task, tokenizer, train, dev, options, is_random) for is_random in (0, 1)]
        texts = (f"{mean(s):.4f} +- {stdev(s):.4f} (rate {rate:g})" for s, rate in sides)
        (ours, _), (random_weights, _) = sides
        error = ((stdev(ours) ** 2 + stdev(random_weights) ** 2) / options.seeds) ** 0.5
        print(
            f"| {name}, {task.metric} on {len(dev)}, {options.steps} steps of {options.batch} | {' | '.join(texts)}"
            f" | {mean(ours) - mean(random_weights):+.4f} (two standard errors: {2 * error:.4f}) |",
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )


def better(task, tokenizer, train, dev, options, is_random) -> tuple[list[float], float]:
    """Returns the scores of all seeds with the learning rate that is the best with the first seed, and that rate."""

    def trial(rate: float, seed: int) -> float:
        torch.manual_seed(seed)
        model = task.make(options.model, is_random)
        tune(model, task, tokenizer, train, seed, rate, options)
        score = task.score(predict(model, task, tokenizer, dev), dev)
        weights = "random weights" if is_random else "trained"
        print(f"{weights}, rate {rate:g}, seed {seed}: {score:.4f}", file=sys.stderr, flush=True)
        return score

    first, rate = max((trial(rate, 0), rate) for rate in options.learning_rates)
    return [first, *(trial(rate, seed) for seed in range(1, options.seeds))], rate


def tune(model, task, tokenizer, rows, seed: int, rate: float, options) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    warmup = options.steps // 10  # as in the fine-tuning of arXiv:1810.04805
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, options.steps)
    draw = random.Random(seed)
    model.train()
    for _ in range(options.steps):
        batch = task.collate(tokenizer, draw.sample(rows, options.batch))
        optimizer.zero_grad()
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def predict(model, task, tokenizer, rows, size: int = 64) -> list:
    """Returns the predictions of rows, in their order: a number for a text, a list of labels for words."""
    model.eval()
    predictions = []
    with torch.no_grad():
        for start in range(0, len(rows), size):
            batch = task.collate(tokenizer, rows[start : start + size])
            logits = model(**batch).logits
            values = logits[..., 0] if logits.shape[-1] == 1 else logits.argmax(-1)
            pairs = zip(values.tolist(), batch["labels"].tolist(), strict=True)
            predictions += [
                # Words that truncation cut off have no prediction, and count as outside of a name.
                [v for v, label in zip(value, labels, strict=True) if label != IGNORED]
                if isinstance(labels, list)
                else value
                for value, labels in pairs
            ]
    return predictions


class Texts(NamedTuple):
    """A task on texts or pairs of texts, in a .tsv file."""

    files: tuple[str, str]  # for training and for development
    columns: tuple[int, ...]  # of the texts
    label: int  # the column of the label
    labels: int  # the number of classes; 1 for a score
    metric: str
    compare: Callable
    header: int = 1  # lines

    def read(self, path: Path) -> list[tuple[tuple[str, ...], float]]:
        with open(path, encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[self.header :]
        return [(tuple(line[i] for i in self.columns), float(line[self.label])) for line in lines]

    def make(self, name: str, is_random: bool):
        model = transformers.AutoModelForSequenceClassification
        return load(model, name, is_random, num_labels=self.labels)

    def collate(self, tokenizer, rows) -> dict:
        texts, labels = zip(*rows, strict=True)
        columns = map(list, zip(*texts, strict=True))
        arrays = tokenizer(
            *columns, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        dtype = torch.float32 if self.labels == 1 else torch.int64
        return arrays | {"labels": torch.tensor(labels, dtype=dtype)}

    def score(self, predictions, rows) -> float:
        return float(self.compare(np.array(predictions), np.array([label for _, label in rows])))


class Names(NamedTuple):
    """Named entities in CoNLL columns: a word and its BIO label in a line, sentences between empty lines."""

    files: tuple[str, str]
    kinds: tuple[str, ...]
    metric: str = "F1 of names"

    @property
    def labels(self) -> list[str]:
        return ["O", *(f"{edge}-{kind}" for kind in self.kinds for edge in "BI")]

    def read(self, path: Path) -> list[tuple[list[str], list[int]]]:
        index = {label: i for i, label in enumerate(self.labels)}
        sentences = [([], [])]
        for line in path.read_text(encoding="utf-8").splitlines():
            word, _, label = line.partition("\t")
            if label:
                sentences[-1][0].append(word)
                sentences[-1][1].append(index[label])
            elif sentences[-1][0]:
                sentences.append(([], []))
        return [sentence for sentence in sentences if sentence[0]]

    def make(self, name: str, is_random: bool):
        model = transformers.AutoModelForTokenClassification
        return load(model, name, is_random, num_labels=len(self.labels))

    def collate(self, tokenizer, rows) -> dict:
        """The first token of a word has its label."""
        words, labels = zip(*rows, strict=True)
        arrays = tokenizer(
            list(words), is_split_into_words=True, padding=True, truncation=True,
            max_length=LENGTH, return_tensors="pt",
        )  # fmt: skip
        targets = torch.full(arrays["input_ids"].shape, IGNORED)
        for row, of_words in enumerate(labels):
            seen = set()
            for position, word in enumerate(arrays.word_ids(row)):
                if word is not None and word not in seen:
                    seen.add(word)
                    targets[row, position] = of_words[word]
        return arrays | {"labels": targets}

    def score(self, predictions, rows) -> float:
        found = set(self.spans(predictions))
        true = set(self.spans([labels for _, labels in rows]))
        return 2 * len(found & true) / max(1, len(found) + len(true))

    def spans(self, rows) -> Iterator[tuple[int, int, int, str]]:
        """Yields (sentence, first word, last word + 1, kind) of each name; an I without its B begins one."""
        for row, labels in enumerate(rows):
            start, kind = 0, ""
            for place, label in enumerate([*(self.labels[i] for i in labels), "O"]):
                if kind and label != f"I-{kind}":
                    yield row, start, place, kind
                    kind = ""
                if label != "O" and not kind:
                    start, kind = place, label[2:]


def load(model, name: str, is_random: bool, **settings):
    if is_random:
        return model.from_config(transformers.AutoConfig.from_pretrained(name, **settings))
    return model.from_pretrained(name, **settings)


def accuracy(found, true) -> float:
    return np.mean(found == true)


def matthews(found, true) -> float:
    """The Matthews correlation, which is Pearson's of two binary variables; 0 if all are of one class."""
    return np.corrcoef(found, true)[0, 1] if len(set(found)) > 1 else 0.0


def spearman(found, true) -> float:
    return spearmanr(found, true).statistic


def tsv(name: str, train: str = "train.tsv") -> tuple[str, str]:
    return f"{name}/{train}", f"{name}/dev.tsv"


KINDS = ("corporation", "creative-work", "group", "location", "person", "product")
TASKS = {
    "SST-2": Texts(tsv("SST-2"), (0,), 1, 2, "accuracy", accuracy),
    "STS-B": Texts(tsv("STS-B"), (7, 8), 9, 1, "Spearman", spearman),
    "MRPC": Texts(tsv("MRPC"), (3, 4), 0, 2, "accuracy", accuracy),
    "CoLA": Texts(tsv("CoLA"), (3,), 1, 2, "Matthews", matthews, header=0),
    "WNUT-17": Names(("wnut17/wnut17train.conll", "wnut17/emerging.dev.conll"), KINDS),
}


if __name__ == "__main__":
    main()
