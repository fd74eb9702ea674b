"""Three real nodes behind what could be a load balancer: whichever is asked over HTTP, it is as at the leader."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until
from tests.doors.http.conftest import asking

from duramen.codec.partitioner import partition_of
from duramen.node.processes import NodeProcesses

_WAIT_S = 60.0
_OK = 200
_BUSY = 503


class Balanced:
    """The nodes, and requests to one after the other."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self.nodes = nodes
        self.admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
        self._turns = itertools.cycle(nodes.nodes)

    def create(self, name: str, partitions: int, replicas: int) -> str:
        """The path of the records of a new stream, once every node knows who leads."""
        self.admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(_WAIT_S)
        until(lambda: all(None not in self.leaders(name, number) for number in self.nodes.nodes), _WAIT_S)
        return f"/v1/streams/{name}/records"

    def leaders(self, name: str, number: int) -> list[int | None]:
        status, found = self.ask(number, "GET", f"/v1/streams/{name}")
        return [one["leader"] for one in found["partitions"]] if status == _OK else [None]

    def ask(self, number: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return asking(self.nodes.nodes[number].http)(method, path, body)

    def next(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask whoever's turn it is."""
        return self.ask(next(self._turns), method, path, body)

    def values(self, path: str, partitions: int) -> list[str]:
        """All records, page by page, each page of another node."""
        found: list[str] = []
        for partition in range(partitions):
            offset: Any = "start"
            end = 1
            while offset == "start" or offset < end:
                status, page = self.next("GET", f"{path}?partition={partition}&offset={offset}&limit=7")
                assert status == _OK, page
                found += [record["value"] for record in page["records"]]
                offset, end = page["next"], page["end"]
        return found


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    with NodeProcesses(tmp_path_factory.mktemp("balanced")) as nodes:
        yield Balanced(nodes)
        for log in nodes.logs().values():
            assert "Traceback" not in log


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_node_takes_records_for_every_partition_and_tells_them(balanced: Balanced, replicas: int) -> None:
    name = f"everywhere-{replicas}"
    path = balanced.create(name, 3, replicas)
    assert sorted(balanced.leaders(name, 1), key=str) == [1, 2, 3]
    wishes: list[dict[str, Any]] = []
    places = []
    for number in balanced.nodes.nodes:
        sent = [{"value": f"{number}-{at}", "key": f"k{at}", "headers": [["h", "1"]]} for at in range(20)]
        status, answer = balanced.ask(number, "POST", path, {"records": sent})
        assert status == _OK, answer
        wishes += sent
        places += answer["records"]
    assert [place["partition"] for place in places] == [partition_of(wish["key"].encode(), 3) for wish in wishes]
    offsets = Counter(place["partition"] for place in places)
    for number, partition in itertools.product(balanced.nodes.nodes, range(3)):
        status, page = balanced.ask(number, "GET", f"{path}?partition={partition}&offset=-1000")
        assert (status, page["end"], len(page["records"])) == (_OK, offsets[partition], offsets[partition])
        for record in page["records"]:
            at = places.index({"partition": partition, "offset": record["offset"]})
            assert {**record, **wishes[at]} == record
    assert sorted(balanced.values(path, 3)) == sorted(wish["value"] for wish in wishes)


def test_nothing_is_stored_anywhere_where_one_record_does_not_fit(balanced: Balanced) -> None:
    path = balanced.create("fits", 3, 1)
    wishes = [{"value": "v", "partition": at} for at in range(3)] + [{"value": "v" * 1_048_580, "partition": 0}]
    status, problem = balanced.next("POST", path, {"records": wishes})
    assert (status, problem["type"], "stored" in problem) == (413, "batch-too-large", False)
    assert balanced.values(path, 3) == []


def test_a_read_waits_wherever_it_comes_and_goes_on_where_another_node_stopped(balanced: Balanced) -> None:
    path = balanced.create("waited", 1, 1)
    pages: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda number=number: pages.append(balanced.ask(number, "GET", f"{path}?max_wait_ms=30000")[1])
        )
        for number in balanced.nodes.nodes
    ]
    for thread in threads:
        thread.start()
    assert balanced.next("POST", path, {"records": [{"value": "at last"}]})[0] == _OK
    for thread in threads:
        thread.join()
    assert [[record["value"] for record in page["records"]] for page in pages] == [["at last"]] * 3
    for _ in range(6):  # what was stored by one node another shows at once
        offset = balanced.next("POST", path, {"records": [{"value": "v"}]})[1]["records"][0]["offset"]
        page = balanced.next("GET", f"{path}?offset={offset}")[1]
        assert [record["offset"] for record in page["records"]] == [offset]
    status, problem = balanced.next("GET", f"{path}?offset=99")
    assert (status, problem["type"]) == (400, "offset-out-of-range")


