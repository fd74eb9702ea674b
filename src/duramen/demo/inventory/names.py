"""The names of the demo: tenants, namespaces, and topics with names that Kafka allows; the same in each run."""

import random
from typing import Final, NamedTuple

__all__ = ["IN_NAMESPACE", "DemoNamespace", "demo_namespaces", "demo_topics"]

IN_NAMESPACE: Final = 10_000
_IN_TENANT: Final = 25
_TRADES: Final = ("retail", "bank", "energy", "telecom", "transit", "health", "games", "media", "freight", "insurer")
_PLACES: Final = ("berlin", "lagos", "lima", "osaka", "oslo", "porto", "quito", "seoul", "turin", "vienna")
_STAGES: Final = ("prod", "staging", "dev", "test", "edge")
_THINGS: Final = ("device", "meter", "vehicle", "customer", "order")
_KINDS: Final = ("telemetry", "events", "commands", "state", "alerts")


class DemoNamespace(NamedTuple):
    """A namespace, and its number."""

    number: int
    tenant: str
    name: str

    @property
    def path(self) -> str:
        """TENANT/NAMESPACE."""
        return f"{self.tenant}/{self.name}"


def demo_namespaces(topics: int) -> list[DemoNamespace]:
    """Namespaces for so many topics."""
    found = list[DemoNamespace]()
    for number in range(max(1, topics // IN_NAMESPACE)):
        tenant, place = divmod(number, _IN_TENANT)
        trade, city = _TRADES[tenant % len(_TRADES)], _PLACES[tenant // len(_TRADES) % len(_PLACES)]
        stage = _STAGES[place % len(_STAGES)]
        found.append(DemoNamespace(number, f"{trade}-{city}-{tenant}", f"{stage}-{place // len(_STAGES)}"))
    return found


def demo_topics(namespace: DemoNamespace) -> list[str]:
    """The topics of a namespace: 48 random bits in each."""
    digits = random.Random(namespace.number).randbytes(6 * IN_NAMESPACE).hex()
    thing = _THINGS[namespace.number % len(_THINGS)]
    return [
        f"{thing}-{digits[12 * at : 12 * at + 12]}.{_KINDS[at % len(_KINDS)]}" for at in range(IN_NAMESPACE)
    ]  # fmt: skip
