"""Records through the HTTP door: stored, read, paged, waited for; and seen by Kafka clients as they see their own."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import psutil
import pytest
from tests.clients import CONFLUENT, Record, metric, until
from tests.doors.http.conftest import Ask, asking

from duramen.base.units import MIB
from duramen.codec.partitioner import partition_of
from duramen.doors.http.types.records import MOST_RECORDS
from duramen.node.process import NodeProcess


@pytest.fixture
def records(ask: Ask, stream_name: str) -> str:
    """The path of the records of a new stream with three partitions."""
    assert ask("POST", "/v1/streams", {"name": stream_name, "partitions": 3})[0] == 201
    return f"/v1/streams/{stream_name}/records"


def test_what_was_stored_is_read(ask: Ask, records: str, stream_name: str) -> None:
    odd = {"base64": "/wA="}
    wishes: list[dict[str, Any]] = [
        {"value": "plain", "partition": 1},
        {"value": None, "key": "k", "partition": 1, "timestamp": 1_700_000_000_123},
        {"value": odd, "key": odd, "partition": 1, "headers": [["a", "1"], ["a", odd], ["b", None]]},
    ]
    status, answer = ask("POST", records, {"records": wishes})
    assert (status, answer) == (200, {"records": [{"partition": 1, "offset": offset} for offset in range(3)]})
    status, page = ask("GET", f"{records}?partition=1")
    assert (status, page["next"], page["end"]) == (200, 3, 3)
    found = page["records"]
    assert abs(found[0].pop("timestamp") - 1000 * time.time()) < 60_000
    assert found[0] == {
        "topic": stream_name, "partition": 1, "offset": 0, "key": None, "value": "plain", "headers": [],
    }  # fmt: skip
    assert (found[1]["timestamp"], found[1]["key"], found[1]["value"]) == (1_700_000_000_123, "k", None)
    assert (found[2]["key"], found[2]["value"], found[2]["headers"]) == (odd, odd, wishes[2]["headers"])
    # What was read can be stored as it is.
    status, answer = ask("POST", records, {"records": found[1:]})
    assert (status, [place["offset"] for place in answer["records"]]) == (200, [3, 4])
    copied = ask("GET", f"{records}?partition=1&offset=3")[1]["records"]
    assert copied == [{**one, "offset": one["offset"] + 2} for one in found[1:]]


def test_keys_choose_partitions_as_kafkas_clients_do_and_the_rest_stays_together(ask: Ask, records: str) -> None:
    keys = [f"key-{number}" for number in range(50)]
    wishes = [{"value": "v", "key": key} for key in keys] + [{"value": "v"}] * 10
    places = ask("POST", records, {"records": wishes})[1]["records"]
    assert [place["partition"] for place in places[:50]] == [partition_of(key.encode(), 3) for key in keys]
    assert len({place["partition"] for place in places[50:]}) == 1
    for partition in range(3):
        offsets = [place["offset"] for place in places if place["partition"] == partition]
        assert offsets == list(range(len(offsets)))


def test_pages(ask: Ask, records: str) -> None:
    wishes = [{"value": f"{number:03}", "partition": 0} for number in range(250)]
    ask("POST", records, {"records": wishes})
    values: list[str] = []
    position = "start"
    while len(values) < 250:
        page = ask("GET", f"{records}?offset={position}")[1]
        assert 0 < len(page["records"]) <= 100
        values += [record["value"] for record in page["records"]]
        assert page["next"] == len(values)
        position = str(page["next"])
    assert values == [wish["value"] for wish in wishes]
    assert ask("GET", f"{records}?offset={position}") == (200, {"records": [], "next": 250, "end": 250})
    for query, first in (("-3", 247), ("247", 247), ("end", 250), ("-1000", 0), ("@-1h", 0), ("latest", 250)):
        page = ask("GET", f"{records}?offset={query}&limit=1")[1]
        assert [record["offset"] for record in page["records"]] == ([first] if first < 250 else [])
    assert len(ask("GET", f"{records}?max_bytes=30")[1]["records"]) == 10
    assert len(ask("GET", f"{records}?max_bytes=1")[1]["records"]) == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_of_kafka_clients_are_read(
    ask: Ask, node: NodeProcess, records: str, stream_name: str, codec: str
) -> None:
    stored = [Record(b"%d" % number, partition=2) for number in range(500)]
    CONFLUENT.produce(node.kafka, stream_name, stored, compression=codec)
    page = ask("GET", f"{records}?partition=2&offset=123&limit=10000")[1]
    assert [record["value"] for record in page["records"]] == [str(number) for number in range(123, 500)]
    assert page["next"] == page["end"] == 500


def test_what_is_not_there_yet_is_waited_for(ask: Ask, records: str) -> None:
    pages: list[Any] = []
    waiting = threading.Thread(target=lambda: pages.append(ask("GET", f"{records}?max_wait_ms=20000")[1]))
    waiting.start()
    ask("POST", records, {"records": [{"value": "at last", "partition": 0}]})
    waiting.join()
    assert [record["value"] for record in pages[0]["records"]] == ["at last"]
    assert ask("GET", f"{records}?offset=end&max_wait_ms=10")[1]["records"] == []


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"records": []}, 400, "length >= 1"),
        ({"records": [{"key": "k"}]}, 400, "missing required field `value`"),
        ({"records": [{"value": "v"}, {"value": 5}]}, 400, "$.records[1].value"),
        ({"records": [{"value": "v", "more": 1}]}, 400, "unknown field `more`"),
        ({"records": [{"value": {"base64": "!"}}]}, 400, "record 0: value: '!' is not base64"),
        ({"records": [{"value": "v"}, {"value": "v", "partition": 3}]}, 404, "record 1: stream"),
        ({"records": [{"value": "v"}, {"value": "v", "timestamp": 9_000_000_000_000}]}, 400, "after the broker"),
        ({"records": [{"value": "v"}, {"value": "v" * 1_048_580}]}, 413, "record 1: it takes"),
    ],
)  # fmt: skip
def test_where_one_record_does_not_fit_none_is_stored(
    ask: Ask, records: str, body: object, status: int, said: str
) -> None:
    found, problem = ask("POST", records, body)
    assert (found, problem["status"]) == (status, status)
    assert said in problem["detail"]
    for partition in range(3):
        assert ask("GET", f"{records}?partition={partition}")[1]["end"] == 0


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("limit=0", 400, "the query parameter limit=0 does not fit: Expected `int` >= 1"),
        ("limit=ten", 400, "the query parameter limit=ten does not fit: Expected `int`"),
        ("limit=1&limit=2", 400, "limit is given twice"),
        ("limits=5", 400, "there is no query parameter limits; did you mean limit?"),
        ("x=5", 400, "there is no query parameter x; those there are: limit, max_bytes"),
        ("offset=yesterday", 400, "'yesterday' is not a position in a log"),
        ("offset=7", 400, "offset 7 is not in 0 to 0"),
        ("partition=3", 404, "has no partition 3"),
        ("max_wait_ms=60000", 400, "max_wait_ms=60000 does not fit"),
    ],
)
def test_what_cannot_be_read_is_said(ask: Ask, records: str, query: str, status: int, said: str) -> None:
    found, problem = ask("GET", f"{records}?{query}")
    assert found == status
    assert said in problem["detail"]


def test_a_stream_that_is_not_there_or_not_for_everybody(ask: Ask) -> None:
    assert ask("GET", "/v1/streams/nope/records")[1]["type"] == "stream-not-found"
    assert ask("POST", "/v1/streams/nope/records", {"records": [{"value": ""}]})[1]["type"] == "stream-not-found"


def test_more_records_than_one_batch_takes(ask: Ask, stream_name: str) -> None:
    ask("POST", "/v1/streams", {"name": stream_name, "config": {"max.message.bytes": 2000}})
    path = f"/v1/streams/{stream_name}/records"
    wishes = [{"value": f"{number:04}" * 30} for number in range(300)]
    places = ask("POST", path, {"records": wishes})[1]["records"]
    assert [place["offset"] for place in places] == list(range(300))
    page = ask("GET", f"{path}?limit=300")[1]
    assert [record["value"] for record in page["records"]] == [wish["value"] for wish in wishes]


def test_what_was_answered_survives_a_kill(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    ask = asking(node.http)
    ask("POST", "/v1/streams", {"name": "s"})
    assert ask("POST", "/v1/streams/s/records", {"records": [{"value": "kept"}]})[0] == 200
    node.kill()
    node.restart()
    assert [one["value"] for one in ask("GET", "/v1/streams/s/records")[1]["records"]] == ["kept"]


def test_most_records_of_a_request(ask: Ask, records: str) -> None:
    wishes = [{"value": "", "partition": 0}] * MOST_RECORDS
    assert ask("POST", records, {"records": wishes})[0] == 200
    assert ask("POST", records, {"records": [*wishes, wishes[0]]})[0] == 400
    page = ask("GET", f"{records}?limit={MOST_RECORDS}")[1]
    assert (len(page["records"]), page["end"]) == (MOST_RECORDS, MOST_RECORDS)


def test_the_largest_record_that_a_stream_takes(ask: Ask, records: str) -> None:
    value = "\N{SNOWMAN}" * 340_000
    assert ask("POST", records, {"records": [{"value": value, "partition": 0}]})[0] == 200
    assert ask("GET", records)[1]["records"][0]["value"] == value
    found, problem = ask("POST", records, raw=b" " * 2_300_000)
    assert (found, problem["type"]) == (413, "body-too-large")


def test_who_goes_away_does_not_go_on_waiting(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    ask = asking(node.http)
    ask("POST", "/v1/streams", {"name": "s"})

    def waiting() -> float:
        return metric(node, "duramen_fetches_waiting")

    host, port = node.http.split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(5)]
    for connection in connections:
        asked = f"GET /v1/streams/s/records?max_wait_ms=30000 HTTP/1.1\r\nHost: {node.http}\r\n\r\n"
        connection.sendall(asked.encode())
    until(lambda: waiting() == 5)
    for connection in connections:
        connection.close()
    until(lambda: waiting() == 0)
    assert ask("GET", "/v1/streams/s/records")[0] == 200


def test_who_waits_is_told_that_the_node_stops(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    ask = asking(node.http)
    ask("POST", "/v1/streams", {"name": "s"})
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(ask("GET", "/v1/streams/s/records?max_wait_ms=30000")), daemon=True
    )
    waiting.start()
    until(lambda: metric(node, "duramen_fetches_waiting") == 1)
    assert node.stop() == 0
    waiting.join()
    assert [(status, problem["type"]) for status, problem in answers] == [(503, "node-stopping")]
    assert "Traceback" not in node.log_path.read_text()


def test_a_head_has_no_body(node: NodeProcess, records: str) -> None:
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("HEAD", records)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()


@pytest.mark.long
def test_bodies_together_take_bounded_memory(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"memory.limit.bytes": "128MiB"}).start()
    asking(node.http)("POST", "/v1/streams", {"name": "s", "config": {"max.message.bytes": "8MiB"}})
    process = psutil.Process(node.pid)
    idle_bytes = process.memory_info().rss
    head = (
        f"POST /v1/streams/s/records HTTP/1.1\r\nHost: {node.http}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {8 * MIB}\r\n\r\n"
    )
    host, port = node.http.split(":")
    refused = 0
    connections = [socket.create_connection((host, int(port)), timeout=60) for _ in range(20)]
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(head.encode() + b" " * (4 * MIB))
    assert process.memory_info().rss - idle_bytes < 64 * MIB
    for connection in connections:
        with contextlib.suppress(OSError):
            refused += connection.recv(100).startswith(b"HTTP/1.1 503")
        connection.close()
    assert refused > 0
    assert asking(node.http)("GET", "/v1/node")[0] == 200
