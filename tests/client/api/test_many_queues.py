"""More queues than one request may name, from both clients; times that are too long."""

import threading

import pytest
from tests.client.api.conftest import Face

import duramen
from duramen.base.errors import RequestInvalid
from duramen.client.api.queues.many_queues import shares, split_queues, turns
from duramen.testing import Broker

NAMES = [f"user-{number:05}" for number in range(2_500)]


@pytest.fixture
def space(face: Face, stream_name: str) -> str:
    face.make_space(stream_name, 2)
    return stream_name


def test_thousands_of_queues_are_leased_in_one_call(face: Face, space: str) -> None:
    face.queues(space, "enqueue_many", [(name, "x") for name in NAMES])
    assert len(face.queues(space, "lease", NAMES, 1)) == 1
    leased = face.queues(space, "lease", [*NAMES, *NAMES], 2_000)
    rest = face.queues(space, "lease", NAMES, 2_000)
    assert (len(leased), len(rest)) == (2_000, 499)
    assert len({one.queue for one in [*leased, *rest]}) == 2_499
    assert face.queues(space, "lease", NAMES, 10) == []


def test_an_entry_wakes_who_waits_for_thousands_of_queues(face: Face, space: str, duramen_broker: Broker) -> None:
    long = ["ü" * 120 + name for name in NAMES]  # many bytes, too
    found = face.queues(space, "retrieve_many", dict.fromkeys(long, "end"))
    assert list(found) == long
    reads = {queue: page.next for queue, page in found.items()}

    def put() -> None:
        with duramen.connect(duramen_broker.http_url) as client:
            client.queues(space).enqueue(long[-1], ["new"])

    timer = threading.Timer(0.2, put)
    timer.start()
    found = face.queues(space, "retrieve_many", reads, wait_s=60)
    timer.join()
    assert [queue for queue, page in found.items() if page.entries] == [long[-1]]
    assert list(found) == long
    [leased] = face.queues(space, "lease", long, 10, wait_s=60)
    assert leased.text == "new"


def test_thousands_of_queues_are_read_in_one_call_up_to_the_limit(face: Face, space: str) -> None:
    names = [f"{number}" for number in range(3_000)]
    face.queues(space, "enqueue_many", [(name, name) for name in names])
    starts = dict.fromkeys(names, "start")
    found = face.queues(space, "retrieve_many", starts, limit=10_000)
    assert [[entry.text for entry in found[name].entries] for name in names] == [[name] for name in names]
    found = face.queues(space, "retrieve_many", starts, limit=1_500)
    read = [name for name in names if found[name].entries]
    assert (list(found), len(read)) == (names, 1_500)
    more = face.queues(space, "retrieve_many", {name: found[name].next for name in names}, limit=10_000)
    assert sorted(read + [name for name in names if more[name].entries]) == sorted(names)


def test_a_time_that_is_too_long_is_named(face: Face, space: str) -> None:
    with pytest.raises(
        RequestInvalid, match=r"^lease_s is a number of seconds from 0\.001 to 43200, not 1000000000.0$"
    ):
        face.queues(space, "lease", ["ann"], lease_s=1e9)
    with pytest.raises(RequestInvalid, match=r"^lease_s is .*, not 0$"):
        face.queues(space, "extend", [], 0)
    with pytest.raises(RequestInvalid, match=r"^delay_s is a number of seconds from 0 to 31622400"):
        face.queues(space, "enqueue", "ann", ["x"], delay_s=1e8)
    with pytest.raises(RequestInvalid, match=r"^ttl_s is"):
        face.queues(space, "enqueue", "ann", ["x"], ttl_s=1e8)
    with pytest.raises(RequestInvalid, match=r"^delay_s is"):
        face.queues(space, "nack", [], delay_s=1e8)


def test_entries_have_delays_and_times_to_live_of_their_own(face: Face, space: str) -> None:
    new = [duramen.NewEntry("now", delay_s=0), duramen.NewEntry("brief", ttl_s=60), "with the call"]
    face.queues(space, "enqueue", "ann", new, delay_s=3600)
    face.queues(space, "enqueue", "bob", [duramen.NewEntry("later", delay_s=60), b"now"])
    face.queues(space, "replace", "carl", "end", [duramen.NewEntry("later", delay_s=60)])
    shown = {name: face.queues(space, "retrieve", name).entries for name in ("ann", "bob", "carl")}
    assert {name: [entry.text for entry in some] for name, some in shown.items()} == {
        "ann": ["now"], "bob": ["now"], "carl": [],
    }  # fmt: skip
    every = face.queues(space, "retrieve", "ann", delayed=True).entries
    assert [entry.text for entry in every] == ["now", "brief", "with the call"]
    with pytest.raises(RequestInvalid, match=r"^ttl_s is a number of seconds from 0 to 31622400, not -1$"):
        face.queues(space, "enqueue", "ann", [duramen.NewEntry("x", ttl_s=-1)])
    for wrong in (7, None, [None], [("a", "b")]):
        with pytest.raises(RequestInvalid):
            face.queues(space, "enqueue", "ann", wrong, request_id="r")


def test_parts_have_each_queue_once_and_share_what_is_wanted() -> None:
    parts = split_queues([*NAMES, *NAMES])
    assert [len(part) for part in parts] == [1_000, 1_000, 500]
    assert [name for part in parts for name in part] == NAMES
    assert [share for _, share in shares(parts, 25)] == [10, 10, 5]
    assert [share for _, share in shares(parts, 1)] == [1, 0, 0]
    waits = [wait_ms for _, wait_ms in turns(parts, 1_000)]
    assert (sum(waits), len(waits)) == (1_000, 4)
    assert [wait_ms for _, wait_ms in turns(parts[:1], 50_000)] == [20_000, 20_000, 10_000]
    assert list(turns([], 1)) == []
