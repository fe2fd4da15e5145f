"""Checkpoints on disk: damage is detected and named, and an older checkpoint is used."""

import json
import shutil

import jax
import numpy as np
import pytest
from kits.damage import flip_bit
from kits.full_disk import full_disk
from kits.runs import assert_same_bits, make_run, params
from kits.small import VOCABULARY, mesh_of, small_config
from kits.waiting import wait_until

from bert_jax import build
from bert_jax.checkpoints import fingerprint, reader, writer
from bert_jax.checkpoints.fingerprint import Leaf
from bert_jax.convert import open_model
from bert_jax.convert.names import by_path
from bert_jax.errors import BadInput, Unfinished
from bert_jax.parallel import cluster
from bert_jax.registry import registered
from bert_jax.runs import open_run
from bert_jax.runs.workdir import Workdir
from bert_jax.step import State


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory):
    """A run with checkpoints of steps 7 and 9, and the parameters of both."""
    run = tmp_path_factory.mktemp("saved_run") / "run"
    *_, seven = make_run(run, step=7)
    nine = jax.tree.map(lambda x: np.asarray(x) + 1, seven)
    with writer.manager(run / "checkpoints", keep=2) as checkpoints:
        save(checkpoints, 9, nine)
        writer.finish(checkpoints)
    return run, seven, nine


@pytest.fixture
def run(saved_run, tmp_path):
    shutil.copytree(saved_run[0], tmp_path / "run")
    return tmp_path / "run"


def save(checkpoints, step: int, params) -> None:
    items = reader.items(State(step, params, {"count": np.int32(step)}))
    writer.save(checkpoints, step, items, fingerprint.of_tree(items), "")


def largest(directory, item: str):
    """Returns the largest file with arrays."""
    return max((directory / item).rglob("d/*"), key=lambda path: path.stat().st_size)


def change(path, *keys, value) -> None:
    """Sets a value in a JSON file."""
    values = found = json.loads(path.read_text())
    for key in keys[:-1]:
        found = found[key]
    found[keys[-1]] = value
    path.write_text(json.dumps(values))


def found(run) -> reader.Newest:
    return reader.newest_verified(run / "checkpoints", "")


# --- Damage -------------------------------------------------------------------------------------


def test_an_undamaged_run_is_read_as_it_was_saved(run, saved_run):
    assert reader.problems(run / "checkpoints", "") == {7: "", 9: ""}
    assert found(run) == (9, {})
    assert_same_bits(params(run), saved_run[2])


