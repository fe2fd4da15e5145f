"""Atomic directories: links, signals, full disks."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.errors import BadInput, Unfinished
from bert_jax.storage import atomic
from bert_jax.storage.atomic import new_directory


def write(directory) -> None:
    with new_directory(directory, "--output") as temporary:
        (temporary / "file").write_text("all of it")


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("target_exists", [True, False])
def test_a_link_is_followed(tmp_path, target_exists):
    if target_exists:
        (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    write(tmp_path / "link")
    assert names(tmp_path) == ["far", "link"] and (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "file").read_text() == "all of it"


@pytest.mark.parametrize("target_exists", [True, False])
def test_a_link_to_a_file_is_followed(tmp_path, target_exists):
    """As /dev/stdout is one."""
    if target_exists:
        (tmp_path / "far").write_text("before")
    (tmp_path / "link").symlink_to("far")
    atomic.write(tmp_path / "link", "all of it")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "far").read_text() == "all of it"


@pytest.mark.parametrize("name", [".", "gone/.."])
def test_the_current_directory_is_not_replaced(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput):
        write(name)
    assert names(tmp_path) == []


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    atomic.write(tmp_path / "pipe", "all of it")
    assert os.read(reader, 99) == b"all of it" and names(tmp_path) == ["pipe"]
    os.close(reader)


@pytest.mark.parametrize("name", ["/dev/stdout", "link"])
def test_standard_output_is_written_where_it_is(tmp_path, name):
    """Behind what a file has, if it is one, and between other output."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    code = (
        "import pathlib; from bert_jax.storage import atomic; print('a');"
        f"atomic.write(pathlib.Path({name!r}), 'b\\n'); print('c')"
    )
    (tmp_path / "file").write_text("before\n")
    with open(tmp_path / "file", "a") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, cwd=tmp_path, check=True)
    assert (tmp_path / "file").read_text() == "before\na\nb\nc\n"
    assert names(tmp_path) == ["file", "link"]


def test_sigterm_leaves_no_files(tmp_path):
    with (
        pytest.raises(SystemExit) as caught,
        new_directory(tmp_path / "out", "--output") as temporary,
    ):
        (temporary / "file").write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    assert caught.value.code == 143 and names(tmp_path) == []


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("RESOURCE_EXHAUSTED: a\n b")]
)
def test_a_full_disk_is_reported_in_one_line(tmp_path, error):
    with pytest.raises(Unfinished, match=f"{tmp_path}/out") as caught:
        with new_directory(tmp_path / "out", "--output"):
            raise error
    assert "\n" not in str(caught.value) and names(tmp_path) == []
    with pytest.raises(ValueError, match="a mistake"), new_directory(tmp_path / "out", "--output"):
        raise ValueError("a mistake in the code is not the disk's")
