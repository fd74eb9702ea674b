"""What each route needs is data beside its handler; who lacks it gets 403, and names may resolve later."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pytest
from tests.doors.http.applied import World

from duramen.doors.http.application import ROUTES
from duramen.doors.http.serving.openapi import errors_of
from duramen.doors.http.serving.routes import HttpRoute
from duramen.service.admission import LONGEST_RESOLUTION_MS, Service
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.broker import Broker
from duramen.service.resolve import Found, StreamResolver, Topic, TopicKey

FREE = {"/healthz", "/readyz", "/metrics", "/v1/openapi.json"}
QUERIES = {
    "/v1/streams/{name}/partitions/{partition}/replicated": "?offset=0&epoch=0",
    "/v1/streams/{name}/snapshot/records": "?at=0",
    "/v1/snapshot": "?streams=there",
    "/v1/spaces/{name}/entries": "?queue=q",
    "/v1/spaces/{name}/stats": "?queue=q",
    "/v1/spaces/{name}/exports/{export}/runs": "?shard=0",
    "/v1/inventory/exports/{export}/topics": "?shard=0",
}
WISHES: dict[str, Any] = {
    "/v1/spaces": {"name": "new"},
    "/v1/spaces/{name}/entries": {"entries": [{"queue": "q", "value": "a"}]},
    "/v1/spaces/{name}/retrieve": {"queues": [{"queue": "q"}]},
    "/v1/spaces/{name}/edit": {"queue": "q", "entries": [{"position": "0.0", "value": "a"}]},
    "/v1/spaces/{name}/delete": {"queue": "q", "entries": [{"position": "0.0"}]},
    "/v1/spaces/{name}/replace": {"queue": "q", "from": "0.0", "entries": []},
    "/v1/spaces/{name}/lease": {"queues": ["q"]},
    "/v1/spaces/{name}/ack": {"entries": [{"queue": "q", "position": "0.0", "lease": "0.1"}]},
    "/v1/spaces/{name}/nack": {"entries": [{"queue": "q", "position": "0.0", "lease": "0.1"}]},
    "/v1/spaces/{name}/extend": {"entries": [{"queue": "q", "position": "0.0", "lease": "0.1"}]},
    "/v1/spaces/{name}/purge": {"queue": "q"},
    "/v1/spaces/{name}/drop": {"queue": "q"},
    "/v1/streams/{name}/snapshot/leases": {},
    "/v1/streams": {"name": "new"},
    "/v1/streams/{name}": {"config": {"retention.ms": 1}, "partitions": 3},
    "/v1/streams/{name}/records": {"records": [{"value": "a"}]},
    "/v1/streams/{name}/records/delete": {"before": 0},
    "/v1/groups/{id:any}/offsets": {"to": "start", "streams": ["there"]},
    "/v1/policies": {"policies": {"quota.topics": 1}},
    "/v1/policies/{tenant}": {"policies": {"quota.topics": 1}},
    "/v1/policies/{tenant}/{namespace}": {"policies": {"quota.topics": 1}},
    "/v1/policies/{tenant}/{namespace}/{name:any}": {"policies": {"producer_byte_rate": 1}},
    "/v1/cluster/voters": {"node_id": 1},
    "/v1/cluster/feature-level": {"level": 1},
    "/v1/cluster/elections": {},
    "/v1/cluster/elections/unclean/plan": {},
    "/v1/cluster/reassignments": {"partitions": [{"stream": "there", "partition": 0, "replicas": [1]}]},
    "/v1/cluster/rebalance/plan": {},
    "/v1/cluster/rebalance/begin": {"moves": [], "at_once": 1},
    "/v1/cluster/rebalance/progress": {"moves": []},
    "/v1/cluster/rebalance/cancel": {"moves": []},
}


class Only:
    """An authorizer that allows nothing but what is said."""

    def __init__(self, *allowed: tuple[Access, str]) -> None:
        self._allowed = {*allowed}

    def allows(self, _: object, access: Access, name: str | None) -> bool:
        return (access, name) in self._allowed


class Later:
    """A resolver that answers when it is told to."""

    def __init__(self, streams: StreamResolver) -> None:
        self._streams = streams
        self._answer: Callable[[], None] | None = None
        self.asked = asyncio.Event()

    all_known = None

    def known(self, _: Collection[TopicKey]) -> Found | None:
        return None

    def resolve(self, keys: Collection[TopicKey], done: Callable[[Found], None]) -> None:
        self._answer = lambda: self._streams.resolve(keys, done)
        self.asked.set()

    def answer(self) -> None:
        """Now it knows."""
        assert self._answer is not None
        self._answer()
        self.asked.clear()

    def every(self) -> Iterable[Topic]:
        return self._streams.every()

    def from_name(self, first: str) -> Iterator[Topic]:
        return self._streams.from_name(first)


def guarded(only: Only) -> World:
    """A node with an authorizer."""
    return World(lambda broker: Service(broker, authorizer=only))


def test_every_route_says_what_it_needs() -> None:
    for route in ROUTES:
        free = route.path in FREE
        assert bool(route.rules.needs) is not free, route.path
        assert bool(route.rules.open_because) is free


LISTS = {("GET", "/v1/streams"), ("GET", "/v1/spaces")}  # what is not allowed is left out
GUARDED = [route for route in ROUTES if route.rules.needs and (route.method, route.path) not in LISTS]


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_a_refusal_is_a_problem_with_403(route: HttpRoute) -> None:
    path = route.path.replace("{name}", "there").replace("{id:any}", "g").replace("{id}", "1")
    body = WISHES.get(route.path) if "body" in route.types() else None
    status, problem = guarded(Only()).ask(
        route.method, path.replace("{partition}", "0") + QUERIES.get(route.path, ""), body
    )
    assert status == 403, problem
    assert problem["type"] in {"topic-not-authorized", "group-not-authorized", "cluster-not-authorized"}
    assert "User:ANONYMOUS is not authorized to" in problem["detail"]
    assert problem["type"] in {error.id for error in errors_of(route)}


def test_streams_that_must_not_be_described_are_left_out() -> None:
    describe = Access(Operation.DESCRIBE, ResourceType.TOPIC)
    for allowed, names in (((), []), (((describe, "there"),), ["there"])):
        status, listed = guarded(Only(*allowed)).ask("GET", "/v1/streams")
        assert (status, [stream["name"] for stream in listed["streams"]]) == (200, names)


def test_a_name_that_resolves_later_is_waited_for() -> None:
    async def asking() -> None:
        resolvers: list[Later] = []

        def service(broker: Broker) -> Service:
            resolvers.append(Later(StreamResolver(broker.streams)))
            return Service(broker, resolver=resolvers[0])

        world = World(service)
        (later,) = resolvers
        shown = world.begin("GET", "/v1/streams/there")
        await later.asked.wait()
        assert not shown.done()
        later.answer()
        assert (await world.settled(shown))[0] == 200
        unknown = world.begin("GET", "/v1/streams/there")
        await later.asked.wait()
        world.manual.advance(LONGEST_RESOLUTION_MS)
        status, problem = await world.settled(unknown)
        assert (status, problem["type"]) == (503, "name-not-resolved")

    asyncio.run(asking())