def test_every_node_deletes_records(balanced: Balanced) -> None:
    path = balanced.create("deleted", 3, 1)
    wishes = [{"value": "v", "partition": at % 3} for at in range(30)]
    assert balanced.next("POST", path, {"records": wishes})[0] == _OK
    for before in (2, 4):
        status, answer = balanced.next("POST", f"{path}/delete", {"before": before})
        assert (status, [one["start_offset"] for one in answer["partitions"]]) == (_OK, [before] * 3)
    assert len(balanced.values(path, 3)) == 18


def test_every_node_shows_moves_and_deletes_groups(balanced: Balanced) -> None:
    path = balanced.create("grouped", 1, 1)
    assert balanced.next("POST", path, {"records": [{"value": "v"}] * 10})[0] == _OK
    consumer = Consumer({"bootstrap.servers": balanced.nodes.bootstrap_servers, "group.id": "anywhere"})
    consumer.commit(offsets=[TopicPartition("grouped", 0, 4)], asynchronous=False)
    consumer.close()
    for to, number in enumerate(balanced.nodes.nodes):
        status, answer = balanced.ask(number, "POST", "/v1/groups/anywhere/offsets", {"to": str(to)})
        assert (status, [one["after"] for one in answer["offsets"]]) == (_OK, [to])
        for other in balanced.nodes.nodes:
            status, group = balanced.ask(other, "GET", "/v1/groups/anywhere")
            assert (status, [one["committed_offset"] for one in group["offsets"]]) == (_OK, [to])
    status, problem = balanced.next("POST", "/v1/groups/anywhere/offsets", {"to": "nowhere"})
    assert (status, problem["type"]) == (400, "request-invalid")
    assert balanced.next("DELETE", "/v1/groups/anywhere")[0] == 204
    for number in balanced.nodes.nodes:
        status, problem = balanced.ask(number, "DELETE", "/v1/groups/anywhere")
        assert (status, problem["type"]) == (404, "group-not-found")


@pytest.mark.long
def test_leaders_that_are_killed_lose_and_double_nothing(balanced: Balanced) -> None:
    """What clients of the other nodes are told is true, whoever is killed meanwhile."""
    path = balanced.create("killed", 3, 3)
    until(lambda: len(set(balanced.leaders("killed", 1))) == 3, _WAIT_S)
    fates: dict[str, set[str]] = {"stored": set(), "unknown": set(), "refused": set()}
    stopping = threading.Event()

    def post(number: int) -> None:
        for count in itertools.count():
            if stopping.is_set():
                return
            values = [f"{number}-{count}-{at}" for at in range(6)]
            records = [{"value": value, "partition": at % 3} for at, value in enumerate(values)]
            with suppress(OSError, HTTPException):
                _note(values, *balanced.ask(number, "POST", f"{path}?timeout_ms=20000", {"records": records}), fates)

    threads = [threading.Thread(target=post, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(fates["stored"]) > 100, _WAIT_S)
        balanced.nodes.kill(3)
        until(lambda: 3 not in balanced.leaders("killed", 1), _WAIT_S)
        before = len(fates["stored"])
        until(lambda: len(fates["stored"]) > before + 100, _WAIT_S)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    balanced.nodes.start([3])
    until(lambda: balanced.next("GET", f"{path}?partition=0&offset=end")[0] == _OK, _WAIT_S)
    found = Counter(balanced.values(path, 3))
    assert {value: found[value] for value in fates["stored"]} == dict.fromkeys(fates["stored"], 1)
    assert max(found.values()) == 1
    assert not fates["refused"] & set(found)
    assert set(found) <= fates["stored"] | fates["unknown"]


def _note(values: list[str], status: int, answer: Any, fates: dict[str, set[str]]) -> None:
    """Which of them the answer says are stored, may be, and are not."""
    if status == _OK:
        fates["stored"] |= set(values)
        return
    assert status == _BUSY, answer
    stored = {values[one["record"]] for one in answer.get("stored", [])}
    unknown = {values[at] for at in answer.get("unknown", [])}
    fates["stored"] |= stored
    fates["unknown"] |= unknown
    fates["refused"] |= set(values) - stored - unknown
