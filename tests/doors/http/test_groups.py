"""Groups over HTTP, as a real consumer makes them."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients import CONFLUENT, Record, metrics, until
from tests.doors.http.conftest import Ask
from tests.doors.kafka.sharing import ACCEPT, Given, RawShareConsumer

from duramen.node.process import NodeProcess

_RECORDS = 10


@pytest.fixture
def stream(ask: Ask, stream_name: str) -> str:
    """A stream of two partitions with ten records in the first."""
    assert ask("POST", "/v1/streams", {"name": stream_name, "partitions": 2})[0] == 201
    records = [{"value": str(at), "partition": 0, "timestamp": 1_700_000_000_000 + at} for at in range(_RECORDS)]
    assert ask("POST", f"/v1/streams/{stream_name}/records", {"records": records})[0] == 200
    return stream_name


@pytest.fixture
def consumer(node: NodeProcess, stream: str) -> Iterator[Consumer]:
    """A member of the group that is called as the stream; it has read and committed four records."""
    member = Consumer(
        {
            "bootstrap.servers": node.kafka, "group.id": stream, "client.id": "reader",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    member.subscribe([stream])
    for _ in range(4):
        assert until(lambda: member.poll(0.1)) is not None
    member.commit(offsets=[TopicPartition(stream, 0, 4)], asynchronous=False)
    yield member
    member.close()


def test_a_group_with_a_member(ask: Ask, stream: str, consumer: Consumer) -> None:
    status, group = ask("GET", f"/v1/groups/{quote(stream)}")
    assert (status, group["id"], group["state"]) == (200, stream, "Stable")
    assert (group["protocol_type"], group["protocol"], group["generation"] >= 1) == ("consumer", "range", True)
    (member,) = group["members"]
    assert (member["client_id"], member["host"], member["instance_id"]) == ("reader", "127.0.0.1", None)
    assert member["member_id"].startswith("reader-")
    assert member["partitions"] == [{"stream": stream, "partition": 0}, {"stream": stream, "partition": 1}]
    (offset,) = group["offsets"]
    assert offset.pop("lag_seconds") > 1_000_000
    assert offset == {
        "stream": stream, "partition": 0, "committed_offset": 4, "start_offset": 0, "end_offset": 10, "lag_records": 6,
    }  # fmt: skip
    for method, path, body in (("DELETE", "", None), ("POST", "/offsets", {"to": "start"})):
        status, problem = ask(method, f"/v1/groups/{stream}{path}", body)
        assert (status, problem["type"]) == (409, "group-not-empty")
    consumer.commit(offsets=[TopicPartition(stream, 0, _RECORDS)], asynchronous=False)
    (offset,) = ask("GET", f"/v1/groups/{stream}")[1]["offsets"]
    assert (offset["lag_records"], offset["lag_seconds"]) == (0, 0)


def test_a_group_that_nobody_is_in_is_moved_and_deleted(
    node: NodeProcess, ask: Ask, stream: str, consumer: Consumer
) -> None:
    consumer.close()
    path = f"/v1/groups/{stream}"
    until(lambda: ask("GET", path)[1]["state"] == "Empty")
    moves = [
        {"stream": stream, "partition": 0, "before": 4, "after": 7},
        {"stream": stream, "partition": 1, "before": None, "after": 0},
    ]
    asked = {"to": "@1700000000007"}
    assert ask("POST", f"{path}/offsets", asked | {"dry_run": True}) == (200, {"offsets": moves})
    assert ask("GET", path)[1]["offsets"][0]["committed_offset"] == 4
    assert ask("POST", f"{path}/offsets", asked) == (200, {"offsets": moves})
    again = Consumer({"bootstrap.servers": node.kafka, "group.id": stream, "enable.auto.commit": False})
    again.subscribe([stream])
    message = until(lambda: again.poll(0.1))
    assert message is not None
    assert (message.offset(), message.value()) == (7, b"7")
    again.close()
    until(lambda: ask("GET", path)[1]["state"] == "Empty")
    assert ask("DELETE", path) == (204, None)
    assert ask("GET", path)[0] == 404


def test_groups_are_listed_page_by_page(ask: Ask, stream: str) -> None:
    prefix = f"{stream}-pages/"  # ids may be anything
    for name in ("b", "a", "c/d e"):
        body = {"to": "3", "streams": [stream], "partition": 0}
        assert ask("POST", f"/v1/groups/{quote(prefix + name, safe='')}/offsets", body)[0] == 200
    ids, after = [], prefix
    for _ in range(3):
        status, page = ask("GET", f"/v1/groups?limit=1&after={quote(after)}")
        assert status == 200
        (group,) = page["groups"]
        assert (group["state"], group["members"], group["lag_records"]) == ("Empty", 0, 7)
        ids.append(group["id"])
        after = page["next"] or group["id"]
    assert ids == [prefix + "a", prefix + "b", prefix + "c/d e"]
    assert ask("GET", f"/v1/groups/{quote(ids[2])}")[1]["offsets"][0]["committed_offset"] == 3


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/v1/groups/nope", None, 404, "there is no group nope"),
        ("DELETE", "/v1/groups/nope", None, 404, "there is no group nope"),
        ("POST", "/v1/groups/nope/offsets", {"to": "start"}, 404, "there is no group nope"),
        (
            "POST",
            "/v1/groups/nope/offsets",
            {"to": "soon"},
            400,
            "`to` does not fit: 'soon' is not a position in a log",
        ),
        ("POST", "/v1/groups/nope/offsets", {"to": "end", "streams": ["none"]}, 404, "there is no stream none"),
        ("POST", "/v1/groups/nope/offsets", {"to": "end", "streams": []}, 400, "the body does not fit"),
        ("POST", "/v1/groups/nope/offsets", {"to": "end", "partition": -1}, 400, "the body does not fit"),
        ("GET", "/v1/groups?limit=0", None, 400, "limit"),
    ],
)
def test_problems(ask: Ask, method: str, path: str, body: object, status: int, said: str) -> None:
    found, problem = ask(method, path, body)
    assert (found, problem["status"]) == (status, status)
    assert said in problem["detail"]


def test_a_group_of_the_consumer_protocol_is_shown_like_every_other(node: NodeProcess, ask: Ask, stream: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka, "group.id": stream, "group.protocol": "consumer", "client.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.subscribe([stream])
    until(lambda: consumer.poll(0.1) is not None)
    status, group = ask("GET", f"/v1/groups/{quote(stream)}")
    assert status == 200
    assert (group["kind"], group["protocol_type"], group["protocol"]) == ("consumer", "consumer", "uniform")
    (member,) = group["members"]
    assert (member["client_id"], member["host"]) == ("reader", "127.0.0.1")
    assert {one["stream"] for one in member["partitions"]} == {stream}
    consumer.close()
    _, listed = ask("GET", "/v1/groups")
    assert {"kind": "consumer", "state": "Empty"}.items() <= next(
        one for one in listed["groups"] if one["id"] == stream
    ).items()


def test_the_lag_and_a_reset_of_a_share_group(node: NodeProcess, ask: Ask, stream: str) -> None:
    name = stream[-60:]
    assert ask("POST", "/v1/tenants", {"names": [f"t{name}"]})[0] == 200
    assert ask("POST", f"/v1/tenants/t{name}/namespaces", {"names": ["n"]})[0] == 200
    assert ask("POST", f"/v1/tenants/t{name}/namespaces/n/topics", {"names": ["light"]})[0] == 200
    space = {"name": f"{stream}-space", "shards": 1, "config": {"queue.topic.prefix": f"q{name}."}}
    assert ask("POST", "/v1/spaces", space)[0] == 201
    light, queue = f"t{name}.n.light", f"q{name}.ann"
    for topic in (light, queue):
        CONFLUENT.produce(node.kafka, topic, [Record(b"1"), Record(b"2"), Record(b"3")])
    for topic in (stream, light, queue):
        member = RawShareConsumer(node, stream, topic, topic)
        member.configure(share_auto_offset_reset="earliest")
        member.join()
        got = member.fetch()
        member.say(Given(got[0].offset, got[0].offset, [ACCEPT]), Given(got[2].offset, got[2].offset, [ACCEPT]))
        member.leave()
    group = ask("GET", f"/v1/groups/{quote(stream)}")[1]
    assert (group["kind"], group["state"]) == ("share", "Empty")
    offsets = {(one["stream"], one["partition"]): one for one in group["offsets"]}
    assert {key: (one["committed_offset"], one["lag_records"]) for key, one in offsets.items()} == {
        (light, 0): (None, 1), (queue, 0): (None, 1), (stream, 0): (None, 8), (stream, 1): (None, None),
    }  # fmt: skip
    one = offsets[stream, 0]
    assert (one["start_offset"], one["end_offset"], one["lag_seconds"] > 1_000_000) == (1, 10, True)
    assert [offsets[stream, 1][field] for field in ("start_offset", "end_offset", "lag_seconds")] == [None, 0, None]
    assert all(offsets[topic, 0]["end_offset"] > offsets[topic, 0]["start_offset"] for topic in (light, queue))
    listed = ask("GET", f"/v1/groups?after={quote(stream[:-1])}&limit=10")[1]["groups"]
    assert {one["id"]: one["lag_records"] for one in listed}[stream] == 10
    for name in ("records", "seconds"):
        series = metrics(node, f"duramen_group_lag_{name}", group=stream)
        assert {(labels["stream"], int(labels["partition"])): value for labels, value in series} == {
            key: pytest.approx(one[f"lag_{name}"], abs=60)
            for key, one in offsets.items() if one["lag_records"] is not None
        }  # fmt: skip
    starts = {(one["stream"], one["partition"]): one["start_offset"] for one in group["offsets"]}
    lights = {(topic, 0): offsets[topic, 0]["end_offset"] for topic in (light, queue)}
    path = f"/v1/groups/{quote(stream)}/offsets"
    for asked, afters, lags in (
        ({"to": "end"}, {**lights, (stream, 0): 10, (stream, 1): 0}, [0, 0, 0, 0]),
        ({"to": "-2", "streams": [stream], "partition": 0}, {(stream, 0): 8}, [0, 0, 2, 0]),
        ({"to": "start"}, None, [3, 3, 10, 0]),
    ):
        planned = ask("POST", path, {**asked, "dry_run": True})
        assert planned[0] == 200
        assert ask("POST", path, asked) == planned
        moves = {(one["stream"], one["partition"]): (one["before"], one["after"]) for one in planned[1]["offsets"]}
        assert all(starts[place] == before for place, (before, _) in moves.items())
        assert afters is None or {place: after for place, (_, after) in moves.items()} == afters
        starts |= {place: after for place, (_, after) in moves.items()}
        group = ask("GET", f"/v1/groups/{quote(stream)}")[1]
        found = {(one["stream"], one["partition"]): one["lag_records"] for one in group["offsets"]}
        assert [found[place] for place in [(light, 0), (queue, 0), (stream, 0), (stream, 1)]] == lags
    late = RawShareConsumer(node, stream, stream, "late")
    late.join()
    status, problem = ask("POST", path, {"to": "start"})
    assert (status, problem["type"]) == (409, "group-not-empty")
    late.leave()
