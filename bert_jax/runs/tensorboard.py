"""TensorBoard files, written by the reporting thread: tensorboardX's own thread would ignore a full disk, or hang."""

import sys
import time
from pathlib import Path

# tensorboardX imports PyTorch if it is installed, which takes seconds. It is not needed here, and so is hidden.
is_hidden = sys.modules.setdefault("torch", None) is None
from tensorboardX.event_file_writer import EventsWriter  # noqa: E402
from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402
from tensorboardX.proto.summary_pb2 import Summary  # noqa: E402

if is_hidden:
    del sys.modules["torch"]


class EventFile:
    """A TensorBoard event file, flushed after every report. Raises OSError if it cannot be written."""

    def __init__(self, directory: Path, first: int):
        """first: TensorBoard hides points from this step on in older files of the directory."""
        directory.mkdir(exist_ok=True)
        self.events = EventsWriter(str(directory / "events"))
        self.add(first, session_log=SessionLog(status=SessionLog.START))

    def report(self, step: int, points: dict[str, float]) -> None:
        """Writes the points of a step."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
        self.add(step, summary=Summary(value=values))

    def add(self, step: int, **what) -> None:
        self.events.write_event(Event(wall_time=time.time(), step=step, **what))
        self.events.flush()

    def close(self) -> None:
        self.events.close()
