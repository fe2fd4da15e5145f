"""TensorBoard files: TensorFlow can read them, and a full disk raises an error in the reporting thread."""

import pytest
import tensorflow as tf
from kits.full_disk import full_disk
from tensorflow.core.util.event_pb2 import Event

from bert_jax.runs.tensorboard import EventFile


def read(directory):
    """Returns [Event] of the only file; TensorFlow verifies their checksums."""
    (path,) = directory.glob("events*")
    return [Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset([str(path)])]


def test_reports_can_be_read_at_once(tmp_path):
    events = EventFile(tmp_path, 5)
    events.report(7, {"train/loss": 1.5, "train/real_token_share": 0.25})
    version, start, point = read(tmp_path)  # before the file is closed
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (5, 1)
    found = {value.tag: value.simple_value for value in point.summary.value}
    assert (point.step, found) == (7, {"train/loss": 1.5, "train/real_token_share": 0.25})
    events.report(8, {"train/loss": 1.25})
    events.close()
    assert [event.step for event in read(tmp_path)] == [0, 5, 7, 8]


def test_a_full_disk_is_an_error_at_once(tmp_path):
    events = EventFile(tmp_path, 1)
    with full_disk(200), pytest.raises(OSError, match="File too large"):
        for step in range(20):
            events.report(step, {"train/loss": 1.0})
    events.close()
