"""Environment variables of this process for its devices: of XLA on GPUs, of libtpu, of malloc on CPUs; and the silence
of compilers for devices that this machine lacks."""

import os
import platform
import signal
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from bert_jax.errors import BadInput, discarded, may_handle_signals
from bert_jax.parallel.chips import GPUS, TPUS, has_device

# By default XLA compiles and times many kernels for each matrix product and fusion, for minutes in all. With these
# flags cuBLAS computes the products; it chooses its kernels without compiling them.
GPU_FLAGS = {
    "xla_gpu_enable_triton_gemm": "false",
    "xla_gpu_experimental_enable_fusion_autotuner": "false",
}
# The first version of jaxlib that was not tried with these flags. An unknown flag ends the process.
UNTRIED = (0, 13)
# The share of a GPU's memory that JAX allocates when it starts: its name, and an older one. JAX's own share is 0.75;
# what is left is for NCCL and cuDNN.
SHARES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
SHARE = 0.9
# Without these, libtpu queries Google Cloud's metadata server, and warns that it does not answer.
NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
}
# The compiler's threads have stacks of 64 KiB by default; some programs overflow them, and the process dies of SIGSEGV.
STACK = "fibers_default_thread_stack_size"
STACK_BYTES = 8 << 20
# The last version of libtpu known to have this flag.
LAST = (0, 0, 52)
# Of glibc: huge pages, and one heap that keeps what is freed. XLA allocates the memory of a step from the C library,
# and frees it after every step; page faults of the new memory would cost up to half of a step. Blocks over 1 GiB are
# mapped outside of the heap: with batches of several lengths their sizes differ, and a heap that had them, too, grew to
# 24 GB.
MALLOC = (
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
    f":glibc.malloc.mmap_threshold={2**30}:glibc.malloc.trim_threshold={2**40}"
)


def configure() -> None:
    """Sets the variables of libtpu and, where there is a GPU, of XLA. To be called before JAX finds devices.

    Without a GPU, the compiler of the extra `plan-gpu` is no device, and JAX finds it silently.
    """
    if has_device(TPUS):
        enlarge_stacks()
    else:  # libtpu may be installed for `plan` alone
        os.environ |= NO_TPU | os.environ
    os.environ |= gpu_variables()
    if has_gpu_compiler() and not has_device((*GPUS, *TPUS)):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        find_gpu_compiler()


# --- CPUs -----------------------------------------------------------------------------------------


def malloc_variables() -> dict[str, str]:
    """Returns the settings of malloc that this process lacks: none where JAX computes on an accelerator, where the C
    library is another one, or where the user has set them, also to the empty string."""
    accelerators = (*TPUS, *GPUS, "kfd")
    platforms = os.environ.get("JAX_PLATFORMS", "" if has_device(accelerators) else "cpu")
    is_on_cpu = platforms.split(",")[0] == "cpu"
    has_glibc = platform.libc_ver()[0] == "glibc"
    if is_on_cpu and has_glibc and "GLIBC_TUNABLES" not in os.environ:
        return {"GLIBC_TUNABLES": MALLOC}
    return {}


def restart_process() -> None:
    """Starts the program of this process again, with the same process id, if it lacks settings of malloc: glibc reads
    them when a process starts."""
    variables = malloc_variables()
    if variables:
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, os.environ | variables)


# --- GPUs -----------------------------------------------------------------------------------------


def gpu_variables() -> dict[str, str]:
    """Returns the variables of XLA that this process lacks; none without a GPU."""
    if not has_device(GPUS):
        return {}
    variables = gpu_flags()
    if not any(name in os.environ for name in SHARES):
        variables[SHARES[0]] = str(SHARE)
    return variables


def gpu_flags() -> dict[str, str]:
    """Returns XLA_FLAGS with those of GPU_FLAGS that it lacks; nothing if it has them, or jaxlib is not a known
    version."""
    flags = os.environ.get("XLA_FLAGS", "")
    missing = [f"--{name}={value}" for name, value in GPU_FLAGS.items() if name not in flags]
    if not missing or release("jaxlib", 2) >= UNTRIED:
        return {}
    return {"XLA_FLAGS": " ".join([*flags.split(), *missing])}


def memory_share() -> float:
    """Returns the share of a GPU's memory that a process may use. Raises BadInput for a variable that is no share."""
    for name in SHARES:
        if text := os.environ.get(name):
            with suppress(ValueError):
                if 0 < float(text) <= 1:
                    return float(text)
            raise BadInput(f"{name}={text}: expected a number in (0, 1]")
    return SHARE


def has_gpu_compiler() -> bool:
    """Returns whether JAX's compiler for GPUs is installed."""
    try:
        return any(find_spec(f"jax_plugins.xla_cuda{number}") for number in (12, 13))
    except ModuleNotFoundError:  # no plugin at all
        return False


def find_gpu_compiler() -> None:
    """Lets JAX find the compiler for GPUs, and discards standard error meanwhile: without a GPU the compiler and JAX
    print several lines about it."""
    # Raised for no such platform, after all were found.
    with discarded(sys.stderr, 2), suppress(NotImplementedError):
        from jax.experimental import topologies

        topologies.get_topology_desc(platform="none")


# --- TPUs -----------------------------------------------------------------------------------------


def enlarge_stacks() -> None:
    """Enlarges the stacks of the compiler's threads, unless the user has set their size. Does nothing for versions that
    may not have the flag: an unknown flag ends the process."""
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    if STACK in flags or os.environ.get("TPU_LIBRARY_PATH"):
        return
    with suppress(PackageNotFoundError, ValueError):
        if release("libtpu", 3) <= LAST:
            os.environ["LIBTPU_INIT_ARGS"] = f"{flags} --{STACK}={STACK_BYTES}".strip()


def release(package: str, parts: int) -> tuple[int, ...]:
    """Returns the first parts of the version of an installed package."""
    return tuple(map(int, version(package).split(".")[:parts]))


def restore_sigterm() -> None:
    """Restores the handler of SIGTERM: libtpu's prints long stack traces. To be called after libtpu is loaded, that is,
    after JAX has found devices."""
    if may_handle_signals():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
