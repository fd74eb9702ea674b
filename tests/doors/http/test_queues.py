"""Queues over HTTP: JSON and NDJSON, errors each as what it is, and polls that wait."""

import json
import threading
from http.client import HTTPConnection
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewPartitions
from tests.doors.http.conftest import Ask

import duramen
from duramen.codec.batch import BatchInput, encode
from duramen.codec.partitioner import partition_of
from duramen.codec.queue_entries import KEY_HEADER, entry_fields
from duramen.codec.shown_batches import BATCHES_TYPE
from duramen.node.process import NodeProcess


@pytest.fixture
def path(ask: Ask, stream_name: str) -> str:
    assert ask("POST", "/v1/spaces", {"name": stream_name, "shards": 4})[0] == 201
    return f"/v1/spaces/{stream_name}"


def put(ask: Ask, path: str, *entries: tuple[str, str]) -> list[str]:
    status, answer = ask(
        "POST", f"{path}/entries", {"entries": [{"queue": one, "value": value} for one, value in entries]}
    )
    assert status == 200
    positions: list[str] = answer["positions"]
    return positions


def values(ask: Ask, path: str, query: str) -> list[str]:
    status, answer = ask("GET", f"{path}/entries?{query}")
    assert status == 200, answer
    return [entry["value"] for entry in answer["entries"]]


def test_an_inbox_is_written_read_edited_and_taken_back(ask: Ask, path: str) -> None:
    first, second, _ = put(ask, path, ("ann", "one"), ("ann", "two"), ("bob", "three"))
    entry = {"queue": "ann", "value": {"base64": "/w=="}, "key": "k", "headers": [["h", None]], "timestamp": 17}
    assert ask("POST", f"{path}/entries", {"entries": [entry]})[0] == 200
    page = ask("GET", f"{path}/entries?queue=ann")[1]
    last = page["entries"][-1]
    assert {name: last[name] for name in ("value", "key", "headers", "timestamp")} == {
        name: entry[name] for name in ("value", "key", "headers", "timestamp")
    }
    assert values(ask, path, f"queue=ann&from={page['next']}") == []
    status, edited = ask(
        "POST", f"{path}/edit", {"queue": "ann", "entries": [{"position": first, "value": "1", "version": 0}]}
    )
    assert (status, len(edited["versions"])) == (200, 1)
    assert ask("POST", f"{path}/delete", {"queue": "ann", "entries": [{"position": second}]})[0] == 204
    assert values(ask, path, "queue=ann&limit=1") == ["1"]
    taken = {"queue": "ann", "from": last["position"], "entries": [{"value": "true"}], "by": "Eve", "reason": "lost"}
    status, answer = ask("POST", f"{path}/replace", taken)
    assert (status, len(answer["positions"])) == (200, 1)
    assert values(ask, path, "queue=ann") == ["1", "true"]
    status, problem = ask("GET", f"{path}/entries?queue=ann&from={page['next']}")
    assert (status, problem["type"]) == (410, "history-rewritten")
    assert problem["rewritten"] == {"start": last["position"], "by": "Eve", "reason": "lost"}
    assert values(ask, path, f"queue=ann&from={problem['rewritten']['start']}") == ["true"]


def test_a_queue_is_not_replaced_from_a_position_of_another_one(ask: Ask, stream_name: str) -> None:
    path = f"/v1/spaces/{stream_name}"
    assert ask("POST", "/v1/spaces", {"name": stream_name, "shards": 1})[0] == 201
    first, second, mine = put(ask, path, ("bob", "1"), ("bob", "2"), ("ann", "mine"))
    for queue in ("ann", "nobody"):
        for at in (first, second):
            wish = {"queue": queue, "from": at, "entries": [{"value": "z"}]}
            status, problem = ask("POST", f"{path}/replace", wish)
            assert (status, problem.get("type")) == (400, "queue-position-unknown")
    assert values(ask, path, "queue=ann") == ["mine"]
    assert ask("GET", f"{path}/queues")[1]["queues"] in (["ann", "bob"], ["bob", "ann"])
    assert ask("POST", f"{path}/replace", {"queue": "ann", "from": mine, "entries": []})[0] == 200


