"""TensorBoard files, written by who reports: in a thread of its own a full disk would go unnoticed, or stop the run."""

import sys
import time
from pathlib import Path

# Where PyTorch is installed tensorboardX imports it, for seconds; what is used here of it does not need PyTorch.
hidden = sys.modules.setdefault("torch", None) is None
from tensorboardX.event_file_writer import EventsWriter  # noqa: E402
from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402
from tensorboardX.proto.summary_pb2 import Summary  # noqa: E402

if hidden:
    del sys.modules["torch"]


class Board:
    """A file of events, whole after every report. What cannot be written raises OSError."""

    def __init__(self, directory: Path, first: int):
        """first: what older files in the directory say of the steps from this one on is hidden."""
        directory.mkdir(exist_ok=True)
        self.events = EventsWriter(str(directory / "events"))
        self.add(first, session_log=SessionLog(status=SessionLog.START))

    def report(self, step: int, values: dict[str, float]) -> None:
        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self.add(step, summary=Summary(value=points))

    def add(self, step: int, **what) -> None:
        self.events.write_event(Event(wall_time=time.time(), step=step, **what))
        self.events.flush()

    def close(self) -> None:
        self.events.close()
