"""For users' tests: `broker` starts a real broker quickly. pytest has it as the fixture `duramen_broker`.

>>> with duramen.testing.broker() as broker, duramen.connect(broker.http_url) as client:
...     client.produce(broker.create_stream("flights"), ["a"])
[Place(partition=0, offset=0)]
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duramen.testing.faults import BrokerFaults
    from duramen.testing.handle import Broker

__all__ = ["Broker", "BrokerFaults", "broker"]


def broker(settings: Mapping[str, object] | None = None, *, nats: bool = False) -> "Broker":
    """A real broker for a `with` or `async with` block, on free ports, with data in a temporary directory.

    `settings` are given by their dotted names; with `nats`, a NATS server is started too. The environment is not read.
    Raises SettingInvalid; ServerUnreachable with the end of its log if it does not start; DependencyMissing on Windows.

    >>> with duramen.testing.broker({"auto.create.topics.enable": False}) as broker:
    ...     broker.create_stream("flights", partitions=3)
    'flights'
    """
    from duramen.testing.handle import Broker

    return Broker(settings, nats=nats)


def __getattr__(name: str) -> object:
    # Found when they are first used: pytest's plugin imports this for everybody.
    if name == "Broker":
        from duramen.testing.handle import Broker

        return Broker
    if name == "BrokerFaults":
        from duramen.testing.faults import BrokerFaults

        return BrokerFaults
    raise AttributeError(f"module 'duramen.testing' has no attribute {name!r}")
