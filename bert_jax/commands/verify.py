"""`verify`: all that is wrong with a store, or with a run."""

from bert_jax import cli
from bert_jax.commands import verify_store, verify_workdir
from bert_jax.errors import BadInput

OPTIONS = [
    cli.option("--store", "directory or address of a token store", type=cli.run_place),
    cli.option("--workdir", "directory or address of a run", type=cli.run_place),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse(overrides)
    if bool(options.store) == bool(options.workdir):
        raise BadInput("verify: expected --store or --workdir")
    if options.store:
        values = verify_store.verify(options.store, cli.tell)
    else:
        values = verify_workdir.verify_workdir(options.workdir)
    cli.show(options, values, "\n".join(verify_store.describe(values)))
    return 0 if values["sound"] else 1
