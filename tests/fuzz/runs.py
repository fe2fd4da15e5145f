"""The door of workdirs: the run's own numbers come out, or nothing."""

import shutil
from pathlib import Path

import jax
from hypothesis import strategies as st
from safetensors.numpy import load_file

from bert_jax.checkpoints import reader
from bert_jax.parallel.mesh import path_name
from fuzz.attempts import Attempt, listing
from fuzz.damage import change_file, files
from fuzz.world import EARLIER, STEPS, TEXT

WEIGHTS = "model.safetensors"
# Of an export. README.md and training.json tell of metrics and places, which nothing covers.
TOLD = ("README.md", "training.json")
# Damage of these may show as something else that does not agree with them.
AGREE = ("run.json", "status.json", "metrics.jsonl", "summary.json")


def workdir(draw, world, place) -> Attempt:
    run, original, exported = place / "run", world.path / "run", place / "exported"
    shutil.copytree(original, run)
    chosen = [path for path in files(run) if "tensorboard" not in path.parts]
    path = draw(st.sampled_from(chosen))
    if draw(st.booleans()):  # there are many files of arrays, and few others
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
            assert values == world.answers[step]
        else:
            assert values["step"] == step
            check_export(world.exported[step], exported)

    codes = (0, 1) if kind == "verify" else (0,)
    return Attempt([kind, *arguments[kind], "--json", "-"], oracle, codes)


def check_verdict(original: Path, run: Path, name: Path, outcome) -> None:
    """Of a run of which the file `name` was damaged; of the other files only those that cannot be read are named."""
    values, is_sound = outcome.values, outcome.code == 0
    assert values["sound"] == is_sound == (not values["problems"])
    if not is_sound:
        named = {problem["file"] for problem in values["problems"]}
        assert str(name) in AGREE or any(f"{name}/".startswith(f"{n}/") for n in named)
    elif name.parts[0] == "checkpoints":
        step = Path(*name.parts[:2])
        assert arrays(original / step) == arrays(run / step)


def arrays(place: Path) -> dict[str, bytes]:
    """Every array of a checkpoint, as its fingerprints name them."""
    trees = {item: reader.read(place, item) for item in reader.ITEMS}
    return {path_name(path): leaf.tobytes() for path, leaf in jax.tree.leaves_with_path(trees)}


def check_export(expected: Path, found: Path) -> None:
    one, two = ({path.name: path for path in place.iterdir()} for place in (expected, found))
    assert one.keys() == two.keys()
    for name in one.keys() - {*TOLD, WEIGHTS}:
        assert one[name].read_bytes() == two[name].read_bytes(), name
    check_tensors(load_file(one[WEIGHTS]), load_file(two[WEIGHTS]))


def check_tensors(expected: dict, found: dict) -> None:
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        assert array.shape == found[name].shape and array.tobytes() == found[name].tobytes(), name
