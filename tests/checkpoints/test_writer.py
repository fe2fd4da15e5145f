"""A save compiles no program: small arrays that all devices have are saved by one of them."""

import jax
import numpy as np
from kits.runs import assert_same_bits
from kits.small import mesh_of

from bert_jax.checkpoints import fingerprint, reader, writer
from bert_jax.parallel import mesh as meshes
from bert_jax.step import State


def test_a_save_compiles_nothing(tmp_path):
    names = []
    sharding = meshes.replicated(mesh_of((8, 1, 1)))
    params = {"small": np.arange(8 * 1237, dtype=np.float32).reshape(8, 1237)}
    state = State(3, jax.device_put(params, sharding), {"count": np.int32(3)})
    leaves = fingerprint.of_tree(reader.items(state._replace(params=params)))
    # JAX cannot remove one listener, so this one stays, and only appends.
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: names.append(name))
    jax.jit(lambda x: x + 1237)(1.0)
    assert any("backend_compile" in name for name in names)
    names.clear()
    with writer.manager(tmp_path / "checkpoints") as checkpoints:
        writer.save(checkpoints, 3, reader.items(state), leaves, "")
        writer.finish(checkpoints)
    assert not any("compile" in name for name in names), names
    assert_same_bits(reader.read(tmp_path / "checkpoints/3", "params"), params)
