"""kcat: each call is a run of it; producers and members of groups are runs that go on."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from itertools import groupby
from typing import IO, Any

from tests.compat.drivers.serving import Lacks, Talk, raw, serve, text

PROGRAM = json.loads(os.environ["KCAT"])
_WAIT_S = 60
_KEY, _END = b"\x1f", b"\x1e"
_DELIVERED = re.compile(rb"delivered to partition \d+ \(offset (-?\d+)\)")
_CHANGED = re.compile(rb"rebalanced.*?(assign|revo).*: (.*)")


class Producing:
    """A run of kcat that produces lines. It reads its input in blocks: nothing is sent for sure before its end."""

    def __init__(self, command: list[str], records: list[dict[str, Any]]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self._count = len(records)
        if self._process.stdin is not None:
            self._process.stdin.write(b"".join(map(_line, records)))
            self._process.stdin.close()

    def end(self) -> list[int]:
        """Wait until all are delivered; their offsets."""
        said = b"" if self._process.stderr is None else self._process.stderr.read()
        found = [int(one[1]) for one in _DELIVERED.finditer(said)]
        if self._process.wait(_WAIT_S) or len(found) != self._count:
            raise RuntimeError(
                f"{self._count - len(found)} records were not delivered: {said.decode(errors='replace')}"
            )
        return found


class Driver:
    def __init__(self, address: str) -> None:
        self._kcat = [*PROGRAM, "-b", address]
        self._producers: dict[str, list[Producing]] = {}
        self._transactions: dict[str, list[tuple[str, list[dict[str, Any]]]]] = {}
        self._members: dict[str, tuple[Talk, subprocess.Popen[bytes]]] = {}

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        command = [*self._kcat, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=_WAIT_S, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        return done.stdout

    # -- producing ----------------------------------------------------------------------------------

    def _produce(self, topic: str, partition: int, *settings: str) -> list[str]:
        return [
            *self._kcat, "-P", "-t", topic, "-p", str(partition), "-D", "\\x1e", "-vv", "-X",
            "topic.produce.offset.report=true", "-X", "message.max.bytes=1048588",
            *(part for one in settings for part in ("-X", one)),
        ]  # fmt: skip

    def do_produce(
        self, topic: str, records: list[dict[str, Any]], compression: str = "none", acks: int = -1
    ) -> list[int]:
        for one in records:
            _check(one)
        offsets = []
        for like, group in groupby(records, _alike):
            command = self._produce(topic, like[0], f"acks={acks}", "linger.ms=20", f"compression.codec={compression}")
            command += [
                part for name, value in like[1] for part in ("-H", name if value is None else f"{name}={value}")
            ]
            alike = list(group)
            if like[2]:
                offsets += Producing(command if like[3] else [*command, "-K", "\\x1f"], alike).end()
            else:
                offsets += [self._produce_file(command, one) for one in alike]
        return offsets

    def _produce_file(self, command: list[str], one: dict[str, Any]) -> int:
        """What its lines cannot say: large values, those with the delimiters in them."""
        key = [] if one["key"] is None else ["-k", os.fsdecode(raw(one["key"]) or b"")]
        with tempfile.NamedTemporaryFile() as file:
            file.write(raw(one["value"]) or b"")
            file.flush()
            done = subprocess.run([*command, *key, file.name], capture_output=True, timeout=_WAIT_S, check=False)
        found = _DELIVERED.search(done.stderr)
        if done.returncode or found is None:
            raise RuntimeError(done.stderr.decode(errors="replace"))
        return int(found[1])

    def do_open(self, producer: str, transactional: str = "", **_: object) -> None:
        self._producers[producer] = []
        self._transactions.pop(producer, None)
        if transactional:
            self._transactions[producer] = []

    def do_send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> None:
        command = [*self._produce(topic, 0, "reconnect.backoff.max.ms=200", "enable.idempotence=true"), "-E"]
        if producer in self._transactions:
            self._transactions[producer].append((topic, records))
        else:
            self._producers[producer].append(Producing(command, records))

    def do_flush(self, producer: str) -> list[int]:
        if producer in self._transactions:
            raise Lacks("it reads its input in blocks: what is in a transaction may be sent at its end only")
        running = self._producers[producer]
        self._producers[producer] = []
        return [offset for one in running for offset in one.end()]

    def do_close(self, producer: str) -> None:
        for one in self._producers.pop(producer):
            one.end()

    def do_begin(self, producer: str) -> None:
        pass

    def do_commit(self, producer: str) -> None:
        topics = {topic for topic, _ in self._transactions[producer]}
        if len(topics) > 1:
            raise Lacks("a run of it writes to one topic")
        for topic, records in self._transactions[producer]:
            Producing(self._produce(topic, 0, f"transactional.id={producer}"), records).end()
        self._transactions[producer].clear()

    def do_send_offsets(self, **_: object) -> None:
        raise Lacks("it cannot put offsets into a transaction")

    # -- reading ------------------------------------------------------------------------------------

    def do_read(
        self, topic: str, partition: int, offset: int, count: int, committed: bool = False
    ) -> list[dict[str, Any]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        said = self._run(
            "-C", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count), "-q", "-X",
            f"isolation.level={isolation}", "-f", "%o %T %K %S %h\\n%k%s\\n",
        )  # fmt: skip
        found = []
        while said:
            head, _, said = said.partition(b"\n")
            at, timestamp, key, value, headers = head.split(b" ", 4)
            keys, size = max(0, int(key)), max(0, int(value))
            found.append(
                {
                    "offset": int(at), "timestamp": int(timestamp), "key": None if int(key) < 0 else text(said[:keys]),
                    "value": None if int(value) < 0 else text(said[keys : keys + size]), "headers": _headers(headers),
                }
            )  # fmt: skip
            said = said[keys + size + 1 :]
        return found

    def do_offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        return int(self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").split()[-1])

    # -- groups -------------------------------------------------------------------------------------

    def do_join(
        self, member: str, group: str, topic: str, protocol: str = "classic", strategy: str = "range",
        instance: str = "", session_ms: int = 10_000,
    ) -> None:  # fmt: skip
        if protocol != "classic":
            raise Lacks("its librdkafka 2.0.2 speaks the classic protocol only")
        # It cannot be told to commit: it does so by itself, and when it gives partitions up.
        settings = [
            "auto.offset.reset=earliest", "auto.commit.interval.ms=100", f"session.timeout.ms={session_ms}",
            f"partition.assignment.strategy={strategy}", "heartbeat.interval.ms=300",
            "topic.metadata.refresh.interval.ms=500", "reconnect.backoff.max.ms=200",
        ]  # fmt: skip
        if instance:
            settings.append(f"group.instance.id={instance}")
        options = [part for one in settings for part in ("-X", one)]
        process = subprocess.Popen(
            [*self._kcat, "-G", group, "-E", "-u", *options, "-f", "%p %o %S\\n%s\\n", topic], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        talk = Talk(member)
        self._members[member] = (talk, process)
        threading.Thread(target=_records, args=(process.stdout, talk), daemon=True).start()
        changes = _cooperative_changes if strategy.startswith("cooperative") else _eager_changes
        threading.Thread(target=changes, args=(process.stderr, talk), daemon=True).start()

    def do_commit_member(self, member: str) -> None:
        pass

    def do_leave(self, member: str) -> None:
        _, process = self._members.pop(member)
        process.send_signal(signal.SIGINT)
        process.wait(_WAIT_S)

    # -- administration -----------------------------------------------------------------------------

    def do_partitions(self, topic: str) -> int:
        return self._run("-L", "-t", topic).count(b"\n    partition ")


def _check(one: dict[str, Any]) -> None:
    if one["timestamp"] is not None:
        raise Lacks("it cannot set a record's time")
    if not one["value"]:
        raise Lacks("it skips empty input")
    if "\0" in "".join((one["key"] or "", *(value or "" for _, value in one["headers"]))):
        raise Lacks("keys and headers on its command line cannot have a zero byte")


def _alike(one: dict[str, Any]) -> tuple[int, tuple[tuple[str, str | None], ...], bool, bool]:
    """What one run can send: a partition, headers, keys or none, and values that are lines to it."""
    given = one["value"]
    simple = bool(given) and len(given) < 10_000 and not any(byte < " " for byte in given + (one["key"] or "x"))
    headers = tuple((name, value) for name, value in one["headers"])
    return one["partition"], headers, simple and one["key"] != "", one["key"] is None


def _line(one: dict[str, Any]) -> bytes:
    key = raw(one["key"])
    return (b"" if key is None else key + _KEY) + (raw(one["value"]) or b"") + _END


def _headers(said: bytes) -> list[list[str | None]]:
    pairs = [one.partition(b"=") for one in said.split(b",") if one]
    return [[name.decode(), None if value == b"NULL" else text(value)] for name, _, value in pairs]


def _records(output: IO[bytes], talk: Talk) -> None:
    while line := output.readline():
        partition, offset, size = map(int, line.split())
        value = output.read(size + 1)[:-1]
        talk.record(partition, offset, value)


def _changes(output: IO[bytes]) -> Any:
    for line in output:
        sys.stderr.buffer.write(line)
        if found := _CHANGED.search(line):
            yield found[1] == b"assign", {int(one) for one in re.findall(rb"\[(\d+)\]", found[2])}


def _eager_changes(output: IO[bytes], talk: Talk) -> None:
    for assigned, partitions in _changes(output):
        if assigned:
            talk.holds(partitions)
        else:
            talk.lost(sorted(partitions))


def _cooperative_changes(output: IO[bytes], talk: Talk) -> None:
    holds: set[int] = set()
    for assigned, partitions in _changes(output):
        if assigned:
            holds |= partitions
        else:
            holds -= partitions
            talk.lost(sorted(partitions))
        talk.holds(holds)


def _version() -> str:
    said = subprocess.run([*PROGRAM, "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"Version ([\d.]+).*librdkafka ([\d.]+)", said.stdout + said.stderr)
    return f"{found[1]} (librdkafka {found[2]})" if found else "unknown"


if __name__ == "__main__":
    serve("kcat", _version(), Driver(sys.argv[1]))
