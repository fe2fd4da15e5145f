"""TensorBoard files: what TensorFlow reads in them, and that a full disk is an error of who reports."""

import resource
import signal

import pytest
import tensorflow as tf
from tensorflow.core.util.event_pb2 import Event

from bert_jax.board import Board


def read(directory):
    """[Event] of the only file, each with the checksums that TensorFlow checks."""
    (path,) = directory.glob("events*")
    return [Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset([str(path)])]


def test_reports_are_read_back_as_they_come(tmp_path):
    board = Board(tmp_path / "tensorboard", 5)
    board.report(7, {"train/loss": 1.5, "train/fill": 0.25})
    version, start, point = read(tmp_path / "tensorboard")  # though it is not closed
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (5, 1)
    found = {value.tag: value.simple_value for value in point.summary.value}
    assert (point.step, found) == (7, {"train/loss": 1.5, "train/fill": 0.25})
    board.report(8, {"train/loss": 1.25})
    board.close()
    assert [event.step for event in read(tmp_path / "tensorboard")] == [0, 5, 7, 8]


def test_what_cannot_be_written_is_an_error_at_once(tmp_path):
    board = Board(tmp_path / "tensorboard", 1)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            for step in range(20):
                board.report(step, {"train/loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
        board.close()
