"""Measures MarianMTModel of transformers in PyTorch, on CPUs, beside a run of `translate`: the same pairs and sizes.

    python benchmarks/translation_transformers.py --exported exported --store stores/translate --input test.en

Prints lines of JSON: the target tokens a second in training, by batches of pairs of similar lengths, for each number of
places; and the sentences a second of `generate` with five beams, sorted by their lengths, for each number of sentences
at once. `bert-jax benchmark` and `benchmarks/multi30k.py` are the other side. Needs the extra `parity`.
"""

import argparse
import json
import time

import numpy as np
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel

from bert_jax.data import store as stores
from bert_jax.tasks.supervised.texts import locate_texts

IGNORED = -100  # the label that PyTorch's cross entropy ignores
SMOOTHING = 0.1
LONGER = 50  # tokens that a translation may have more than its source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exported", required=True, help="of the run, by bert-jax export")
    parser.add_argument("--store", required=True, help="of the run")
    parser.add_argument("--input", required=True, help="a file with a source a line")
    parser.add_argument("--places", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = read_pairs(options.store)
    for places in options.places:
        speed = train(options.exported, pairs, places, options.steps)
        print(json.dumps({"places": places, "target_tokens_per_second": speed}), flush=True)
    with open(options.input, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for rows in options.rows:
        speed = generate(options.exported, lines, rows)
        print(json.dumps({"rows": rows, "sentences_per_second": speed}), flush=True)


def read_pairs(path: str) -> list[tuple]:
    """Returns (source, target) of each pair to train on: ids, with the end token and, of targets, the begin token."""
    store = stores.open_store(path)
    special = store.manifest["special"]
    split = store.splits["train"]
    pairs = []
    for (source, target), (source_size, target_size) in zip(*locate_texts(split), strict=True):
        ids = split.tokens[source : source + source_size].tolist()
        targets = split.tokens[target : target + target_size].tolist()
        pairs.append(
            (
                [*ids, special["sep"]],
                [special["cls"], *targets, special["sep"]],
            )
        )
    return sorted(pairs, key=lambda pair: (len(pair[1]), len(pair[0])))


def train(exported: str, pairs: list[tuple], places: int, steps: int) -> float:
    """Returns the target tokens a second of training steps; a batch has at most `places` on either side."""
    batches = [[]]
    for pair in pairs:
        longest = max(map(len, pair))
        if longest * (len(batches[-1]) + 1) > places:
            batches.append([])
        batches[-1].append(pair)
    np.random.default_rng(0).shuffle(batches)
    model = MarianMTModel(MarianConfig.from_pretrained(exported)).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=IGNORED, label_smoothing=SMOOTHING)
    tokens = 0
    for number, batch in enumerate(batches[: steps + 2]):
        if number == 2:
            start = time.perf_counter()
        sources, targets = (pad(texts) for texts in zip(*batch, strict=True))
        inputs = {"input_ids": sources, "attention_mask": (sources > 0).long()}
        logits = model(**inputs, decoder_input_ids=targets[:, :-1]).logits
        labels = targets[:, 1:].masked_fill(targets[:, 1:] == 0, IGNORED)
        optimizer.zero_grad()
        loss_of(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        if number >= 2:
            tokens += int((labels != IGNORED).sum())
    return tokens / (time.perf_counter() - start)


def pad(texts: tuple) -> torch.Tensor:
    rows = [torch.tensor(text) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # 0 is [PAD]


def generate(exported: str, lines: list[str], rows: int) -> float:
    """Returns the sentences a second that `generate` translates."""
    tokenizer = AutoTokenizer.from_pretrained(exported)
    model = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
    lines = sorted(lines, key=lambda line: len(tokenizer(line)["input_ids"]))
    start = time.perf_counter()
    for first in range(0, len(lines), rows):
        inputs = tokenizer(lines[first : first + rows], return_tensors="pt", padding=True)
        length = inputs["input_ids"].shape[1] + LONGER
        with torch.inference_mode():
            model.generate(**inputs, num_beams=5, max_length=length)
    return len(lines) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
