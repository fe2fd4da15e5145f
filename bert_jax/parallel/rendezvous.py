"""How processes find each other: where this one stands, and a meeting before JAX connects them.

JAX's own client aborts the process, with a stack of C++, when somebody is missing. So the processes meet first, at the
address where JAX will: process 0 listens, the others say who they are, and all go on together or end with one line.
"""

import contextlib
import json
import os
import selectors
import socket
import time
from typing import NamedTuple

from bert_jax.errors import BadInput, Missing

RETRY = 0.2  # seconds between two tries to reach process 0
PATIENCE = 5.0  # seconds: for a line from who has connected, and for an answer after process 0's own deadline
LINE = 4096  # bytes of a message, at most
# Of JAX's ways to ask a scheduler. Kubernetes is not among them: it warns in every container without its package.
SCHEDULERS = ("ompi", "slurm", "gketpu", "gcetpu")
# By which they tell it.
SLURM = "SLURM_JOB_ID SLURM_STEP_NODELIST SLURM_NTASKS SLURM_PROCID SLURM_LOCALID"
OMPI = "OMPI_MCA_orte_hnp_uri OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK"
TELLING = {"slurm": SLURM.split(), "ompi": OMPI.split()}
GO = {"go": True}
KINDS = {BadInput: "refusal", Missing: "missing"}  # of answers that end all


class Place(NamedTuple):
    """Where this process stands among several."""

    address: str  # HOST:PORT of process 0
    processes: int
    process: int
    detected: str = ""  # the scheduler that knew, if one was asked


def find(keys) -> Place | None:
    """From the group `distributed` of a config, else from variables, else from a scheduler; None for one process."""
    address = keys.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    processes = keys.processes or from_variable("JAX_NUM_PROCESSES", 0)
    process = keys.process if keys.process >= 0 else from_variable("JAX_PROCESS_ID", -1)
    detected = ""
    if processes != 1 and not (address and processes and process >= 0):
        with told_in_a_line("config.distributed"):
            scheduler = find_scheduler()
        if scheduler:
            detected = scheduler.name
            with told_in_a_line(detected):
                there = Place(*ask(scheduler, keys.timeout), detected)
            processes = processes or there.processes
            process = process if process >= 0 else there.process
            address = address or there.address
    if processes == 1 or not (address or processes or process >= 0):
        return None
    check(address, processes, process)
    return Place(address, processes, process, detected)


