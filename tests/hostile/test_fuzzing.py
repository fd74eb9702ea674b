"""Requests of every API and version, valid and damaged in every way, at a node that others use at the same time.

HOSTILE_SEED=N sends the case of one seed alone; HOSTILE_FROM=N begins there.
"""

import asyncio
import itertools
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from tests.hostile.attack import attack, drain, send_case
from tests.hostile.making import Case, Known, Maker, every_version
from tests.hostile.process import peak_bytes, resident_bytes
from tests.hostile.tables import SCHEMAS
from tests.raw import connect, stream_id

from duramen.base.units import MIB
from duramen.client.cluster import BrokerCluster
from duramen.codec.kafka.header import encode_request
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.node.process import NodeProcess

_SECONDS: Final = 5.0
_LONG_SECONDS: Final = 600.0
_GROWTH_BYTES: Final = 64 * MIB
_SWOLLEN_GROWTH_BYTES: Final = 128 * MIB
_WAIT_S: Final = 60.0
_BESIDE: Final = "beside"
_TIMES: Final = 50_000
_LARGE_ANSWERS: Final[Mapping[ApiKey, dict[str, Any]]] = {
    ApiKey.METADATA: {"topics": [{"name": "first", "topic_id": uuid.UUID(int=0)}] * _TIMES},
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": "first", "configuration_keys": None}] * _TIMES,
        "include_synonyms": True, "include_documentation": True,
    },
    ApiKey.DESCRIBE_GROUPS: {"groups": ["group"] * _TIMES},
    ApiKey.OFFSET_FETCH: {"groups": [{"group_id": "group", "topics": None}] * _TIMES},
}  # fmt: skip
"""Requests whose answers would be many times their size."""


class _Beside(threading.Thread):
    """A client like any other: writes and reads all the time, and sees everything that it wrote, in order."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.stopping = threading.Event()
        self.acknowledged = 0
        self.read = 0
        self.slowest_s = 0.0
        self.problem = ""
        self._address = address

    def run(self) -> None:
        common: dict[str, str | int | bool] = {"bootstrap.servers": self._address, "client.id": _BESIDE}
        producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
        consumer = Consumer({**common, "group.id": _BESIDE, "enable.auto.commit": False})
        consumer.assign([TopicPartition(_BESIDE, 0, OFFSET_BEGINNING)])
        while not self.stopping.is_set() and not self.problem:
            began = time.monotonic()
            for at in range(20):
                producer.produce(_BESIDE, b"%d" % (self.acknowledged + at), partition=0, on_delivery=self._told)
            if producer.flush(_WAIT_S):
                self.problem = "records were not acknowledged"
            self._read_on(consumer)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.stopping.wait(0.02)
        consumer.close()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None or message.offset() != self.acknowledged:
            self.problem = f"record {self.acknowledged}: {error}, at {message.offset()}"
        self.acknowledged += 1

    def _read_on(self, consumer: Consumer) -> None:
        while self.read < self.acknowledged and not self.problem:
            messages = consumer.consume(self.acknowledged - self.read, timeout=_WAIT_S)
            if not messages:
                self.problem = f"record {self.read} does not come"
            for message in messages:
                if message.error() is not None or message.value() != b"%d" % self.read:
                    self.problem = f"record {self.read}: {message.error()} {message.value()!r}"
                self.read += 1


@pytest.fixture
def attacked(new_node: Callable[..., NodeProcess]) -> NodeProcess:
    """A node of the test's own."""
    return new_node({"auto.create.topics.enable": False}).start()


@pytest.fixture
def known(attacked: NodeProcess) -> Known:
    """What there is to name."""
    return _make(attacked)


