"""A ModernBERT in three phases, killed in each of them and at their borders: it ends with the same bits."""

import pytest
from kits import faulty_program, processes
from kits.runs import assert_same_bits
from kits.small import overrides, write_corpus

from bert_jax.checkpoints import reader
from faults.test_ended import KILLED
from faults.world import LIMIT, metrics

pytestmark = [pytest.mark.full, pytest.mark.slow]

CONFIG = """
from bert_jax.configs import base, modern_demo

def get_config():
    config = modern_demo.get_config()
    short = base.phase(4, length=32, batch=16, max_predictions=10, rotary_base=1e4)
    long, decay = (base.phase(4, length=64, batch=8, max_predictions=10) for _ in range(2))
    config.phases = base.ConfigDict(dict(short=short, long=long, decay=decay))
    config.phase_order = ("short", "long", "decay")
    config.schedule.update(warmup=2, decay=4)
    config.model.update(width=32, heads=4, feed_forward=32)
    return config
"""
OWN = {"corpus.heldout": 0.1, "tokenizer.size": 200, "dtype": "float32", "checkpoint.keep": 9}
OWN |= {"log.every": 1, "checkpoint.every": 2, "evaluate.every": 0, "compilation_cache": ""}


def test_killed_in_each_phase_and_at_their_borders(tmp_path):
    """A process is killed inside its first save, and the next ones inside their second, which is a border of phases
    every other time."""
    (tmp_path / "config.py").write_text(CONFIG)
    write_corpus(tmp_path / "corpus.txt", documents=60)
    paths = {"corpus.source": tmp_path / "corpus.txt", "store": tmp_path / "store"}
    keys = [f"--config.{key}" for key in overrides(OWN | paths)]

    def run(name: str, fault: str = ""):
        command = ["pretrain", "--config", str(tmp_path / "config.py"), *keys]
        command += ["--workdir", str(tmp_path / name)]
        output, variables = tmp_path / "output", {faulty_program.FAULT: fault}
        with processes.started(command, output, 1, [8], **variables) as running:
            [ended] = processes.wait(running, output, LIMIT)
        return ended

    assert run("undisturbed").code == 0
    killed = [run("killed", f"0:commit:{count}:kill") for count in (2, 4, 4, 4, 4, 4, 4)]
    assert [ended.code for ended in killed] == [KILLED] * 6 + [0], killed
    assert all(f"from step {2 * n}\n" in ended.output for n, ended in enumerate(killed[1:]) if n)
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "undisturbed")
    ends = [tmp_path / name / "checkpoints/12" for name in ("killed", "undisturbed")]
    for item in reader.ITEMS:
        assert_same_bits(*(reader.read(end, item) for end in ends))
