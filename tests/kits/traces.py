"""Reads profiler traces."""

from jax.profiler import ProfileData


def traced_steps(directory) -> list[list[int]]:
    """Returns, for every trace file, the numbers of the steps that were dispatched in it."""
    steps = []
    for path in sorted(directory.rglob("*.xplane.pb")):
        lines = (line for plane in ProfileData.from_file(str(path)).planes for line in plane.lines)
        events = [event for line in lines for event in line.events if event.name == "train"]
        steps.append(sorted(int(dict(event.stats)["step_num"]) for event in events))
    return steps
