"""Examples that are texts without labels: parallel files, nested columns, and a task of them outside of the package."""

import json

import numpy as np
import pytest
from kits import labelled, runs
from kits.rows import assemble
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.data import assemble as assembly
from bert_jax.data import store as stores
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.tasks import base as tasks
from bert_jax.tasks.supervised import examples, texts
from bert_jax.tokenizers.special_tokens import BERT_FRAME, parse_frame

EN = ["a man walks", "", "two dogs run", "she said\u2028hello\x0b\x85again", "the end", " "]
DE = ["ein mann geht", "leer", "zwei hunde rennen", "sie sagte hallo", "", ""]
ROWS = [[a, b] for a, b in zip(EN, DE, strict=True)]
TASK = {
    "task.name": "kits.translation_pairs",
    "phases.main.length": 16,
    "phases.main.max_predictions": 5,
    "tokenizer.size": 120,
    "task.train": "train",
    "task.dev": "()",
    "corpus.workers": 1,
}


def write_parallel(directory, ends="\n", en=EN, de=DE) -> None:
    for language, lines in (("en", en), ("de", de)):
        content = "".join(line + ends for line in lines).encode()
        (directory / f"train.{language}").write_bytes(content)


def write_nested(path, nested=True) -> None:
    rows = [{"en": a, "de": b} for a, b in ROWS]
    if nested:
        rows = [{"id": 3, "translation": row} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def settings(directory, **changes) -> list[str]:
    keys = TASK | {"task.data": directory, "store": f"{directory}/store"} | changes
    return overrides(labelled.KEYS | keys)


def load(directory, **changes):
    return configs.load("base", settings(directory, **changes))


def command(name: str, directory, *more, **changes) -> list[str]:
    keys = [f"--config.{key}" for key in settings(directory, **changes)]
    return [name, "--config", "base", *keys, *map(str, more)]


def values(path):
    return [row for _, row in tables.read(path, ["en", "de"])]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_lines_of_parallel_files_are_rows(tmp_path, ends):
    """Whatever other breaks they have; a place is a row of the first."""
    write_parallel(tmp_path, ends)
    assert values(tmp_path / "train") == ROWS
    assert tables.read(tmp_path / "train", ["de", "en"])[2][0] == f"{tmp_path}/train.de, row 3"
    (tmp_path / "train").write_text("de\ten\nx\ty\n")  # a table of this name takes precedence
    assert values(tmp_path / "train") == [["y", "x"]]


def test_parallel_files_of_old_systems(tmp_path):
    write_parallel(tmp_path, "\r", ["a", "b"], ["c", "d"])
    assert values(tmp_path / "train") == [["a", "c"], ["b", "d"]]


@pytest.mark.parametrize("extra", [["one more"], ["", ""]])
def test_files_of_other_sizes_are_refused(tmp_path, extra):
    write_parallel(tmp_path, de=DE + extra)
    text = f"train.en: 6 lines, .*train.de: {6 + len(extra)} lines"
    with pytest.raises(BadInput, match=text):
        tables.read(tmp_path / "train", ["en", "de"])
    with pytest.raises(BadInput, match=r"train\.fr: .*train\.en"):
        tables.read(tmp_path / "train", ["en", "fr"])


@pytest.mark.parametrize("nested", [False, True])
def test_columns_may_be_nested_in_json(tmp_path, nested):
    write_nested(tmp_path / "train.jsonl", nested)
    assert values(tmp_path / "train.jsonl") == ROWS
    (tmp_path / "train.jsonl").write_text('{"translation": {"en": "a", "de": "b"}}\n')
    assert values(tmp_path / "train.jsonl") == [["a", "b"]]
    with pytest.raises(BadInput, match="train.jsonl.*'fr'.*'en', 'de'"):
        tables.read(tmp_path / "train.jsonl", ["fr"])
    lines = '{"translation": {"en": "a"}}\n{"translation": {"de": "d", "en": "c"}}\n'
    (tmp_path / "train.jsonl").write_text(lines)
    assert values(tmp_path / "train.jsonl") == [["a", ""], ["c", "d"]]
    flat = '{"en": "e", "de": "f"}\n'
    (tmp_path / "train.jsonl").write_text(f"{flat}\n{lines}")
    assert values(tmp_path / "train.jsonl") == [["e", "f"], ["", ""], ["a", ""], ["c", "d"]]
    (tmp_path / "train.jsonl").write_text(flat + '{"en": "x", "translation": {"en": "a"}}')
    assert values(tmp_path / "train.jsonl") == [["e", "f"], ["a", ""]]
    (tmp_path / "train.jsonl").write_text('{"translation": {"en": ["a"], "de": "b"}}\n')
    with pytest.raises(BadInput, match="'en'"):
        values(tmp_path / "train.jsonl")


def test_a_column_of_this_name_may_have_texts(tmp_path):
    """Also behind rows that are empty, or have other columns."""
    (tmp_path / "train").write_text("en\ttranslation\n\na\na\tb\n")
    rows = [row for _, row in tables.read(tmp_path / "train", ["en", "translation"])]
    assert rows == [["", ""], [None], ["a", "b"]]
    lines = ['{"translation": null}', "", '{"translation": {"en": "a", "de": "b"}}']
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    assert values(tmp_path / "train.jsonl") == [["", ""], ["", ""], ["a", "b"]]


def test_columns_may_be_nested_in_parquet_and_data_sets(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"translation": datasets.Translation(languages=["en", "de"])})
    rows = [{"translation": {"en": a, "de": b}} for a, b in ROWS]
    data = datasets.Dataset.from_list(rows, features=features)
    data.to_parquet(tmp_path / "train.parquet")
    assert values(tmp_path / "train.parquet") == ROWS
    assert values(f"hf:{tmp_path}") == ROWS


