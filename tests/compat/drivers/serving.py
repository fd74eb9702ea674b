"""What the drivers in Python share: reading calls, answering them, saying events (see `tests.compat.driving`)."""

import json
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

__all__ = ["Lacks", "Talk", "member_thread", "raw", "say", "serve", "text"]

_saying: Final = threading.Lock()


class Lacks(Exception):
    """The client has no such thing; the text says what."""


def say(**said: object) -> None:
    """One line to the test."""
    line = json.dumps(said) + "\n"
    with _saying:
        sys.stdout.write(line)
        sys.stdout.flush()


def text(value: bytes | None) -> str | None:
    """Bytes as text, one character a byte."""
    return None if value is None else bytes(value).decode("latin-1")


def raw(value: str | None) -> bytes | None:
    """The bytes of such a text."""
    return None if value is None else value.encode("latin-1")


class Talk:
    """A member's side of the talk: events that it says, calls that it is told and answers between two polls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls: queue.SimpleQueue[tuple[str, queue.SimpleQueue[Exception | None]]] = queue.SimpleQueue()
        self._holds: frozenset[int] | None = None

    def holds(self, partitions: Sequence[int] | frozenset[int] | set[int]) -> None:
        """Say all that it has now, where that is not what was said last."""
        if self._holds != frozenset(partitions):
            self._holds = frozenset(partitions)
            say(event="holds", member=self.name, partitions=sorted(partitions))

    def lost(self, partitions: Sequence[int]) -> None:
        """Say what was taken from it."""
        if partitions:
            say(event="lost", member=self.name, partitions=sorted(partitions))

    def record(self, partition: int, offset: int, value: bytes | None) -> None:
        """Say a record."""
        say(event="record", member=self.name, partition=partition, offset=offset, value=text(value) or "")

    def call(self, what: str) -> None:
        """From outside: let the member do something, and wait. Raises what it raised."""
        done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._calls.put((what, done))
        error = done.get(timeout=60)
        if error is not None:
            raise error

    def next_call(self) -> tuple[str, Callable[[Exception | None], None]] | None:
        """What it is to do, and whom to tell that it is done; None where there is nothing."""
        try:
            what, done = self._calls.get_nowait()
        except queue.Empty:
            return None
        return what, done.put


def member_thread(read: Callable[[Talk], None], name: str) -> Talk:
    """Run a member in a thread of its own; `read` ends when it is told to leave."""
    talk = Talk(name)

    threading.Thread(target=read, args=(talk,), daemon=True).start()
    return talk


def serve(client: str, version: str, driver: object) -> None:
    """Answer calls by the driver's methods `do_NAME` until the input ends."""
    say(hello={"client": client, "version": version})
    with ThreadPoolExecutor(1) as calls:
        for line in sys.stdin:
            call = json.loads(line)
            number, verb = call.pop("id"), call.pop("do")
            method: Any = getattr(driver, f"do_{verb}", None)
            if method is None:
                say(id=number, lacks=f"it has no call for this: {verb}")
                continue
            done = calls.submit(method, **call)
            error = done.exception()
            if error is None:
                say(id=number, ok=done.result())
            elif isinstance(error, Lacks):
                say(id=number, lacks=str(error))
            else:
                traceback.print_exception(error)
                say(id=number, error=f"{type(error).__name__}: {error}")
