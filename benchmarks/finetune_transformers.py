"""Fine-tunes an exported model on labelled sentences, using only Hugging Face transformers and PyTorch.

    python benchmarks/finetune_transformers.py --model exported --train SST-2/train.tsv --dev SST-2/dev.tsv

The files have a header line, then a sentence and a label (0, 1, ...) per line, as in SST-2. Prints a Markdown row with
the accuracy of the exported model, and of the same model with random weights, fine-tuned on the same batches. Like the
users of an export, the script does not import bert_jax. Needs the extra `parity`.
"""

import argparse
import csv
import random
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer


def read(path: str) -> list[tuple[str, int]]:
    with open(path, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(lines)
        return [(sentence, int(label)) for sentence, label in lines]


def batches(rows, tokenizer, size: int):
    for start in range(0, len(rows), size):
        sentences, labels = zip(*rows[start : start + size], strict=True)
        arrays = tokenizer(
            list(sentences), padding=True, truncation=True, max_length=64, return_tensors="pt"
        )
        yield arrays | {"labels": torch.tensor(labels)}


def accuracy(model, tokenizer, rows) -> float:
    model.eval()
    hits = 0
    with torch.no_grad():
        for batch in batches(rows, tokenizer, 128):
            hits += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return hits / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="an exported directory")
    parser.add_argument("--train", required=True, help="a .tsv file")
    parser.add_argument("--dev", required=True, help="a .tsv file")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows, dev = read(options.train), read(options.dev)
    settings = AutoConfig.from_pretrained(options.model, num_labels=1 + max(r[1] for r in rows))
    start, scores = time.monotonic(), []
    for is_trained in (True, False):
        torch.manual_seed(0)
        model = (
            AutoModelForSequenceClassification.from_pretrained(options.model, config=settings)
            if is_trained
            else AutoModelForSequenceClassification.from_config(settings)
        )
        tune(model, tokenizer, rows, options)
        scores.append(accuracy(model, tokenizer, dev))
    print(
        f"| fine-tuned in transformers, {options.steps} steps of {options.batch}, accuracy on {len(dev)} of"
        f" {Path(options.dev).name} ({time.monotonic() - start:.0f} s, both) | - | {scores[0]:.4f}"
        f" | {scores[1]:.4f}, the same model with random weights |"
    )


def tune(model, tokenizer, rows, options) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, options.steps)
    draw = random.Random(0)
    model.train()
    for _ in range(options.steps):
        (batch,) = batches(draw.sample(rows, options.batch), tokenizer, options.batch)
        optimizer.zero_grad()
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
