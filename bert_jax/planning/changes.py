"""Changes to a config, as {key: value}, and as options of a command."""

from ml_collections import ConfigDict


def changed(config: ConfigDict, changes: dict[str, object]) -> ConfigDict:
    config = config.copy_and_resolve_references()
    config.update_from_flattened_dict(changes)
    return config


def options(changes: dict[str, object]) -> str:
    return " ".join(f"--config.{key}={value}" for key, value in changes.items())
