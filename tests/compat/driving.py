"""A client's driver as a child process: it is told a call a line and answers a line, both in JSON.

Calls are `{"id": 1, "do": "produce", …}`; answers `{"id": 1, "ok": …}`, `{"id": 1, "lacks": "what the client has not"}`
or `{"id": 1, "error": "what went wrong"}`. Between them come events of members of groups: `{"event": "holds", "member":
"a", "partitions": [0, 1]}` (all that it has now), `{"event": "lost", …}` (what was taken from it) and `{"event":
"record", "member": "a", "partition": 0, "offset": 7, "value": "…"}`. Bytes are text, one character a byte (latin-1);
null is null. The first line a driver says is `{"hello": {"client": …, "version": …}}`.
"""

import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Driver", "Heard", "Lacks", "Member", "Refused"]

_ANSWER_S: Final = 180.0
_TAIL: Final = 2000


class Lacks(Exception):
    """The client has no such thing."""


class Refused(AssertionError):
    """The client says that a call failed."""


class Heard(NamedTuple):
    """A record that a member was given."""

    partition: int
    offset: int
    value: bytes


class Driver:
    """A running driver."""

    def __init__(self, command: Sequence[str], address: str, log: Path, environment: Mapping[str, str]) -> None:
        """`address` is the bootstrap server's; what the driver says beside its lines goes to `log`."""
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
                encoding="utf-8", cwd=Path(__file__).resolve().parents[2], start_new_session=True,
            )  # fmt: skip
        self._changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._hello: dict[str, str] = {}
        self._over = False
        self._numbers = itertools.count(1)
        self.members: dict[str, Member] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.until(lambda: bool(self._hello), "it did not start")
        self.client = self._hello["client"]
        self.version = self._hello["version"]

    def _read(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        with output:
            for line in output:
                said = json.loads(line)
                with self._changed:
                    self._hear(said)
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _hear(self, said: dict[str, Any]) -> None:
        if "hello" in said:
            self._hello = said["hello"]
        elif "event" in said:
            self.members[said["member"]].hear(said)
        else:
            self._answers[said["id"]] = said

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = _ANSWER_S) -> None:
        """Wait for what events bring. Raises AssertionError with `what` after the time, or when the driver ended."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if self._over or left <= 0:
                    tail = self._log.read_text(errors="replace")[-_TAIL:]
                    raise AssertionError(f"{what}{' (the driver ended)' if self._over else ''}\n{tail}")
                self._changed.wait(left)

    def ask(self, verb: str, **arguments: object) -> Any:
        """One call; its result. Raises Lacks or Refused."""
        return self.answer(self.begin(verb, **arguments))

    def begin(self, verb: str, **arguments: object) -> int:
        """Say a call; its number, for `answer`."""
        number = next(self._numbers)
        line = json.dumps({"id": number, "do": verb, **arguments}) + "\n"
        if (channel := self._process.stdin) is not None:
            channel.write(line)
            channel.flush()
        return number

    def answer(self, number: int) -> Any:
        """The answer to a call. Raises Lacks or Refused."""
        self.until(lambda: number in self._answers, "it did not answer")
        answer = self._answers.pop(number)
        if "lacks" in answer:
            raise Lacks(answer["lacks"])
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

    def join(self, name: str, group: str, topic: str, **options: object) -> "Member":
        """A member of a group, which reads in the background. Raises Lacks or Refused."""
        member = self.members[name] = Member(self, name)
        self.ask("join", member=name, group=group, topic=topic, **options)
        return member

    def kill(self) -> None:
        """Kill -9, it and what it started: nobody says good-bye to the broker."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """Let it end, by closing its input; killed where it does not."""
        if (channel := self._process.stdin) is not None and not channel.closed:
            channel.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._end()

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        if (channel := self._process.stdin) is not None and not channel.closed:
            channel.close()


class Member:
    """A member of a group in a driver."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver = driver
        self.name = name
        self.holds: frozenset[int] = frozenset()
        """The partitions it has."""
        self.lost: list[int] = []
        """Every partition that was taken from it, in order."""
        self.times = 0
        """How often it was told what it has."""
        self.records: list[Heard] = []

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take an event in."""
        if said["event"] == "holds":
            self.holds = frozenset(said["partitions"])
            self.times += 1
        elif said["event"] == "lost":
            self.lost += said["partitions"]
        else:
            self.records.append(Heard(said["partition"], said["offset"], said["value"].encode("latin-1")))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what its events bring. Raises AssertionError."""
        self.driver.until(condition, f"{what}; it holds {sorted(self.holds)}, has {self.records[-3:]}")

    def until_read(self, *values: bytes) -> None:
        """Wait until it was given records of these values."""
        wanted = set(values)
        self.until(lambda: wanted <= {one.value for one in self.records}, f"not all of {len(wanted)} records came")

    def commit(self) -> None:
        """Commit what it has read."""
        self.driver.ask("commit_member", member=self.name)

    def leave(self) -> None:
        """Say good-bye."""
        self.driver.ask("leave", member=self.name)