def from_variable(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise BadInput(f"{name}={text}: expected a whole number")
    return int(text) if text else default


def find_scheduler():
    """The one that has started this process, of those that JAX knows."""
    from jax._src import clusters  # there is no public way to ask before connecting

    known = {kind.name: kind for kind in clusters.ClusterEnv._cluster_types}
    present = (known[name] for name in SCHEDULERS if name in known)
    return next((kind for kind in present if kind.is_env_present()), None)


def ask(scheduler, seconds: int) -> tuple[str, int, int]:
    """(address, processes, process), raising what it likes where that cannot be."""
    processes = scheduler.get_process_count()
    if processes == 1:
        return "", 1, 0
    process = scheduler.get_process_id()
    port = str(from_variable("JAX_COORDINATOR_PORT", 0) or "")
    address = scheduler.get_coordinator_address(
        timeout_secs=seconds, override_coordinator_port=port
    )
    scheduler.get_local_process_id()  # JAX asks, too, once all have met
    if not 0 <= process < processes or address.startswith(":"):
        raise ValueError(f"process {process} of {processes} at {address}")
    return address, processes, process


@contextlib.contextmanager
def told_in_a_line(name: str):
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        known = [f"{key}={os.environ[key]!r}" for key in TELLING.get(name, ()) if key in os.environ]
        told = "; ".join([reason, " ".join(known)] if known else [reason])
        raise BadInput(f"{name}: does not say where this process stands ({told})") from None


def check(address: str, processes: int, process: int) -> None:
    """Raises BadInput for what is missing or cannot be."""
    missing = {
        "coordinator (or JAX_COORDINATOR_ADDRESS)": not address,
        "processes (or JAX_NUM_PROCESSES)": processes == 0,
        "process (or JAX_PROCESS_ID)": process < 0,
    }
    for key, is_missing in missing.items():
        if is_missing:
            raise BadInput(f"config.distributed.{key}: missing, but others of them are given")
    if not 0 <= process < processes:
        raise BadInput(
            f"config.distributed.process={process}: expected 0 to {processes - 1} of {processes} processes"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f"config.distributed.coordinator={address}: expected HOST:PORT")


def meet(place: Place, about: dict, seconds: float) -> None:
    """Returns once all processes are there and `about` (versions) is the same in all. Raises otherwise, in all:
    Missing where somebody does not come, BadInput where something differs.

    Who does not reach process 0 gives up `seconds` after it has begun; who has reached it waits for its answer, which
    comes by process 0's own deadline.
    """
    hello = {"process": place.process, "processes": place.processes, **about}
    if place.process == 0:
        receive(place, hello, seconds)
    else:
        join(place, hello, seconds)


def receive(place: Place, hello: dict, seconds: float) -> None:
    """Process 0: waits for the others, and tells all of them to go on, or why not."""
    deadline, there, refused, error = time.monotonic() + seconds, {}, [], None
    with contextlib.ExitStack() as connections:
        with listen(place) as server:
            while not error and len(there) < place.processes - 1:
                connection, message = accept(server, deadline)
                if connection:
                    connections.enter_context(connection)
                    error = compare(hello, message, there)
                    if error:
                        refused.append(connection)
                    else:
                        there[message["process"]] = connection
                elif time.monotonic() > deadline:
                    error = missing(place, there, seconds)
                if len(there) == place.processes - 1:
                    # Who has given up in the meantime is not there.
                    there = {number: other for number, other in there.items() if not is_gone(other)}
        # The port is free now, for JAX.
        answer = {KINDS[type(error)]: str(error)} if error else GO
        for connection in [*there.values(), *refused]:
            with contextlib.suppress(OSError):
                connection.sendall(encode(answer))
    if error:
        raise error


def listen(place: Place) -> socket.socket:
    port = int(place.address.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, backlog=place.processes, dualstack_ipv6=both
        )
    except OSError as error:
        raise BadInput(
            f"config.distributed.coordinator={place.address}: process 0 cannot listen there"
            f" ({os.strerror(error.errno)})"
        ) from None


def accept(server: socket.socket, deadline: float) -> tuple:
    """(connection, message) of the next process; None for what did not come, or is none of ours."""
    server.settimeout(max(0.01, deadline - time.monotonic()))
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return None, None
    message = read(connection, min(deadline, time.monotonic() + PATIENCE))
    known = {"process": int, "processes": int}
    if not message or any(type(message.get(key)) is not kind for key, kind in known.items()):
        connection.close()
        return None, None
    return connection, message


def compare(mine: dict, theirs: dict, there: dict) -> BadInput | None:
    """What is wrong with a process that wants to join."""
    number = theirs["process"]
    if number == 0 or number in there:
        return BadInput(f"config.distributed.process={number}: two processes have this number")
    for key in sorted((mine | theirs).keys() - {"process"}):
        if mine.get(key) != theirs.get(key):
            name = "config.distributed.processes" if key == "processes" else key
            here, other = mine.get(key), theirs.get(key)
            return BadInput(f"{name}: {here} in process 0, {other} in process {number}")
    return None


def missing(place: Place, there: dict, seconds: float) -> Missing:
    absent = [str(number) for number in range(1, place.processes) if number not in there]
    shown = ", ".join(absent[:8]) + (", ..." if len(absent) > 8 else "")
    return Missing(
        f"config.distributed.coordinator={place.address}: {1 + len(there)} of {place.processes} processes came"
        f" within config.distributed.timeout={seconds:g} seconds; missing: {shown}"
    )


def join(place: Place, hello: dict, seconds: float) -> None:
    """Any other process: says who it is, and waits for what process 0 answers."""
    host, _, port = place.address.rpartition(":")
    deadline, reason = time.monotonic() + seconds, "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)), timeout=left
            ) as connection:
                connection.sendall(encode(hello))
                # Process 0 has its own deadline and says who is missing.
                answer = read(connection, time.monotonic() + seconds + PATIENCE)
        except OSError as error:
            answer, reason = None, error.strerror or str(error)
        if answer == GO:
            return
        for kind, name in KINDS.items():
            if answer and name in answer:
                raise kind(str(answer[name]))
        # Not there yet, or the port still belongs to somebody else.
        time.sleep(RETRY)
    raise Missing(
        f"config.distributed.coordinator={place.address}: process {place.process} of {place.processes} did not reach"
        f" process 0 within config.distributed.timeout={seconds:g} seconds ({reason})"
    )


def wait_for_service(place: Place) -> None:
    """Until JAX listens where process 0 has listened: its client would wait a second before it tries again."""
    host, _, port = place.address.rpartition(":")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
            return
        time.sleep(RETRY / 10)


def encode(message: dict) -> bytes:
    return json.dumps(message).encode() + b"\n"


def read(connection: socket.socket, deadline: float) -> dict | None:
    """The one line that the other side sends; None if it sends something else, or nothing."""
    data = b""
    try:
        while not data.endswith(b"\n") and len(data) < LINE:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            part = connection.recv(LINE)
            if not part:
                return None
            data += part
        message = json.loads(data)
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) else None


def is_gone(connection: socket.socket) -> bool:
    """Whether the other side has closed: it sends nothing more until it is answered."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(timeout=0))