@pytest.mark.parametrize("name", ["train", "train.jsonl"])
def test_examples_with_an_empty_text_are_dropped_and_counted(tmp_path, capsys, name):
    """The others stay aligned."""
    write_parallel(tmp_path)
    write_nested(tmp_path / "train.jsonl")
    config = load(tmp_path, **{"task.train": name, "task.heldout": 0.34})
    parts, dropped = examples.read(config)
    pairs = [example.texts for part in parts.values() for example in part]
    assert sorted(pairs) == sorted(row for row in ROWS if all(map(str.strip, row)))
    assert dropped == {"train": 3}
    assert f"{tmp_path}/{name}: left out 3 " in capsys.readouterr().err


EMPTY = [
    "",
    "\u200b",
    "\0 \x02",
    "\xad\xad",
    "▁▁▁",
    "\ufeff\u2028\u3000",
    "\u2800\u3164\ufe0f",
    "\u200e\u202a",
    "\u2065\ufff0\U00016fe4\U000e0fff",
]
SEEN = ["a", "。", "\u200b\u0301", "🙂", "\xad-", "_"]


@pytest.mark.parametrize("name", ["train", "train.tsv"])
def test_a_text_without_a_visible_character_is_empty(tmp_path, capsys, name):
    """In either language; a row with other columns is reported as such alone."""
    texts = EMPTY + SEEN
    write_parallel(tmp_path, en=[*texts, *["x"] * len(texts)], de=[*["y"] * len(texts), *texts])
    pairs = zip([*texts, *["x"] * len(texts)], [*["y"] * len(texts), *texts], strict=True)
    lines = [f"{a}\t{b}\n" for a, b in [("en", "de"), *pairs, *[("x", "y")] * 200]]
    (tmp_path / "train.tsv").write_text("".join([*lines, "x\n"]))
    config = load(tmp_path, **{"task.train": name, "task.heldout": 0.1})
    parts, dropped = examples.read(config)
    pairs = [tuple(example.texts) for part in parts.values() for example in part]
    assert {*pairs} - {("x", "y")} == {(text, "y") for text in SEEN} | {
        ("x", text) for text in SEEN
    }
    count = 2 * len(EMPTY)
    printed = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/{name}: left out {count} rows" in printed[-1]
    if name == "train.tsv":
        assert len(printed) == 2 and f"{tmp_path}/{name}:{len(lines) + 1}: " in printed[0]
    assert dropped == {"train": count + len(printed) - 1}