def _make(node: NodeProcess) -> Known:
    names = ("first", "second", "compacted")
    with BrokerCluster(node.kafka) as cluster:
        topics = [
            {
                "name": name, "num_partitions": 1 if name == _BESIDE else 3, "replication_factor": 1, "assignments": [],
                "configs": [{"name": "cleanup.policy", "value": "compact"}] if name == "compacted" else [],
            } for name in (*names, _BESIDE)
        ]  # fmt: skip
        cluster.ask(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout_ms": 30_000, "validate_only": False})
        # A quota for every client is none for the one beside, which has its own.
        entity = [{"entity_type": "client-id", "entity_name": _BESIDE}]
        ops = [{"key": f"{what}_byte_rate", "value": 1e12, "remove": False} for what in ("producer", "consumer")]
        cluster.ask(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": entity, "ops": ops}], "validate_only": False})
    connection = connect(node)
    ids = [stream_id(connection, name) for name in names]
    connection.close()
    return Known(names, ids, ("group", "other-group"))


@pytest.fixture
def beside(attacked: NodeProcess, known: Known) -> Iterator[_Beside]:
    """The client that goes on beside it all."""
    assert known.topics
    thread = _Beside(attacked.kafka)
    thread.start()
    yield thread
    thread.stopping.set()
    thread.join()


def _seeds(seconds: float) -> Iterator[int]:
    until = time.monotonic() + seconds
    first = int(os.environ.get("HOSTILE_FROM", "0"))
    for seed in itertools.count(first):
        if time.monotonic() > until:
            return
        yield seed


def _run(node: NodeProcess, known: Known, beside: _Beside, seeds: Iterator[int]) -> None:
    for api, version in every_version():
        case = Maker(random.Random(1), known).case(api, version)
        asyncio.run(send_case(node.kafka, Case(api, version, case.frames[:1], whole=False)))
    before = resident_bytes(node.pid)
    most, cases = before, 0

    def watched() -> Iterator[int]:
        nonlocal most, cases
        for seed in seeds:
            if seed % 32 == 0:
                most = max(most, resident_bytes(node.pid))
                assert most - before < _GROWTH_BYTES, f"at seed {seed} the node holds {(most - before) >> 20} MiB more"
                assert not beside.problem, f"at seed {seed}, beside: {beside.problem}"
            cases += 1
            yield seed

    running: set[int] = set()
    asyncio.run(attack(node.kafka, known, watched(), node.log_path, running))
    beside.stopping.set()
    beside.join()
    assert not beside.problem
    assert beside.read == beside.acknowledged > 0
    grown = (most - before) >> 20
    print(f"\n{cases} cases, {beside.read} records beside, slowest turn {beside.slowest_s:.2f} s, {grown} MiB more")
    assert node.stop() == 0
    assert "Traceback" not in node.log_path.read_text(errors="replace")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_damaged_requests_harm_nobody(attacked: NodeProcess, known: Known, beside: _Beside) -> None:
    single = os.environ.get("HOSTILE_SEED")
    _run(attacked, known, beside, iter([int(single)]) if single else _seeds(_SECONDS))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ten_minutes_of_damaged_requests(attacked: NodeProcess, known: Known, beside: _Beside) -> None:
    _run(attacked, known, beside, _seeds(_LONG_SECONDS))


@pytest.mark.long
def test_one_name_a_hundred_thousand_times(attacked: NodeProcess, known: Known, beside: _Beside) -> None:
    """Requests of a megabyte that name the same thing again and again, of every API."""
    before = resident_bytes(attacked.pid)
    for key, message in _LARGE_ANSWERS.items():
        frame = encode_request(key, APIS[key].high, 1, "fuzz", SCHEMAS[key].encode(APIS[key].high, message))
        assert asyncio.run(drain(attacked.kafka, frame)) < 100_000
    for api in APIS.values():
        for version in {api.low, api.high}:
            swollen = Maker(random.Random(5), known).swollen(api, version)
            if swollen is not None:
                asyncio.run(drain(attacked.kafka, swollen))
                grown = peak_bytes(attacked.pid) - before
                assert grown < _SWOLLEN_GROWTH_BYTES, f"{api.key.name} version {version}: {grown >> 20} MiB more"
    beside.stopping.set()
    beside.join()
    assert not beside.problem
    assert attacked.stop() == 0
    assert "Traceback" not in attacked.log_path.read_text()
