"""Workdirs whose files are not visible to all hosts, or not at once."""

import pytest

from bert_jax.errors import BadInput
from bert_jax.parallel import cluster
from bert_jax.runs import preflight
from bert_jax.runs.workdir import Workdir, write_info


class Processes(cluster.Cluster):
    """A Cluster whose other processes return fixed values."""

    def __init__(self, process: int, of_main: str = "", others=()):
        super().__init__(process, processes=2)
        self.of_main = of_main
        self.others = list(others)

    def from_main(self, value):
        return value if self.is_main else self.of_main

    def gather(self, value):
        return [value, *self.others] if self.is_main else [self.others, value]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(cluster, "VISIBLE", 0.3)


def look(directory, run: str):
    write_info(directory, {"run": run})
    return lambda: preflight.read_run_id(Workdir(directory))


def test_a_process_waits_for_a_file_that_becomes_visible_late(tmp_path):
    calls = []

    def late() -> str:
        calls.append(1)
        return "a" if len(calls) > 2 else ""

    Processes(1, "a", [True, ""]).wait_until_equal(late, str(tmp_path))
    assert len(calls) == 3


def test_a_workdir_that_only_process_0_sees_is_refused_with_both_names(tmp_path):
    """The paths may differ, because hosts mount the file system differently."""
    of_main = Processes(0, others=[[True, "/mnt/same"], [False, "/mnt/other"]])
    with pytest.raises(BadInput, match=f"/mnt/other.*process 2.*{tmp_path}"):
        of_main.wait_until_equal(look(tmp_path, "a"), str(tmp_path))
    with pytest.raises(BadInput, match=f"{tmp_path}.*process 1.*/mnt/main"):
        other = Processes(1, "b", [True, "/mnt/main"])
        other.wait_until_equal(look(tmp_path, "a"), str(tmp_path))
