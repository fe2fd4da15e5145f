"""Scripts of benchmarks/ that print rows: what they say is what happened, and each stands beside its reference."""

import json
import random
import re
import subprocess
import sys

import pytest
from kits.places import ROOT
from kits.small import small_config, write_corpus

from benchmarks import learnt, near, prepare, timed, verify
from bert_jax.data import prepare as preparing
from bert_jax.errors import BadInput

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "lmnrst"]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS, "##s"]) + "\n")
    return path


def write_lines(path, number: int, words: int, seed: int = 0):
    draw = random.Random(seed)
    path.write_text("\n".join(" ".join(draw.choices(WORDS, k=words)) for _ in range(number)) + "\n")
    return path


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def test_what_a_run_has_learnt(tmp_path, capsys):
    lines = [
        dict(step=10, split="train", seconds=7.0, tokens_per_second=1000.0),
        dict(step=10, split="heldout", seconds=1.0, mlm_loss_masked=5.5),
        dict(step=20, split="train", seconds=5.0, tokens_per_second=2000.0),
        dict(step=20, split="heldout", seconds=1.0, mlm_loss_masked=4.25, nsp_accuracy=0.75),
    ]
    lines = [dict(time=1.0, save_seconds=0.0, input_seconds=0.0, fill=1.0) | line for line in lines]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = dict(unigram_entropy=6.0, seconds=12.0, train=lines[2], heldout=lines[3])
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert learnt.main(["--workdir", str(tmp_path), "--target", "2.0 nats"]) == 0
    cells = capsys.readouterr().out.strip().split(" | ")
    assert cells[1] == "2.0 nats" and cells[3] == "6.00, the unigram entropy |"
    assert numbers(cells[2]) == [4.25, 1.75, 0.75, 0.5, 1.75]
    assert "after 12 s of training, at last 2,000 tokens a second; next sentence 0.75" in cells[2]
    assert "by 0.50 at step 10 (7 s); 1.75 at step 20 (12 s)" in cells[2]
    (tmp_path / "metrics.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert learnt.main(["--workdir", str(tmp_path)]) == 2
    assert "no held-out mlm_loss_masked" in capsys.readouterr().err


def test_near_duplicates_beside_jaccard(tmp_path, vocabulary, capsys):
    file = write_lines(tmp_path / "text", 40, words=210)
    command = [str(vocabulary), str(file), "--documents", "30", "--thresholds", "0.7", "0.3"]
    assert near.main([*command, "--shares", "0", "0.04", "0.5"]) == 0
    strict, loose = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    for cells in (strict, loose):
        found, similar = numbers(cells[2]), numbers(cells[3])
        assert found[0] == similar[0] == 1 and found[2] == similar[2] == 0
        assert abs(found[1] - similar[1]) < 0.15
        assert "of 30 articles as they are 0 dropped" in cells[2]
    assert numbers(loose[3])[1] == 1 > numbers(strict[3])[1]
    assert near.main([*command, "--documents", "50"]) == 2
    assert "40 lines of 200 words, 50 asked for" in capsys.readouterr().err


def test_the_ids_of_every_side(tmp_path, vocabulary):
    pytest.importorskip("transformers")
    lines = write_lines(tmp_path / "text", 100, words=9).read_text().splitlines()
    lines[20] += " bals unknown, Bam!"
    sides = prepare.make_sides(vocabulary, lowercase=True)
    assert list(sides)[0] == prepare.OURS and len(sides) == 3
    same = prepare.equal(sides, lines)
    assert [pair for pair in same.values()] == [(100, 100), (5, 5)]
    vocabulary.write_text(vocabulary.read_text().replace("bal\n", "lab\n"))
    assert (
        prepare.equal(prepare.make_sides(vocabulary, True) | {"old": sides[prepare.OURS]}, lines)[
            "old"
        ][0]
        < 100
    )
    assert all(prepare.rate(side, lines) > 0 for side in sides.values())


def test_a_command_is_measured():
    code = "x = bytearray(300 << 20); sum(range(5_000_000))"
    # In a process that is small: the peak of one that is started is never less than its parent's.
    told = f"from benchmarks import timed; print(*timed.run([{sys.executable!r}, '-c', {code!r}]))"
    ended = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=ROOT)
    seconds, processors, peak = map(float, ended.stdout.split())
    assert 300 << 20 < peak < 600 << 20
    assert 0.05 < processors < seconds + 0.1
    with pytest.raises(BadInput, match="exit code 3: why"):
        timed.run([sys.executable, "-c", "import sys; print('more'); print('why'); sys.exit(3)"])


def test_verify_beside_sha256sum(tmp_path, capsys):
    write_corpus(tmp_path / "corpus.txt", documents=40)
    store = tmp_path / "store"
    keys = f"corpus.source={tmp_path}/corpus.txt", f"store={store}"
    preparing.prepare(small_config(*keys), lambda line: None)
    assert verify.main(["--store", str(store), "--turns", "1"]) == 0
    line = capsys.readouterr().out
    assert re.search(r"^\| verify, .*s of processors \| .*s of processors \(sha256sum\) \|$", line)
    with open(store / "train" / "tokens.npy", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    assert verify.main(["--store", str(store), "--turns", "1"]) == 2
    assert "exit code 1" in capsys.readouterr().err
    assert verify.main(["--store", str(tmp_path)]) == 2
