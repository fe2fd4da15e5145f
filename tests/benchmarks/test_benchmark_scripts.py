"""The scripts of benchmarks/ report bad input in one line."""

import importlib

import pytest
from kits.slices import needs_libtpu


@pytest.mark.parametrize(
    "script, arguments, words",
    [
        ("accelerator", ["--config", "nowhere"], "nowhere"),
        ("shakespeare", ["--text", "x", "--runs", "y", "--config.nothing=1"], "nothing"),
        ("shakespeare", ["--seeds", "x"], "--seeds"),
        ("small_models", ["--config.mask=1", "--seed", "x"], "--seed"),
        ("generate", ["--rows", "x"], "--rows"),
        ("step", ["--shapes", "bert_tiny"], "--shapes bert_tiny"),
        ("step", ["--shapes", "bert_tiny:4", "--row", "3"], "--row"),
        ("gpu", ["--topology", "h101:1"], "--topology h101:1"),
        ("gpu", ["--only", "bert"], "--only"),
        ("tpu", ["--only", "base", "--config.model.attention=splash"], "attention_dropout=0.1"),
    ],
)
@needs_libtpu
def test_bad_input_is_reported_in_one_line(script, arguments, words, capsys):
    assert importlib.import_module(f"benchmarks.{script}").main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
