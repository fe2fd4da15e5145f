"""prepare on Apache Beam: the pool's store, bit by bit, and the same ends of what goes wrong."""

import errno
import functools
import lzma
import math
import operator
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import files, make_text, processes, shard_files, wait_for

from bert_jax import cli
from bert_jax.data import corpus
from bert_jax.data import prepare as preparing
from bert_jax.data.preparation import beam, partitions, shards
from bert_jax.data.sources import files as sources
from bert_jax.errors import BadInput, Unfinished

needs_beam = pytest.mark.skipif(not find_spec("apache_beam"), reason="needs the extra beam")
# Beam's own on this machine; and what Flink and Spark speak, with Beam's own job server instead of theirs.
LOCAL = [
    ("DirectRunner", []),
    ("FlinkRunner", ["--job_endpoint=embed", "--environment_type=LOOPBACK"]),
]
TWO = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


@pytest.fixture
def make(tmp_path):
    """make(key=value...) -> a config: two sources with equal, similar and repeated text, every filter."""
    texts = [text + "\nit was not" * (not n % 30) for n, text in enumerate(make_text(300))]
    similar = [f"{text} tree" for text in texts[:150] if len(text) > 150]
    with lzma.open(tmp_path / "other.txt.xz", "wb") as file:
        file.write("\n\n".join(texts[190:] + texts[:10] + similar).encode())
    both = f"corpus.source={tmp_path}/other.txt.xz,{tmp_path}/corpus.txt"
    filters = "filter.near_duplicates=0.5", "filter.repeats=2"
    return functools.partial(corpora.config_of, tmp_path, texts[:200], both, *filters)


@pytest.fixture
def small_parts(monkeypatch):
    """Several tasks in most stages of a small corpus."""
    monkeypatch.setattr(corpus, "BLOCK", 1000)
    monkeypatch.setattr(shards, "BLOCKS", 3)
    monkeypatch.setattr(shards, "GROUP", 4)
    monkeypatch.setattr(partitions, "RECORDS", 400)


def on_beam(config, *options: str, runner: str = "DirectRunner") -> list[str]:
    """Prepares; what was logged."""
    lines = []
    preparing.prepare(config, lines.append, beam.open_runner(runner, list(options)))
    return lines


@needs_beam
@pytest.mark.parametrize(
    "kind, runner, options",
    [
        ((), *LOCAL[0]),
        (("tokenizer.kind=unigram", "tokenizer.size=40", "filter.duplicates=False"), *LOCAL[1]),
    ],
)
def test_the_store_is_the_pools(make, tmp_path, small_parts, kind, runner, options):
    one, other = (make(*kind, f"store={tmp_path}/{name}") for name in ("pool", "beam"))
    found = preparing.prepare(one, lambda line: None)
    assert found["near_duplicates"] and found["repeated_dropped"]
    assert bool(found["duplicates"]) == (kind == ())
    on_beam(other, *options, runner=runner)
    assert files(other.store) == files(one.store)
    assert not list(tmp_path.glob(".*"))


@needs_beam
@pytest.mark.slow
def test_two_processes_make_the_pools_store(make, tmp_path, monkeypatch, small_parts, capfd):
    monkeypatch.setattr(partitions, "RECORDS", 2000)
    one, other = (make(f"store={tmp_path}/{name}") for name in ("pool", "beam"))
    preparing.prepare(one, lambda line: None)
    on_beam(other, *TWO)
    assert files(other.store) == files(one.store)
    assert not capfd.readouterr().err  # workers have much to say


@needs_beam
@pytest.mark.parametrize(
    ("function", "tasks", "expected"),
    [
        (math.factorial, range(5), [1, 1, 2, 6, 24]),
        (math.factorial, [3], [6]),  # a single task is done by the driver
        (math.factorial, [], []),
    ],
)
def test_results_are_in_the_order_of_the_tasks(tmp_path, function, tasks, expected):
    run = beam.open_runner("DirectRunner", [])(tmp_path / "tasks")
    assert list(run(function, tasks)) == expected
    assert not list(tmp_path.iterdir())


PROGRAM = """
import math, sys
from pathlib import Path
from bert_jax.data.preparing import beam
run = beam.open_runner(sys.argv[1], sys.argv[2:])(Path("tasks"))
assert list(run(math.factorial, range(3))) == [1, 1, 2]
"""


@needs_beam
@pytest.mark.parametrize("runner, options", LOCAL)
def test_it_leaves_nothing_and_fetches_nothing(tmp_path, runner, options):
    """Beam leaves temporary directories, and its DirectRunner keeps the program that it downloads in the home."""
    places = [tmp_path / name for name in ("here", "home", "temporary")]
    for place in places:
        place.mkdir()
    variables = {"HOME": str(places[1]), "TMPDIR": str(places[2])}
    command = [sys.executable, "-c", PROGRAM, runner, *options]
    subprocess.run(command, cwd=places[0], env=os.environ | variables, check=True)
    assert not [path for place in places for path in place.rglob("*")]


