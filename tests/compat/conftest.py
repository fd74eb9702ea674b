"""A node and a driver for each client, the results of leading it through the list."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.compat.building import Missing
from tests.compat.clients import Client, Command
from tests.compat.driving import Driver, Lacks
from tests.compat.known import KNOWN, OPEN
from tests.compat.results import Results
from tests.compat.staging import Behaviour, Stage, advertised

from duramen.base.catalogue.catalogue import BROKER
from duramen.node.process import NodeProcess

__all__ = ["Company", "settings"]

_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 3000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 500,
    # The records of some behaviours are years old: no check of retention comes between them and their reader.
    "log.retention.check.interval.ms": 86_400_000,
    # A client that asks for a topic which is being made anew must not make it.
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 4,
}


def settings() -> dict[str, object]:
    """A node's settings for these tests: groups that notice soon."""
    return {name: value for name, value in _SETTINGS.items() if name in BROKER}


class Company:
    """A client in the company of a node of its own."""

    def __init__(self, client: Client, command: Command, node: NodeProcess, directory: Path) -> None:
        self.client = client
        self.node = node
        self._command = command
        self._log = directory / "driver.log"
        self._seconds: list[Driver] = []
        self._driver = self._start()
        self.results = Results(self._driver.client, self._driver.version, client.language)
        self._advertised = advertised(node)

    def _start(self) -> Driver:
        environment = {**os.environ, **self._command.environment}
        return Driver(self._command.arguments, self.node.kafka, self._log, environment)

    def _second(self) -> Driver:
        self._seconds.append(self._start())
        return self._seconds[-1]

    def show(self, behaviour: Behaviour) -> None:
        """Lead the client through one behaviour and note the result. Fails, or skips, as the result is."""
        name = behaviour.name
        if absent := [str(number) for number in behaviour.needs if number not in self._advertised]:
            missing = f"Duramen has not the API {', '.join(absent)} yet"
            self.results.note(name, "fails", missing)
            pytest.skip(missing)
        known = KNOWN.get((self.client.name, name))
        why = known or OPEN.get(name)
        try:
            behaviour.run(Stage(self.node, self._driver, self._second))
        except Lacks as lacks:
            self.results.note(name, "lacks", str(lacks))
            pytest.skip(str(lacks))
        except AssertionError as error:
            self._driver.kill()
            self._driver = self._start()
            self.results.note(name, "fails", why or (str(error).splitlines() or ["it does not hold"])[0])
            if why is None:
                raise
            pytest.xfail(why)
        finally:
            for driver in self._seconds:
                driver.close()
            self._seconds.clear()
        self.results.note(name, "passes")
        assert known is None, f"it passes: take {name!r} out of known.py"

    def close(self) -> None:
        """End the driver and write the results down."""
        self._driver.close()
        self.results.write()


@pytest.fixture(scope="module")
def company(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """The client of the parameter, with its node."""
    client: Client = request.param
    try:
        command = client.make()
    except Missing as missing:
        pytest.skip(str(missing))
    directory = tmp_path_factory.mktemp("company")
    with NodeProcess(directory / "data", settings()) as node:
        found = Company(client, command, node, directory)
        yield found
        found.close()
