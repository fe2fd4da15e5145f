"""The lock of a directory at an address, where no file can be held: an object that says who has it, written again every
few seconds. It is written and removed only as it was last seen, so of two processes one has it. A holder that is
gone from this machine, or has said nothing for SILENCE, has lost it.
"""

import contextlib
import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator

from bert_jax.errors import Missing, Unfinished
from bert_jax.runs import status, workdir
from bert_jax.storage import remote

LOCK = ".lock"
PERIOD = 10.0  # seconds between two signs of life
SILENCE = 60.0  # seconds of a lock that says nothing, after which it is taken
FRESH = 1.0  # seconds in which a sign of life counts as one of now: an object may be written once a second
KINDS = {"lease": str, "pid": int, "born": int, "host": str, "boot": str, "space": int}


class Lease:
    """Of this process at a place. Another thread renews it, whatever the others wait for."""

    def __init__(self, place: remote.Place):
        self.place, self.lease = place, uuid.uuid4().hex
        self.lock = threading.Lock()  # of the below
        self.version = ""  # of the object, as we have written it
        self.renewed = -FRESH  # when, by time.monotonic
        self.lost = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.take()
        ended = threading.Event()
        beats = threading.Thread(target=self.beat, args=(ended,), daemon=True)
        beats.start()
        try:
            yield
        finally:
            ended.set()
            beats.join()
            with contextlib.suppress(Exception):
                self.release()

    def take(self) -> None:
        """Waits for a process that has it and may be about to end. Raises Missing where it goes on to say so."""
        seen, since, start = "", 0.0, time.monotonic()
        with remote.reached(self.place.address):
            while not (version := self.place.replace(LOCK, self.claim(), "")):
                found, there = self.holder()
                if found and found["lease"] == self.lease:  # we were not told that it was written
                    version = there
                    break
                now = time.monotonic()
                if there != seen:
                    if not seen and found:
                        print(f"waits: {self.taken(found)}", file=sys.stderr, flush=True)
                    elif now - start > SILENCE and found:
                        raise Missing(self.taken(found))
                    seen, since = there, now
                # What is no lock is nobody's.
                if there and (not found or status.is_gone(found) or now - since > SILENCE):
                    self.place.remove(LOCK, there)
                else:
                    time.sleep(1)
        self.version, self.renewed, self.lost = version, time.monotonic(), False

    def taken(self, found: dict) -> str:
        who = f"process {found['pid']} of {found['host']}"
        return f"--workdir {self.place.address}: another process is training in it ({who})"

    def claim(self) -> bytes:
        return json.dumps({"lease": self.lease, **workdir.process(), "time": time.time()}).encode()

    def holder(self) -> tuple[dict | None, str]:
        """Who has the lock, None where that cannot be known; and its version, empty where there is none."""
        try:
            text, version = self.place.look(LOCK)
        except FileNotFoundError:
            return None, ""
        with contextlib.suppress(TypeError, ValueError):
            found = json.loads(text)
            if all(type(dict(found).get(key)) is kind for key, kind in KINDS.items()):
                return found, version
        return None, version

    def beat(self, ended: threading.Event) -> None:
        """In a thread. What cannot be said now is at the next time."""
        while not ended.wait(PERIOD):
            with contextlib.suppress(Exception):
                self.confirm(0.0)

    def confirm(self, age: float = FRESH) -> None:
        """Says that this process has the lock still, if it has not in the last seconds. Raises Unfinished where another
        one has it."""
        with self.lock:
            if not self.lost and time.monotonic() - self.renewed > age:
                self.renew()
            if self.lost:
                raise Unfinished(f"{self.place.address}: another process trains in it")

    def renew(self) -> None:
        start = time.monotonic()
        version = self.place.replace(LOCK, self.claim(), self.version)
        if not version:
            # Another one's; or it is ours, and we were not told that it was written.
            found, version = self.holder()
            self.lost = not found or found["lease"] != self.lease
        self.version, self.renewed = version, start

    def release(self) -> None:
        """From here on it is no longer ours."""
        with self.lock:
            lost, self.lost = self.lost, True
            if not lost:
                self.place.remove(LOCK, self.version)