@needs_beam
def test_what_a_task_raises_is_raised_here(tmp_path):
    run = beam.open_runner("DirectRunner", [])(tmp_path / "tasks")
    with pytest.raises(ZeroDivisionError) as error:
        list(run(functools.partial(operator.floordiv, 6), [1, 0, 2]))
    assert "beam.py" in error.value.__notes__[0]  # where it happened
    assert list(run(math.factorial, [3, 4])) == [6, 24]


@needs_beam
@pytest.mark.parametrize("runner, options", LOCAL)
def test_a_worker_that_does_not_see_the_directory_is_told_by_its_cause(tmp_path, runner, options):
    run = beam.open_runner(runner, options)(tmp_path / "tasks")
    gone = str(tmp_path / "tasks/tasks")
    with pytest.raises(
        Unfinished, match=f"No such file or directory: '{gone}'.* more in (.*)"
    ) as error:
        list(run(os.unlink, [gone] * 3))
    assert "Traceback" in Path(str(error.value).rpartition(" more in ")[2]).read_text()


@needs_beam
@pytest.mark.slow
def test_a_worker_that_dies_ends_it(tmp_path):
    """DirectRunner itself would wait for it for ever."""
    run = beam.open_runner("DirectRunner", TWO)(tmp_path / "tasks")
    start = time.monotonic()
    with pytest.raises(Unfinished, match="Apache Beam: .*a worker is lost"):
        list(run(os._exit, [3] * 4))
    assert time.monotonic() - start < 60


@needs_beam
def test_damage_that_a_worker_finds_is_bad_input(make, tmp_path):
    config = make()
    path = tmp_path / "other.txt.xz"
    path.write_bytes(path.read_bytes()[:-100])
    before = files(tmp_path)
    with pytest.raises(BadInput, match="other.txt.xz: damaged or cut short"):
        on_beam(config)
    assert files(tmp_path) == before


@needs_beam
def test_it_goes_on_from_whole_shards(make, tmp_path, monkeypatch, small_parts):
    """Reading fails in the middle of the work, and is well again at the next start."""
    on_beam(make(f"store={tmp_path}/undisturbed"))
    config = make()

    def fail(path, mode):
        if Path(path).name == "corpus.txt" and len(shard_files(config)) > 5:
            raise OSError(errno.EIO, "Input/output error")
        return open(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(sources, "open", fail, raising=False)
        with pytest.raises(Unfinished, match="Input/output error: '.*corpus.txt'.*continues"):
            on_beam(config)
    kept = len(shard_files(config))
    assert kept > 5 and f"continues after {kept} shards" in on_beam(config)
    assert files(config.store) == files(tmp_path / "undisturbed")


@needs_beam
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_it_leaves_no_process_and_keeps_its_shards(tmp_path, monkeypatch, number):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where a kill leaves what Beam has there
    config = corpora.config_of(tmp_path, make_text(20_000))
    options = ["--runner=DirectRunner", "--", *TWO]
    process = corpora.start(config, tmp_path, options=options)
    wait_for(lambda: shard_files(config))
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_for(lambda: processes(process.pid) == 0)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    kept = len(shard_files(config))
    process = corpora.start(config, tmp_path, options=options)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0 and f"continues after {kept} shards" in told, told


@needs_beam
@pytest.mark.parametrize(
    ("runner", "options", "message"),
    [
        ("DirectRunner", ["--nothing=3"], "--nothing: no option of Apache Beam"),
        ("DirectRunner", ["--direct_num_workers=x"], "argument --direct_num_workers: invalid int"),
        ("DirectRunner", ["stray"], "stray: expected --OPTION=VALUE after --"),
        ("DirectRunner", ["--runner=SparkRunner"], "--runner=SparkRunner: stands before --"),
        ("SparkRunner", ["--no_wait_until_finish"], "every stage reads what the one before it"),
        ("DataflowRunner", [], "Missing required option: project"),
    ],
)
def test_bad_options_are_a_line(tmp_path, capsys, monkeypatch, runner, options, message):
    line = refused(tmp_path, capsys, monkeypatch, f"--runner={runner}", "--", *options)
    assert line.startswith(f"bert-jax: --runner={runner}: ") and message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runner=Unknown"], "--runner=Unknown: expected one of DirectRunner, "),
        (["--", "--direct_num_workers=2"], "--direct_num_workers=2: without --runner"),
    ],
)
def test_bad_arguments_are_a_line(tmp_path, capsys, monkeypatch, arguments, message):
    assert message in refused(tmp_path, capsys, monkeypatch, *arguments)


def test_without_beam_a_line_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    line = refused(tmp_path, capsys, monkeypatch, "--runner=DirectRunner")
    assert "--runner=DirectRunner: needs apache-beam, the extra `beam`" in line


def refused(directory: Path, capsys, monkeypatch, *arguments: str) -> str:
    """The line that prepare ends with; exit code 2, and nothing written."""
    monkeypatch.chdir(directory)
    store = f"--config.store={directory}/store"
    assert cli.main(["prepare", "--config", "demo", store, *arguments]) == 2
    told = capsys.readouterr()
    assert not list(directory.iterdir()) and not told.out and told.err.count("\n") == 1
    return told.err
