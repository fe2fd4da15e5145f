"""run.json and the head of the log: what is being trained, and reference values for its loss."""

import math
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bert_jax import __version__
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.layers import gpu
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.optimizers.base import bytes_per_parameter
from bert_jax.parallel import mesh as meshes
from bert_jax.registry import module_folders
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.special_tokens import Vocabulary

PACKAGES = "jax jaxlib libtpu jax-cuda12-pjrt flax optax orbax-checkpoint numpy tensorflow tensorflow_cpu".split()


def collect(config, data, trainer) -> dict:
    """Returns the values of run.json. data: a feed of tasks/feed.py."""
    params = trainer.shapes.params
    phases = {phase.name: phase_info(config, phase, trainer) for phase in configs.phases(config)}
    return {
        **models.parameters(config, params, data.vocabulary.size),
        "optimizer_bytes_per_parameter": bytes_per_parameter(trainer.shapes),
        # The config may have `auto` and 0 for these two. Attention is chosen for each phase.
        "dtype": config.dtype,
        "feed_forward": configs.resolve_model(config).model.get("feed_forward"),
        "unigram_entropy": data.unigram_entropy,
        "vocabulary": data.vocabulary._asdict(),
        "store_fingerprint": data.fingerprint,
        "module_folders": module_folders(config),
        "versions": versions(),
        "deterministic": gpu.is_deterministic() or not gpu.is_target(),
        "devices": [device.device_kind for device in trainer.mesh.devices.flatten()],
        "mesh": dict(trainer.mesh.shape),
        "sharding": meshes.describe(params, models.shardings(config)),
        "phases": phases,
    }


def versions() -> dict[str, str]:
    """Returns the versions of bert_jax, Python and those of PACKAGES that are installed."""
    versions = {"bert_jax": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def phase_info(config, phase, trainer) -> dict:
    """Returns the values of run.json about a phase."""
    mesh = trainer.mesh
    micro_batches = meshes.micro_batches(mesh, phase, config.train)
    return {
        "tokens_per_step": tasks.tokens_per_step(config, phase),
        "flops_per_step": trainer.flops[phase.name][phase.length],
        "attention": tasks.attention(config, phase, mesh),
        "micro_batches": micro_batches,
        # Rows of one micro-batch.
        "rows_per_device": phase.batch // (meshes.axis_size(mesh, meshes.ROWS) * micro_batches),
    }


def describe(config, info: dict) -> str:
    """Returns the head of the log."""
    model = config.model
    layers = " + ".join(str(model[key]) for key in ("layers", "decoder_layers") if key in model)
    size = f" {layers} x {model.width}" if layers and "width" in model else ""
    devices = ", ".join(sorted(set(info["devices"])))
    head = (
        f"{model.name}{size}, {info['parameters']:,} parameters, objective "
        f"{config.objective.name}, optimizer {config.optimizer.name} "
        f"({info['optimizer_bytes_per_parameter']:.3g} bytes a parameter), "
        f"{config.dtype} on {len(info['devices'])} x {devices}"
    )
    phases = [describe_phase(phase, info["phases"][phase.name]) for phase in configs.phases(config)]
    objective = base.make(config, Vocabulary(**info["vocabulary"]))
    losses = ""
    if objective.headline:
        untrained = math.log(info["vocabulary"]["size"])
        losses = f"for comparison: {objective.headline} {untrained:.2f} nats untrained"
        losses += f", {info['unigram_entropy']:.2f} from token frequencies"
    bits = ""
    if not info["deterministic"]:
        bits = f"a restart may give other last bits; {gpu.DETERMINISTIC} in XLA_FLAGS prevents that"
    return "\n".join(filter(None, [head, *phases, losses, bits]))


def describe_phase(phase, info: dict) -> str:
    """Describes a phase in one line of the log's head, with its micro-batches x the rows of each on a device."""
    text = f"phase {phase.name}: {phase.stop - phase.first:,} steps of {phase.batch} rows"
    rows = info["rows_per_device"]
    if rows < phase.batch:
        text += f" ({info['micro_batches']} x {rows} on each device)"
    text += f" of {phase.length} tokens"
    if info["attention"]:
        text += f", attention by {info['attention']}"
    return text


def check_store(directory: str, info: dict, step: int, data) -> None:
    """Raises BadInput if data does not come from the run's store; for an import at step 0, if its tokenizer differs."""
    if step:
        matches = data.fingerprint == info.get("store_fingerprint")
        reason = f"does not match the store that {directory} was trained on; name that one"
    else:
        of_data = tokenizer.load(data.path / "tokenizer")
        of_run = tokenizer.load(Path(directory, "tokenizer"))
        matches = of_data.fingerprint == of_run.fingerprint
        reason = f"its tokenizer differs from that of {directory}; prepare a store with {directory}/config.json"
    if not matches:
        raise BadInput(f"config.{data.key}={data.path}: {reason}")
