"""BLEU of translations by the length of the source, with intervals by bootstrap (Koehn, 2004).

    python examples/recurrent/bleu.py --source test.en --reference test.de none.txt additive.txt transformer.txt

Each file has a translation in each line, as `bert-jax predict --output` writes it, of tokenized text. Prints their BLEU
for all sentences, those with more than 15 words, and other groups, with the interval of 95 %; and the difference to the
first file, with that of the same draws of sentences, which sacrebleu's bootstrap does not give. Needs the extra
`translate`.
"""

import argparse
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU

from bert_jax.data.sources import tables

# {group: its fewest and most words}
GROUPS = {
    "all": (0, 999),
    "over 15": (16, 999),
    "1 to 10": (1, 10),
    "11 to 15": (11, 15),
    "16 to 20": (16, 20),
    "over 20": (21, 999),
}
DRAWS = 1000


def statistics(translations: list[str], references: list[str]) -> np.ndarray:
    """Returns int64[N, 10] of N sentences: matches of 1- to 4-grams, their numbers, and the words of both texts."""
    metric = BLEU(tokenize="none", effective_order=True)  # the order does not change the statistics
    rows = []
    for translation, reference in zip(translations, references, strict=True):
        score = metric.sentence_score(translation, [reference])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, np.int64)


def bleu(rows: np.ndarray) -> float:
    """Returns the BLEU of sentences. rows: int64[N, 10], their `statistics`."""
    *counts, sys_len, ref_len = rows.sum(axis=0).tolist()
    return BLEU.compute_bleu(counts[:4], counts[4:], sys_len, ref_len, smooth_method="exp").score


def compare(systems: list[np.ndarray], draws: int = DRAWS) -> list[list[tuple]]:
    """Returns for each system (value, low, high) of its BLEU, and of the difference to the first one.

    systems: the `statistics` of the same sentences. The interval has 95 % of the draws.
    """
    count = len(systems[0])
    drawn = np.random.default_rng(0).integers(0, count, (draws, count))
    values = np.array([bleu(rows) for rows in systems])
    samples = np.array([[bleu(rows[numbers]) for rows in systems] for numbers in drawn])
    results = []
    for value, sample in zip(values, samples.T, strict=True):
        differences = sample - samples[:, 0]
        results.append([interval(value, sample), interval(value - values[0], differences)])
    return results


def interval(value: float, samples: np.ndarray) -> tuple:
    return (value, *np.percentile(samples, [2.5, 97.5]))


def compare_groups(sizes: np.ndarray, systems: list[np.ndarray]) -> dict:
    """Returns {group: (its sentences, `compare` of them)} of GROUPS with sentences.

    sizes: int64[N], words of the sources.
    """
    groups = {}
    for name, (fewest, most) in GROUPS.items():
        chosen = (sizes >= fewest) & (sizes <= most)
        if chosen.any():
            results = compare([rows[chosen] for rows in systems])
            groups[name] = int(chosen.sum()), results
    return groups


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("translations", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    sizes = np.array([len(text.split()) for text in tables.read_lines(options.source)])
    references = tables.read_lines(options.reference)
    systems = [statistics(tables.read_lines(path), references) for path in options.translations]
    for name, (count, results) in compare_groups(sizes, systems).items():
        print(f"{name} words: {count} sentences")
        for path, (score, difference) in zip(options.translations, results, strict=True):
            texts = ["{:6.2f} [{:.2f}, {:.2f}]".format(*numbers) for numbers in (score, difference)]
            print(f"    {path.stem:20} BLEU {texts[0]:24} difference {texts[1]}")


if __name__ == "__main__":
    main()