def test_missing_parallel_files_are_named(tmp_path):
    (tmp_path / "train.de").write_text("a\n")
    with pytest.raises(BadInput, match=f"{tmp_path}/train.en"):
        examples.read(load(tmp_path))
    (tmp_path / "train.de").unlink()
    with pytest.raises(BadInput, match=f"task.data={tmp_path}: .*{tmp_path}/train"):
        examples.read(load(tmp_path))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(config, report) of a store of pairs, of which the second text repeats the words of the first in capitals."""
    directory = tmp_path_factory.mktemp("pairs")
    lines = labelled.texts(200)
    write_parallel(directory, en=[*lines, ""], de=[*(f"x {line}" for line in lines), "x"])
    config = load(directory)
    report = directory / "report.json"
    assert main(command("prepare", directory, "--json", report)) == 0
    return config, json.loads(report.read_text())


def test_the_store_has_both_texts(prepared):
    config, report = prepared
    assert report["splits"]["train"]["documents"] == 180 and report["labels"] == {}
    assert report["splits"]["dev"]["sentences"] == 40
    assert report["dropped"] == {"train": 1}
    store = stores.open_store(config.store)
    split = store.splits["train"]
    starts, sizes = texts.locate_texts(split)
    x = split.tokens[starts[0, 1]]
    for (a, b), (a_size, b_size) in zip(starts, sizes, strict=True):
        assert b_size == a_size + 1 and split.tokens[b] == x
        assert np.array_equal(split.tokens[b + 1 : b + b_size], split.tokens[a : a + a_size])
    examples.open_or_build(config)
    config = config.copy_and_resolve_references()
    config.tokenizer.size = 121
    with pytest.raises(BadInput, match="tokenizer.size"):
        examples.open_or_build(config)


@pytest.mark.parametrize("length", [6, 16])
def test_each_text_alone_is_a_row(prepared, length):
    store = stores.open_store(prepared[0].store)
    split = store.splits["train"]
    rows = texts.single_texts(split, length - 2)
    starts, sizes = texts.locate_texts(split)
    special = store.manifest["special"]
    around = parse_frame(BERT_FRAME).ids(special), special["pad"]
    for text in range(2):
        chosen = rows[:, text : text + 1]
        arrays = assembly.gather(split.tokens.astype(np.int32), chosen, length, *around, False)
        for row, start, size in zip(
            arrays["tokens"].numpy(), starts[:, text], sizes[:, text], strict=True
        ):
            ids = split.tokens[start : start + min(size, length - 2)]
            line = [special["cls"], *ids, special["sep"]]
            assert row.tolist() == line + [special["pad"]] * (length - len(line))


def test_rows_of_the_task_have_both_texts(prepared):
    config, _ = prepared
    store = stores.open_store(config.store)
    tasks.fill(config, store)
    dataset = tasks.make(config, store)
    phase = configs.phases(config)[0]
    rows = dataset.rows(phase, "dev", 0)
    batch = assemble(dataset, phase, rows)
    sep = store.manifest["special"]["sep"]
    assert ((batch["tokens"] == sep).sum(axis=1) == 2).all() and batch["masked_weights"].any()


@pytest.mark.slow
def test_it_trains_and_fills_masks(prepared, tmp_path, capsys):
    """With masked LM as its objective, from random weights; it has no labels to predict."""
    directory = tmp_path / "run"
    small = {
        "model.layers": 1,
        "model.width": 32,
        "model.heads": 4,
        "task.epochs": 1.5,
        "log.every": 5,
    }
    data = prepared[0].task.data
    assert main(command("pretrain", data, "--workdir", directory, **small)) == 0
    losses = [line["loss"] for line in runs.lines(directory) if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.1
    assert runs.lines(directory)[-1]["step"] == 17
    capsys.readouterr()
    assert main(["predict", "--model", str(directory), "a [MASK]"]) == 0
    assert "[MASK] 1:" in capsys.readouterr().out
    saving = ["inspect", "--config", str(directory / "config.json"), "--steps", "0:1"]
    assert main([*saving, "--save", str(tmp_path / "saved")]) == 0
