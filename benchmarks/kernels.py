"""Instructions of a step of the attention kernels, counted in what the TPU compiler makes of them, beside those that
bert_jax/planning/kernels.py has; no TPU is needed, libtpu is.

    python benchmarks/kernels.py [--only NAME ...]

libtpu writes the schedule of each kernel that it compiles (LIBTPU_INIT_ARGS below; it documents neither the flags nor
the files), whose bundles are one a cycle. splash is compiled for 2 rows and 2 heads; fused for 131,072 tokens and 12
heads, so many that its arrays lie outside of the core's own memory, as most do in a step. What is around a kernel
decides that, and moves the count by some per cent: NEAR is what is let pass. Prints a Markdown row for each count and
ends with 1 where one is further off.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

# Before JAX is imported: libtpu is here to compile, and has no devices.
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from bert_jax.cli import Parser
from bert_jax.errors import BadInput
from bert_jax.models import attention
from bert_jax.planning import compilation, kernels, topology
from bert_jax.runs import libtpu

NEAR = 0.03  # of a count
DUMP = "--xla_jf_dump_to={} --xla_jf_dump_llo_text=true"
SCHEDULES = "*-schedule-analysis_final_bundles.txt"
BUNDLES = re.compile(r"total scheduled bundles: *(\d+)")
TOKENS = 1 << 17  # of fused
RATE = 0.1  # of dropout
SLICES = {
    "TPU v4": "v4:2x2x1",
    "TPU v5 lite": "v5e:1x1",
    "TPU v5": "v5p:2x2x1",
    "TPU v6 lite": "v6e:1x1",
}


class Case(NamedTuple):
    kind: str  # splash or fused
    length: int = 512
    dropout: str = ""  # or "_dropout"
    device: str = "TPU v5 lite"
    dtype: str = "bfloat16"

    @property
    def kept(self) -> dict[str, float]:
        """By the kernel's name, what planning/kernels.py has."""
        steps = kernels.SPLASH_STEPS if self.kind == "splash" else kernels.FUSED_STEPS
        names = [name for name in steps if name.endswith("_dropout") == bool(self.dropout)]
        relative = kernels.RELATIVE[self.kind].get(self.device, 1)
        relative *= kernels.FLOAT32 if self.dtype == "float32" else 1
        return {name: steps[name][self.length] * relative for name in names}


def cases() -> dict[str, Case]:
    named = {f"splash-{length}": Case("splash", length) for length in kernels.SPLASH_STEPS["fwd"]}
    for length in kernels.FUSED_STEPS["forward"]:
        named[f"fused-{length}"] = Case("fused", length)
        named[f"fused-{length}-dropout"] = Case("fused", length, "_dropout")
    for kind, relative in kernels.RELATIVE.items():
        for device in relative:
            name = SLICES[device].partition(":")[0]
            named[f"{kind}-{name}"] = Case(kind, device=device)
    return named | {"splash-float32": Case("splash", dtype="float32")}


CASES = cases()


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.epilog = f"names: {', '.join(CASES)}"
    far = []
    with dumped() as dump:
        try:
            options = parser.parse_args(arguments)
            print("| kernel, tokens | kept | counted | |\n| --- | --- | --- | --- |")
            for name in options.only:
                found, kept = count(CASES[name], dump), CASES[name].kept
                for line, share in rows(name, CASES[name], kept, found):
                    print(line, flush=True)
                    far += [name] if abs(share) > NEAR else []
        except BadInput as error:
            print(f"kernels.py: {error}", file=sys.stderr)
            return 2
    print(f"\nlibtpu {version('libtpu')}; the kept ones are of {kernels.LIBTPU}.")
    return 1 if far else 0


@contextlib.contextmanager
def dumped() -> Iterator[Path]:
    """The directory into which a libtpu that is loaded within writes schedules."""
    before = os.environ.get(libtpu.FLAGS)
    with tempfile.TemporaryDirectory() as directory:
        os.environ[libtpu.FLAGS] = DUMP.format(directory)
        try:
            yield Path(directory)
        finally:
            os.environ.pop(libtpu.FLAGS)
            if before is not None:
                os.environ[libtpu.FLAGS] = before


def count(case: Case, dump: Path) -> dict[str, int]:
    """Bundles of each kernel of a case. The files are removed: they are 100 MB."""
    compile_case(case)
    found = read(dump)
    for path in dump.iterdir():
        path.unlink()
    if found.keys() != case.kept.keys():
        raise BadInput(f"libtpu: schedules of {', '.join(found) or 'no kernel'} in its dump")
    return found


def compile_case(case: Case) -> None:
    """The attention of some rows and its gradients, for one device."""
    device = topology.devices(topology.find(SLICES[case.device]))[0]
    place = SingleDeviceSharding(device)
    rows, heads = (2, 2) if case.kind == "splash" else (TOKENS // case.length, 12)
    x = jax.ShapeDtypeStruct((rows, case.length, heads, 64), case.dtype, sharding=place)
    ids = jax.ShapeDtypeStruct((rows, case.length), jnp.int32, sharding=place)
    rate = RATE if case.dropout else 0.0
    fused = partial(attention.fused, keys=np.zeros(rows, np.uint32), rate=rate)
    function = {"splash": attention.splash, "fused": fused}[case.kind]

    def total(vectors, ids):
        return function(*vectors, ids).astype(jnp.float32).sum()

    precision = "highest" if case.dtype == "float32" else None
    with compilation.uncached(), jax.default_matmul_precision(precision):
        jax.jit(jax.value_and_grad(total)).lower((x, x, x), ids).compile()


def read(dump: Path) -> dict[str, int]:
    """Bundles by the kernel's name, of the schedules in a directory."""
    found = {}
    for path in dump.glob(SCHEDULES):
        splash, fused = kernels.SPLASH.search(path.name), kernels.FUSED.search(path.name)
        if splash or fused:
            name = splash[1] if splash else fused[1] + (fused[3] or "")
            found[name] = int(BUNDLES.search(path.read_text())[1])
    return found


def rows(name: str, case: Case, kept: dict, found: dict) -> Iterator[tuple[str, float]]:
    """(a row, by what share it is off). Of what is kept relative to v5e's bfloat16, one, of both kernels."""
    if case.device != "TPU v5 lite" or case.dtype == "float32":
        kept, found = {"both": sum(kept.values())}, {"both": sum(found.values())}
    for kernel in kept:
        share = found[kernel] / kept[kernel] - 1
        what = f"{name}, {kernel}, {case.length}"
        yield f"| {what} | {kept[kernel]:,.0f} | {found[kernel]:,} | {100 * share:+.1f} % |", share


if __name__ == "__main__":
    sys.exit(main())
