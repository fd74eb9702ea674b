"""A real broker for users' tests, in a process of its own.

Slow imports are made on first use, so that the broker is ready sooner.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from duramen.base.errors import DependencyMissing, RequestInvalid, ServerUnreachable, StreamExists
from duramen.testing.faults import BrokerFaults
from duramen.testing.process import ChildProcess

if TYPE_CHECKING:
    from duramen.client.api.records import Record

__all__ = ["Broker"]

_CLIENT_ID: Final = "duramen-testing"
_TIMEOUT_S: Final = 30.0
_SETTINGS: Final[Mapping[str, object]] = {
    "kafka.listen": "127.0.0.1:0",
    "http.listen": "127.0.0.1:0",
    "nats.listen": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    # Records of tests often have times of years ago: none is let go before the test has read it.
    "log.retention.check.interval.ms": 86_400_000,
    "wal.file.bytes": "2MiB",
}


class Broker:
    """A broker that runs during its `with` block; its data is deleted afterwards. Made by `duramen.testing.broker`.

    >>> broker.create_stream("boarding")
    'boarding'
    >>> broker.records("boarding")
    []
    """

    def __init__(self, settings: Mapping[str, object] | None = None, *, nats: bool = False) -> None:
        """It starts with the `with` block."""
        self._given = dict(settings or {})
        self._settings: dict[str, object] = {**_SETTINGS, "nats.server": "embedded" if nats else "off"}
        self._child: ChildProcess | None = None
        self._log_path = Path()
        self._addresses: dict[str, str] = {}
        self._stack = ExitStack()
        self.faults = BrokerFaults(self._ask)
        """Effects of the broker on its Kafka clients that a test requests."""

    # -- running ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if sys.platform == "win32":
            raise DependencyMissing("a broker needs Linux or macOS: on Windows run your tests in WSL (wsl --install)")
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duramen-")))
            self._log_path = directory / "broker.log"
            self._child = ChildProcess(self._log_path)
            stack.callback(self._child.kill)
            self._settings["data.dir"] = str(directory / "data")
            self._start(self._child)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._child = None
        self._stack.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)

    def _start(self, child: ChildProcess) -> None:
        self._addresses = child.start(self._settings, self._given)
        # The same ports after a restart: clients go on where they were.
        for door, address in self._addresses.items():
            self._given.pop(f"{door}.listen", None)
            self._settings[f"{door}.listen"] = address

    def _entered(self) -> ChildProcess:
        if self._child is None:
            raise ServerUnreachable("the broker does not run: use it within `with duramen.testing.broker() as broker:`")
        return self._child

    def _ask(self, order: Mapping[str, object]) -> dict[str, Any]:
        return self._entered().ask(order)

    @property
    def running(self) -> bool:
        """Whether it runs: within the `with` block, unless it has crashed.

        >>> broker.running
        True
        """
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int | None:
        """The id of its process, for signals; None if it does not run.

        >>> import os, signal
        >>> os.kill(broker.pid, signal.SIGSTOP)
        >>> os.kill(broker.pid, signal.SIGCONT)
        """
        return self._child.pid if self._child is not None and self._child.running else None

    def crash(self) -> None:
        """Kill -9, to test how your code reacts; acknowledged records are there again after `restart`.

        >>> broker.crash()
        >>> broker.restart()
        """
        self._entered().kill()
        self.faults.any_set = False

    def restart(self) -> None:
        """Restart it with the same data and addresses; a running broker is stopped cleanly first.

        It takes as long as a start, and blocks: in a coroutine, use `await asyncio.to_thread(broker.restart)`. Raises
        ServerUnreachable with its log if it does not start.

        >>> broker.restart()
        """
        child = self._entered()
        child.stop()
        self.faults.any_set = False
        self._start(child)

    # -- position -----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The address for Kafka clients: their `bootstrap.servers`.

        >>> broker.bootstrap_servers
        '127.0.0.1:...'
        """
        self._entered()
        return self._addresses["kafka"]

    @property
    def http_url(self) -> str:
        """The address of the HTTP API, which `duramen.connect` takes too. It opens with its first connection.

        >>> broker.http_url
        'http://127.0.0.1:...'
        >>> with duramen.connect(broker.http_url) as client:
        ...     client.node().version == duramen.__version__
        True
        """
        self._entered()
        return f"http://{self._addresses['http']}"

    @property
    def nats_url(self) -> str:
        """The address for NATS clients. Raises RequestInvalid if the broker was created without NATS.

        >>> broker.nats_url
        Traceback (most recent call last):
        duramen.base.errors.RequestInvalid: this broker has no NATS server: make it with nats=True
        """
        self._entered()
        if "nats" not in self._addresses:
            raise RequestInvalid("this broker has no NATS server: make it with nats=True")
        return f"nats://{self._addresses['nats']}"

    @property
    def log(self) -> str:
        """The broker's log so far, including its error responses to Kafka clients.

        >>> "recovered 0 logs" in broker.log
        True
        """
        self._entered()
        return self._log_path.read_text(errors="replace")

    # -- streams ------------------------------------------------------------------------------------

    def create_stream(
        self,
        name: str,
        partitions: int = 1,
        *,
        config: Mapping[str, str | int | float | bool] | None = None,
        subjects: Sequence[str] = (),
    ) -> str:
        """Create a stream, which is a Kafka topic, with configs by Kafka's names; returns its name.

        `subjects` are NATS subjects that it stores. Raises StreamExists, NameInvalid, ConfigInvalid, PartitionsInvalid,
        SubjectInvalid.

        >>> broker.create_stream("parcels", 3, config={"retention.ms": 1000})
        'parcels'
        """
        self._entered()
        if subjects:
            from duramen.client.api.client import connect

            with connect(self.http_url) as client:
                made = client.streams.create(name, partitions=partitions, subjects=subjects, config=config)
                if not made.created:
                    raise StreamExists(f"the stream {name} exists already")
            return name
        from duramen.base.settings import config_text
        from duramen.client.admin import StreamAdmin
        from duramen.client.cluster import BrokerCluster

        with BrokerCluster(self.bootstrap_servers, client_id=_CLIENT_ID, timeout_s=_TIMEOUT_S) as cluster:
            configs = {key: config_text(value) for key, value in (config or {}).items()}
            StreamAdmin(cluster).create_stream(name, partitions, configs)
        return name

    def records(self, stream: str) -> "list[Record]":
        """Every record of the stream that a consumer would get now, by partition and offset. Raises StreamNotFound.

        >>> broker.create_stream("postcards")
        'postcards'
        >>> with duramen.connect(broker.http_url) as client:
        ...     client.produce("postcards", ["a", "b"])
        [Place(partition=0, offset=0), Place(partition=0, offset=1)]
        >>> [(record.offset, record.text) for record in broker.records("postcards")]
        [(0, 'a'), (1, 'b')]
        """
        return sorted(self._read(stream), key=lambda record: (record.partition, record.offset))

    def _read(self, stream: str) -> "Iterator[Record]":
        from duramen.client.api.reader import RecordReader, wanted

        what = wanted(stream, "start", "end", None, None)
        reader = RecordReader(self.bootstrap_servers, what, timeout_s=_TIMEOUT_S, client_id=_CLIENT_ID)
        with contextlib.closing(reader):
            while not reader.done:
                for batch in reader.next():
                    yield from batch
