"""Ctrl-C at any moment ends a command: also where an exception would be ignored, or would break a library."""

import gc
import importlib
import signal
import time

import jax  # noqa: F401 - installs the callback
import pytest

from bert_jax.__main__ import interrupt


@pytest.fixture
def handled():
    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised(handled):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_within_a_callback_of_the_collector_is_raised_after_it(handled):
    def _xla_gc_callback():  # the name of JAX's
        signal.raise_signal(signal.SIGINT)

    assert "_xla_gc_callback" in [getattr(each, "__name__", "") for each in gc.callbacks]
    _xla_gc_callback()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)


def test_an_interrupt_within_an_import_is_raised_after_it(handled, tmp_path, monkeypatch):
    (tmp_path / "slow_library.py").write_text("import signal\nsignal.raise_signal(2)\nloaded = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("slow_library").loaded
    with pytest.raises(KeyboardInterrupt):
        time.sleep(60)