def test_the_newest_checkpoints_are_averaged(run, saved_run, capsys):
    """Those that verify."""

    def restore(*settings):
        return reader.restore_params(run / "checkpoints", "", *settings)

    expected = jax.tree.map(lambda a, b: (a + b) / 2, *saved_run[1:])
    model = open_run.open_run(Workdir(run), ["checkpoint.average=2"])
    assert model.step == 9
    assert_same_bits(model.params, expected)
    with pytest.raises(BadInput, match="average=3: .*: 2$"):
        restore(3, None)
    path = largest(run / "checkpoints/9", "params")
    flip_bit(path, path.stat().st_size // 2)
    with pytest.raises(BadInput, match="average=2: .*: 1$"):
        restore(2, None)
    assert "skipped" in capsys.readouterr().err


PATIENT = ["evaluate.patience=2"]


@pytest.mark.parametrize(
    "losses, named, best",
    [
        ({7: 1.0, 9: 2.0}, None, 7),
        ({5: 0.5, 7: 1.0, 9: 2.0}, None, 7),  # 5 was deleted before there was any patience
        ({5: 0.5, 7: 1.0, 9: 2.0}, 5, None),
        ({7: 1.0, 9: 2.0}, 9, 9),
        ({7: 1.0, 9: 2.0, 11: 0.5}, None, 7),  # a later one, whose save was interrupted
        ({}, 7, 7),  # metrics.jsonl was lost
    ],
)
def test_the_best_checkpoint_is_the_one_that_the_summary_names(run, losses, named, best):
    """Without a summary of the latest start, the best of those that exist. One that is missing or damaged is refused
    by its step."""
    found = [{"step": n, "split": "dev", "seconds": 1, "loss": x} for n, x in losses.items()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    if named:
        summary = {"starts": 0, "steps": 9, "best": {"step": named}}
        (run / "summary.json").write_text(json.dumps(summary))
    assert open_run.open_run(Workdir(run)).step == 9
    if best:
        assert open_run.open_run(Workdir(run), PATIENT).step == best
        path = largest(run / f"checkpoints/{best}", "params")
        flip_bit(path, path.stat().st_size // 2)
    with pytest.raises(BadInput, match=f"checkpoints/{best or named}: .*evaluate.patience=0"):
        open_run.open_run(Workdir(run), PATIENT)


@pytest.mark.slow
@pytest.mark.parametrize("where", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("item", reader.ITEMS)
def test_a_flipped_bit_is_never_restored(run, saved_run, item, where):
    """A flip in unused bytes does not matter, but nearly all bytes of the largest file of parameters are used."""
    path = largest(run / "checkpoints/9", item)
    flip_bit(path, int(where * path.stat().st_size), 4)
    step, skipped = found(run)
    assert step == (7 if skipped else 9) and (skipped or item != "params" or where != 0.4)
    assert_same_bits(params(run), saved_run[1] if skipped and item == "params" else saved_run[2])


DAMAGES = {
    "no fingerprints": lambda directory: shutil.rmtree(directory / reader.FINGERPRINTS),
    "no optimizer state": lambda directory: shutil.rmtree(directory / "opt_state"),
    "no parameters": lambda directory: shutil.rmtree(directory / "params"),
    "nothing": lambda directory: [shutil.rmtree(directory), directory.mkdir()],
    "empty": lambda directory: largest(directory, "params").write_bytes(b""),
    "a file is missing": lambda directory: largest(directory, "opt_state").unlink(),
    "altered fingerprints": lambda directory: change(
        directory / "fingerprints/metadata", "leaves", value={}
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_skipped(run, damage):
    DAMAGES[damage](run / "checkpoints/9")
    step, skipped = found(run)
    assert step == 7 and "\n" not in skipped[9]


def test_a_step_under_another_name_is_skipped_and_another_run_refused(run):
    directory = run / "checkpoints"
    shutil.copytree(directory / "7", directory / "20")
    step, skipped = found(run)
    assert step == 9 and list(skipped) == [20]
    assert all(reader.problems(directory, "other").values())


def test_other_files_are_ignored_and_kept(run):
    directory = run / "checkpoints"
    for name in ("notes", "40.orbax-checkpoint-tmp", "²", "-1", "1e3", "9" * 19):
        (directory / name).mkdir()
    (directory / "50").write_text("")
    assert found(run) == (9, {}) and reader.newest(directory) == 9
    (renamed,) = writer.clean(directory, [9])
    assert (renamed / "params").is_dir() and not (directory / "40.orbax-checkpoint-tmp").exists()
    assert reader.steps(directory) == [7] and (directory / "notes").is_dir()


# --- The run around it --------------------------------------------------------------------------


def test_an_altered_config_is_refused(run):
    change(run / "config.json", "model", "heads", value=2)
    with pytest.raises(BadInput, match="config.json.*run.json"):
        params(run)


def test_the_compilation_cache_is_not_taken_from_the_run(run):
    change(run / "config.json", "compilation_cache", value=str(run / "trap"))
    opened = open_model.open_model(run).config.compilation_cache
    assert opened == open_model.config.base().compilation_cache
    assert open_model.open_model(run, ["compilation_cache="]).config.compilation_cache == ""


def test_a_run_is_opened_with_its_config_except_for_the_attention(run):
    assert open_model.open_model(run, ["model.attention=xla"]).config.model.attention == "xla"
    with pytest.raises(BadInput, match="config.model.width"):
        open_model.open_model(run, ["model.width=64"])


# --- Saves --------------------------------------------------------------------------------------


def test_restored_arrays_are_compared_with_the_saved_fingerprints(run):
    directory = run / "checkpoints/9"
    leaves = reader.read_manifest(directory)
    reader.check_restored(directory, leaves)
    name = "params/network/pooler/bias"
    leaves[name] = Leaf(leaves[name].dtype, leaves[name].shape, "0" * 16)
    with pytest.raises(Unfinished, match=name):
        reader.check_restored(directory, leaves)


@pytest.mark.parametrize("when", ["at the next report", "at the end"])
def test_a_full_disk_ends_the_run_and_the_step_before_is_used(run, saved_run, capfd, when):
    with (
        pytest.raises(Unfinished, match="step 9"),
        writer.manager(run / "checkpoints", keep=1) as checkpoints,
        full_disk(20_000),
    ):
        save(checkpoints, 11, saved_run[2])
        if when == "at the end":
            writer.finish(checkpoints)
        wait_until(lambda: writer.check(checkpoints))  # which raises
    assert "Traceback" not in capfd.readouterr().err
    assert found(run) == (9, {})


def test_the_loss_of_another_process_is_not_a_failed_save(run):
    """Orbax waits for all processes in a collective, whose error numpy raises as a ValueError."""
    gone = ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    full = ValueError("UNKNOWN: No space left on device")
    for error, kind in ((gone, ValueError), (full, Unfinished)):
        with (
            writer.manager(run / "checkpoints") as checkpoints,
            pytest.raises(kind) as raised,
            writer.saving(checkpoints),
        ):
            raise error
        assert cluster.is_loss(error) == (raised.value is error)


# --- Restoring ------------------------------------------------------------------------------------


def test_a_checkpoint_that_verifies_can_be_restored_without_orbax_metadata(run, saved_run):
    """For example one that was copied to a bucket, and has lost the metadata about array layouts."""
    directory = run / "checkpoints/9"
    for path in [*directory.glob("*/array_metadatas/*"), *directory.glob("*/_sharding")]:
        path.write_bytes(b"{")
    (directory / "_CHECKPOINT_METADATA").unlink()
    assert found(run) == (9, {})
    shapes = State(None, saved_run[2], {"count": np.int32(9)})
    shapes = jax.eval_shape(lambda: shapes)
    first = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    items = reader.restore(directory, reader.ITEMS, shapes, jax.tree.map(lambda _: first, shapes))
    assert_same_bits(items["params"], saved_run[2])


@pytest.mark.parametrize("name", sorted(registered("optimizer")))
def test_the_state_of_every_optimizer_is_restored(tmp_path, name):
    """Also without its shapes, by the same paths: config.init_moments reads them so."""
    config = small_config(f"optimizer.name={name}", "optimizer.weight_decay=0")
    design = build.design(config, mesh_of((2, 2, 2)), VOCABULARY)
    draw = np.random.default_rng(0)
    values = jax.tree.map(
        lambda leaf: draw.uniform(size=leaf.shape).astype(leaf.dtype), design.shapes
    )
    items = reader.items(values)
    with writer.manager(tmp_path) as checkpoints:
        writer.save(checkpoints, 3, items, fingerprint.of_tree(items), run="")
        writer.finish(checkpoints)
    restored = reader.restore(tmp_path / "3", reader.ITEMS, design.shapes, design.shardings)
    assert_same_bits(restored, items)
    read = by_path(reader.read(tmp_path / "3", "opt_state"))
    expected = by_path(values.opt_state)
    assert read.keys() == expected.keys()
    for path in read:
        np.testing.assert_array_equal(read[path], expected[path])
