"""The workdir as several hosts see it."""

import pytest

from bert_jax import train
from bert_jax.checkpoints import reader
from bert_jax.errors import BadInput
from bert_jax.runs import workdir
from bert_jax.runs.workdir import Workdir


class Processes:
    """A Cluster whose other processes say what the test wants."""

    is_alone = False

    def __init__(self, process: int, of_main: str = "", others=()):
        self.is_main, self.of_main, self.others = process == 0, of_main, list(others)

    def from_main(self, value):
        return value if self.is_main else self.of_main

    def gather(self, value):
        return [value, *self.others] if self.is_main else [True, value]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(workdir, "SEEN", 0.3)


def test_a_workdir_that_all_hosts_see(tmp_path):
    workdir.check_shared(Workdir(tmp_path), Processes(0, others=[True]))
    assert not list(tmp_path.iterdir())
    (tmp_path / ".shared.1").touch()
    workdir.check_shared(Workdir(tmp_path), Processes(1, ".shared.1"))


@pytest.mark.parametrize("process", [0, 1])
def test_a_workdir_that_only_process_0_sees_is_refused(tmp_path, process):
    with pytest.raises(BadInput, match=f"{tmp_path}.*process 1"):
        workdir.check_shared(Workdir(tmp_path), Processes(process, ".shared.1", [False]))
    assert not list(tmp_path.iterdir())


def test_two_workdirs_with_other_checkpoints_are_both_named(tmp_path, monkeypatch):
    """They may be two spellings of one place, or mounted differently."""
    found = reader.Found(20, {})
    monkeypatch.setattr(reader, "newest", lambda place: 20)
    monkeypatch.setattr(reader, "newest_verified", lambda *_: found)
    same, other = [20, "/mnt/same"], [None, "/mnt/other"]
    assert train.newest_checkpoint(Workdir(tmp_path), Processes(0, others=[same])) == found
    with pytest.raises(BadInput, match=f"/mnt/other.*{tmp_path}"):
        train.newest_checkpoint(Workdir(tmp_path), Processes(0, others=[same, other]))
