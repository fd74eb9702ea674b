"""The pytest plugin: `duramen_broker`, `duramen_stream`, `duramen_broker_factory`. pytest always loads it.

So it imports nothing but pytest until a fixture is used, and uses only features of old pytest versions. A test does not
affect later ones that share its broker: faults are cleared, and a crashed broker is restarted. The report of a failed
test has the log lines of its brokers.
"""

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pluggy

    from duramen.testing.handle import Broker

__all__ = ["duramen_broker", "duramen_broker_factory", "duramen_stream"]

_NAME_LENGTH = 100

_shared = pytest.StashKey["list[Broker]"]()
"""Of the session: the broker of `duramen_broker`, once there is one."""
_own = pytest.StashKey["list[Broker]"]()
"""Of a test: its brokers of `duramen_broker_factory`."""
_logged = pytest.StashKey[int]()
"""Of a test: how much the shared broker had logged before it."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def duramen_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A real broker for Kafka clients, shared by all tests (with pytest-xdist, by all of a worker).

    Its address is `duramen_broker.bootstrap_servers`; each test uses a stream of its own: `duramen_stream`.
    """
    from duramen.testing import broker

    with broker() as shared:
        request.config.stash[_shared] = [shared]
        yield shared
        request.config.stash[_shared] = []


@pytest.fixture
def duramen_stream(duramen_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new stream (a topic) of `duramen_broker`, with one partition and no records."""
    plain = "".join(one if one.isascii() and one.isalnum() else "-" for one in request.node.name)
    return duramen_broker.create_stream(f"{plain[:_NAME_LENGTH].strip('-')}-{next(_numbers)}")


@pytest.fixture
def duramen_broker_factory(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Broker]]":
    """Creates brokers for one test: `duramen_broker_factory(settings, nats=False)`; they end with the test."""
    from duramen.testing import broker

    made: list[Broker] = request.node.stash.setdefault(_own, [])
    with ExitStack() as stack:

        def make(settings: Mapping[str, object] | None = None, *, nats: bool = False) -> "Broker":
            one = stack.enter_context(broker(settings, nats=nats))
            made.append(one)
            return one

        yield make
        made.clear()


def _shared_by(item: pytest.Item) -> "list[Broker]":
    uses = "duramen_broker" in getattr(item, "fixturenames", ())
    return item.config.stash.get(_shared, []) if uses else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset the shared broker for the next test, and note the end of its log."""
    for broker in _shared_by(item):
        item.stash[_logged] = len(broker.log)
        if not broker.running:
            broker.restart()
        elif broker.faults.any_set:
            broker.faults.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, pluggy.Result[pytest.TestReport]]":
    """Add the brokers' logs to the report of a failed test."""
    report = (yield).get_result()
    if report.failed:
        logs = [broker.log[item.stash.get(_logged, 0) :] for broker in _shared_by(item)]
        logs += [broker.log for broker in item.stash.get(_own, [])]
        for log in logs:
            report.sections.append(("duramen broker log", log or "nothing was logged during this test\n"))