def test_lines_go_in_and_come_out(node: NodeProcess, ask: Ask, path: str) -> None:
    connection = HTTPConnection(node.http, timeout=60)
    lines = "".join(json.dumps({"queue": "ann", "value": f"{number}"}) + "\n" for number in range(3))
    connection.request("POST", f"{path}/entries", lines, {"Content-Type": "application/x-ndjson"})
    answer = connection.getresponse()
    assert (answer.status, len(json.loads(answer.read())["positions"])) == (200, 3)
    connection.request("GET", f"{path}/entries?queue=ann&limit=2", headers={"Accept": "application/x-ndjson"})
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    found = [json.loads(line)["value"] for line in answer.read().splitlines()]
    assert found == ["0", "1"]
    assert values(ask, path, f"queue=ann&from={answer.headers['Duramen-Next']}") == ["2"]
    connection.close()


def test_a_bad_line_is_named_and_nothing_is_stored(node: NodeProcess, ask: Ask, path: str) -> None:
    good = b'{"queue": "ann", "value": "1"}\n\n'
    for line, why in (
        (b"nope", "line 3 does not fit: "),
        (b'{"queue": "ann"}', "line 3 does not fit: Object missing required field `value`;"),
        (b'{"queue": 7, "value": "1"}', "line 3 does not fit: Expected `str`, got `int` - at `$.queue`;"),
        (b"\xff", "line 3 does not fit: "),
    ):
        connection = HTTPConnection(node.http, timeout=60)
        content = good + line + b"\n" + good + line
        connection.request("POST", f"{path}/entries", content, {"Content-Type": "application/x-ndjson"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert (answer["type"], why in answer["detail"]) == ("request-invalid", True), answer["detail"]
        assert answer["detail"].endswith("; nothing of the body was stored")
    assert values(ask, path, "queue=ann") == []


def test_record_batches_go_in_and_come_out(node: NodeProcess, ask: Ask, path: str) -> None:
    connection = HTTPConnection(node.http, timeout=60)

    def send(*records: BatchInput) -> tuple[int, Any]:
        connection.request("POST", f"{path}/entries", encode(records), {"Content-Type": BATCHES_TYPE})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    queues = [f"user-{number}" for number in range(20)]
    new = [BatchInput(5, name.encode(), b"%d" % turn) for turn in range(2) for name in queues]
    status, answer = send(*new, BatchInput(6, b"ann", b"\xff", ((KEY_HEADER, b"k"), (b"h", None))))
    assert (status, len(answer["positions"])) == (200, len(new) + 1)
    for name in queues:
        assert values(ask, path, f"queue={name}") == ["0", "1"]
    at = answer["positions"][-1]
    wish = {"queue": "ann", "entries": [{"position": at, "value": "new"}]}
    version = ask("POST", f"{path}/edit", wish)[1]["versions"][0]
    connection.request("GET", f"{path}/entries?queue=ann", headers={"Accept": BATCHES_TYPE})
    found = connection.getresponse()
    following, fields = found.headers["Duramen-Next"], entry_fields(found.read())
    assert list(zip(*fields, strict=True)) == [(at, version, 6, b"k", b"new", ((b"h", None),))]
    connection.request("GET", f"{path}/entries?queue=ann&from={following}", headers={"Accept": BATCHES_TYPE})
    assert connection.getresponse().read() == b""

    sound = BatchInput(5, b"ann", b"v")
    assert send(sound, BatchInput(5, b"", b"v"))[1]["type"] == "queue-name-invalid"
    assert send(sound, BatchInput(5, b"ann", b"v", ((b"duramen-queue-op", b"delete"),)))[1]["type"] == "batch-invalid"
    assert send(BatchInput(5, b"ann", bytes(2_000_000)))[1]["type"] == "queue-batch-too-large"
    assert values(ask, path, "queue=ann") == ["new"]
    connection.close()


def test_whoever_waits_gets_what_comes(ask: Ask, path: str) -> None:
    found: list[Any] = []
    wish = {"queues": [{"queue": "ann", "from": "end"}, {"queue": "bob"}], "wait_ms": 30_000}
    waiting = threading.Thread(target=lambda: found.append(ask("POST", f"{path}/retrieve", wish)))
    waiting.start()
    while waiting.is_alive():
        put(ask, path, ("ann", "new"))
        waiting.join(0.05)
    status, answer = found[0]
    assert status == 200
    assert {one["queue"]: bool(one["entries"]) for one in answer["queues"]} == {"ann": True, "bob": False}


def test_each_wrong_request_has_an_error_of_its_own(ask: Ask, path: str) -> None:
    (at,) = put(ask, path, ("ann", "one"))
    epoch = at.partition(".")[0]
    assert ask("POST", f"{path}/delete", {"queue": "ann", "entries": [{"position": at}]})[0] == 204
    (there,) = put(ask, path, ("ann", "two"))

    def refused(method: str, path: str, body: object = None) -> tuple[int, str]:
        status, problem = ask(method, path, body)
        return status, problem["type"]

    def edit(position: str, **more: object) -> tuple[int, str]:
        entries = [{"position": position, "value": "x", **more}]
        return refused("POST", f"{path}/edit", {"queue": "ann", "entries": entries})

    assert refused("GET", "/v1/spaces/none/entries?queue=a") == (404, "queue-space-not-found")
    assert refused("GET", f"{path}/entries?queue={'x' * 256}") == (400, "queue-name-invalid")
    assert refused("GET", f"{path}/entries?queue=") == (400, "queue-name-invalid")
    assert refused("GET", f"{path}/entries?queue=ann&from=7") == (400, "request-invalid")
    assert refused("GET", f"{path}/entries?queue=ann&from={epoch}.99") == (400, "queue-position-future")
    assert refused("GET", f"{path}/entries?queue=ann&from=99.1") == (400, "queue-position-unknown")
    assert edit(at) == (410, "queue-entry-gone")
    assert edit(there, version=0) == (409, "queue-version-stale")
    large = {"entries": [{"queue": "ann", "value": "x" * 600_000}] * 2}
    assert refused("POST", f"{path}/entries", large)[0] == 413


def test_kafka_clients_see_the_space_as_a_topic(node: NodeProcess, ask: Ask, path: str, stream_name: str) -> None:
    errors: list[Any] = []
    right = confluent_kafka.Producer({"bootstrap.servers": node.kafka, "partitioner": "murmur2_random"})
    for number in range(20):
        right.produce(stream_name, key=f"user-{number}", value="hi", on_delivery=lambda error, _: errors.append(error))
    assert right.flush(30) == 0
    assert errors == [None] * 20
    assert values(ask, path, "queue=user-7") == ["hi"]
    wrong = confluent_kafka.Producer({"bootstrap.servers": node.kafka, "partitioner": "consistent"})
    for number in range(20):
        wrong.produce(stream_name, key=f"user-{number}", value="x", on_delivery=lambda error, _: errors.append(error))
    wrong.flush(30)
    assert any(error is not None for error in errors)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    with pytest.raises(confluent_kafka.KafkaException, match="number of its shards stays 4"):
        admin.create_partitions([NewPartitions(stream_name, 8)])[stream_name].result(30)


def test_spaces_are_listed_shown_and_deleted(ask: Ask, path: str, stream_name: str) -> None:
    assert ask("POST", "/v1/spaces", {"name": stream_name, "shards": 4})[1]["created"] is False
    differs = ask("POST", "/v1/spaces", {"name": stream_name})[1]
    assert differs["type"] == "stream-differs"
    assert "it has 4 shards, whose number is fixed, not" in differs["detail"]
    assert ask("GET", f"/v1/spaces?prefix={stream_name}")[1]["spaces"][0]["shards"] == 4
    assert ask("GET", path)[1]["config"] == {}
    assert ask("DELETE", path)[0] == 204
    assert ask("GET", path)[1]["type"] == "queue-space-not-found"


def test_work_is_leased_acknowledged_given_back_and_extended(ask: Ask, path: str) -> None:
    put(ask, path, ("ann", "one"), ("ann", "two"), ("bob", "three"))

    def lease(**wish: object) -> list[dict[str, Any]]:
        status, answer = ask("POST", f"{path}/lease", {"queues": ["ann", "bob"], **wish})
        assert status == 200, answer
        entries: list[dict[str, Any]] = answer["entries"]
        return entries

    def settle(what: str, entries: list[dict[str, Any]], **more: object) -> list[tuple[int, str]]:
        places = [{name: one[name] for name in ("queue", "position", "lease")} for one in entries]
        status, answer = ask("POST", f"{path}/{what}", {"entries": places, **more})
        assert status == 200, answer
        return [(one["entry"], one["problem"]["type"]) for one in answer["refused"]]

    leased = lease(limit=3)
    assert sorted((one["queue"], one["value"], one["deliveries"]) for one in leased) == [
        ("ann", "one", 1), ("ann", "two", 1), ("bob", "three", 1),
    ]  # fmt: skip
    assert lease() == []
    assert settle("extend", leased, lease_ms=60_000) == []
    assert settle("ack", leased[:1], request="a request") == []
    assert settle("ack", leased[:1], request="a request") == []
    assert settle("ack", leased[:1]) == [(0, "queue-entry-gone")]
    assert settle("nack", leased[1:]) == []
    assert settle("nack", leased[1:]) == [(0, "queue-lease-expired"), (1, "queue-lease-expired")]
    assert settle("ack", lease(limit=2)) == []
    stats = ask("GET", f"{path}/stats?queue=ann")[1]
    assert (stats["entries"], stats["leased"], stats["first"]) == (0, 0, None)


def test_a_request_with_an_id_is_made_once_and_the_id_is_not_for_another(ask: Ask, path: str) -> None:
    wish: dict[str, Any] = {"entries": [{"queue": "ann", "value": "one"}], "request": "put 1"}
    first, second = ask("POST", f"{path}/entries", wish), ask("POST", f"{path}/entries", wish)
    assert first == second
    assert values(ask, path, "queue=ann") == ["one"]
    others: list[list[dict[str, Any]]] = [
        [{"queue": "ann", "value": "two"}],
        [{"queue": "ann", "value": "one", "key": "k"}],
        [{"queue": "ann", "value": "one", "headers": [["h", "v"]]}],
        [{"queue": "ann", "value": "one", "delay_ms": 1}],
        [{"queue": "ann", "value": "one", "ttl_ms": 60_000}],
        wish["entries"] * 2,
    ]
    for entries in others:
        status, problem = ask("POST", f"{path}/entries", {"entries": entries, "request": "put 1"})
        assert (status, problem["type"]) == (409, "queue-request-reused")
    assert values(ask, path, "queue=ann&delayed=true") == ["one"]
    assert ask("POST", f"{path}/entries", wish) == first


def test_delayed_entries_are_left_out_unless_they_are_asked_for(ask: Ask, path: str) -> None:
    late = {"queue": "ann", "value": "late", "delay_ms": 3_600_000, "ttl_ms": 7_200_000}
    assert ask("POST", f"{path}/entries", {"entries": [late]})[0] == 200
    assert values(ask, path, "queue=ann") == []
    [entry] = ask("GET", f"{path}/entries?queue=ann&delayed=true")[1]["entries"]
    assert entry["expires_ms"] - entry["visible_ms"] == 3_600_000
    assert ask("GET", f"{path}/stats?queue=ann")[1]["delayed"] == 1


def test_queues_are_listed_page_by_page_emptied_and_removed(ask: Ask, path: str) -> None:
    names = [f"user-{number}" for number in range(30)]
    put(ask, path, *((name, "x") for name in [*names, "other"]))
    found = list[str]()
    after: str | None = ""
    while after is not None:
        page = ask("GET", f"{path}/queues?prefix=user&limit=7&after={after}")[1]
        found += page["queues"]
        after = page["next"]
    assert sorted(found) == sorted(names)
    assert ask("GET", f"{path}/queues?after=nonsense")[1]["type"] == "request-invalid"
    assert ask("POST", f"{path}/purge", {"queue": "other"})[0] == 204
    assert values(ask, path, "queue=other") == []
    assert ask("POST", f"{path}/drop", {"queue": "other"})[0] == 204
    assert ask("GET", f"{path}/queues?prefix=other")[1]["queues"] == []


@pytest.mark.parametrize("escaped", ["%ff%fe", "a%80", "%C3", "%ED%A0%80"])
def test_a_name_that_is_not_utf_8_is_refused_wherever_it_comes(ask: Ask, path: str, escaped: str) -> None:
    for asked in (f"entries?queue={escaped}", f"stats?queue={escaped}", f"queues?prefix={escaped}"):
        status, problem = ask("GET", f"{path}/{asked}")
        assert (status, problem["type"]) == (400, "request-invalid")
        assert "it is not UTF-8" in problem["detail"]
    assert ask("GET", f"{path}/entries?queue=%C3%A4%20b")[0] == 200


def test_an_answer_has_so_many_bytes_of_all_queues(ask: Ask, path: str) -> None:
    names = [f"queue-{number}" for number in range(12)]
    for name in names:
        put(ask, path, *[(name, "x" * 150_000)] * 2)
    reads, found = dict.fromkeys(names, "start"), dict.fromkeys(names, 0)
    while min(found.values()) < 2:
        wish = {"queues": [{"queue": name, "from": start} for name, start in reads.items()]}
        pages = ask("POST", f"{path}/retrieve", wish)[1]["queues"]
        assert 0 < sum(len(page["entries"]) for page in pages) < 8
        for page in pages:
            found[page["queue"]] += len(page["entries"])
            reads[page["queue"]] = page["next"]
    assert set(found.values()) == {2}
    leased = list[dict[str, Any]]()
    while some := ask("POST", f"{path}/lease", {"queues": names, "limit": 100})[1]["entries"]:
        assert len(some) < 8
        leased += some
    assert (len(leased), {one["deliveries"] for one in leased}) == (24, {1})


def test_a_full_lease_is_extended_returned_and_acknowledged_in_one_request(
    node: NodeProcess, ask: Ask, stream_name: str
) -> None:
    config = {"max.message.bytes": 4096}
    assert ask("POST", "/v1/spaces", {"name": stream_name, "shards": 2, "config": config})[0] == 201
    with duramen.connect(node.http) as client:
        queues, name = client.queues(stream_name), "a queue with " + "a long name" * 20
        for _ in range(20):
            queues.enqueue(name, ["x"] * 10)
        leased = queues.lease([name], 1_000)
        queues.extend(leased, 60)
        queues.nack(leased)
        leased = queues.lease([name], 1_000)
        assert len(leased) == 200
        for _ in range(2):
            queues.ack(leased, request_id="the ack of the test")
        assert queues.stats(name).entries == 0


def test_an_error_has_the_positions_of_the_entries_of_other_shards(node: NodeProcess, stream_name: str) -> None:
    with duramen.connect(node.http) as client:
        client.spaces.create(stream_name, shards=2, config={"queue.shard.max.entries": 1})
        queues = client.queues(stream_name)
        other = next(f"q{at}" for at in range(99) if partition_of(b"q%d" % at, 2) != partition_of(b"ann", 2))
        queues.enqueue("ann", ["x"])
        with pytest.raises(duramen.errors.QueueSpaceFull, match="1 of 2 entries are stored, 0 may be") as refused:
            queues.enqueue_many([("ann", "y"), (other, "z")])
        assert refused.value.stored == {1: queues.retrieve(other).entries[0].position}
        assert [(one.entries, one.bytes) for one in queues.usage().shards] == [(1, 65), (1, 65)]
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("GET", "/metrics")
    shown = connection.getresponse().read().decode()
    connection.close()
    for shard in range(2):
        assert f'duramen_queue_shard_entries{{stream="{stream_name}",partition="{shard}"}} 1\n' in shown
        assert f'duramen_queue_shard_bytes{{stream="{stream_name}",partition="{shard}"}} 65\n' in shown


def test_no_answer_has_the_key_of_the_hash_of_names(node: NodeProcess, ask: Ask, path: str, stream_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    resource = ConfigResource(ConfigResource.Type.TOPIC, stream_name)
    paths = path, f"{path}/usage", f"/v1/streams/{stream_name}", "/v1/spaces", "/v1/streams"
    told = [json.dumps(ask("GET", where)[1]) for where in paths]
    told += admin.describe_configs([resource])[resource].result(30)
    assert stream_name in "".join(told)
    assert not [one for one in told if "secret" in one]


def test_many_requests_wait_and_all_get_what_comes(node: NodeProcess, ask: Ask, path: str) -> None:
    waiting = [HTTPConnection(node.http, timeout=60) for _ in range(150)]
    for connection in waiting:
        connection.request("GET", f"{path}/entries?queue=ann&wait_ms=30000")
    assert ask("GET", f"{path}/queues")[0] == 200  # those that wait are no obstacle
    put(ask, path, ("ann", "hello"))
    for connection in waiting:
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["entries"][0]["value"]) == (200, "hello")
        connection.close()
