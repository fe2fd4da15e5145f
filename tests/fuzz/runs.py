"""Target of workdirs: damage is reported, or the results are those of the intact run."""

import shutil
from pathlib import Path

from hypothesis import strategies as st
from safetensors.numpy import load_file

from bert_jax.checkpoints import reader
from bert_jax.convert.names import by_path
from fuzz.attempts import Attempt, listing
from fuzz.damage import change_file, files
from fuzz.world import EARLIER, STEPS, TEXT

WEIGHTS = "model.safetensors"
# Files of an export with metrics and paths, which no checksum covers.
UNCHECKED = ("README.md", "training.json")
# Damage of these files may be reported for another file that they no longer match.
CROSS_CHECKED = ("run.json", "status.json", "metrics.jsonl", "summary.json")


def workdir(draw, world, directory) -> Attempt:
    run, original, exported = directory / "run", world.path / "run", directory / "exported"
    shutil.copytree(original, run)
    chosen = [path for path in files(run) if "tensorboard" not in path.parts]
    path = draw(st.sampled_from(chosen))
    if draw(st.booleans()):  # most files are those of arrays
        path = draw(st.sampled_from([path for path in chosen if "checkpoints" not in path.parts]))
    name = path.relative_to(run)
    change_file(draw, path)
    before = listing(run)
    arguments = {
        "verify": ["--workdir", run],
        "predict": ["--model", run, TEXT],
        "export": ["--workdir", run, "--output", exported],
    }
    kind = draw(st.sampled_from(list(arguments)))

    def oracle(outcome):
        values, step = outcome.values, EARLIER if outcome.skipped else STEPS
        assert listing(run) == before
        if kind == "verify":
            check_verdict(original, run, name, outcome)
            return
        is_damaged = name.parts[:2] == ("checkpoints", str(STEPS))
        assert not outcome.skipped or outcome.skipped == {STEPS} and is_damaged
        if kind == "predict":
            assert values == world.predictions[step]
        else:
            assert values["step"] == step
            check_export(world.exported[step], exported)

    codes = (0, 1) if kind == "verify" else (0,)
    return Attempt([kind, *arguments[kind], "--json", "-"], oracle, codes)


def check_verdict(original: Path, run: Path, name: Path, outcome) -> None:
    """Checks the result of `verify` for a run whose file `name` was damaged.

    original: the intact run. Files that are not checked by a hash are named only if they cannot be read.
    """
    values, is_valid = outcome.values, outcome.code == 0
    assert values["valid"] == is_valid == (not values["problems"])
    if not is_valid:
        named = {problem["file"] for problem in values["problems"]}
        assert str(name) in CROSS_CHECKED or any(f"{name}/".startswith(f"{n}/") for n in named)
    elif name.parts[0] == "checkpoints":
        step = Path(*name.parts[:2])
        assert arrays(original / step) == arrays(run / step)


def arrays(checkpoint: Path) -> dict[str, bytes]:
    """Returns {name: bytes} of the arrays of a checkpoint."""
    trees = {item: reader.read(checkpoint, item) for item in reader.ITEMS}
    return {name: leaf.tobytes() for name, leaf in by_path(trees).items()}


def check_export(expected: Path, actual: Path) -> None:
    first, second = ({path.name: path for path in d.iterdir()} for d in (expected, actual))
    assert first.keys() == second.keys()
    for name in first.keys() - {*UNCHECKED, WEIGHTS}:
        assert first[name].read_bytes() == second[name].read_bytes(), name
    check_tensors(load_file(first[WEIGHTS]), load_file(second[WEIGHTS]))


def check_tensors(expected: dict, actual: dict) -> None:
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        assert array.shape == actual[name].shape and array.tobytes() == actual[name].tobytes(), name
