"""What all kinds of steps draw from: one seeded chance, the names in use, what a step is."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from tests.differential.peer import Peer

from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["TOPICS", "TRANSACTIONS", "Drawing", "Family", "Making", "Step"]

TOPICS: Final = ("alpha", "beta", "gamma", "delta")
_ODD_TOPICS: Final = ("", "a/b", "..", "x" * 250, "absent", "alpha")
TRANSACTIONS: Final = ("t1", "t2")


class Step(NamedTuple):
    """One request; `learn` takes from a broker's answer what later steps name. `until` says which answer is final.

    `finish` makes of a broker's answer what is compared: it may ask more.
    """

    api: ApiKey
    version: int
    message: Mapping[str, Any]
    learn: Callable[[Peer, dict[str, Any]], None] | None = None
    settle: bool = False
    until: Callable[[dict[str, Any]], bool] | None = None
    finish: Callable[[Peer, dict[str, Any]], dict[str, Any]] | None = None


Making = tuple[int, Callable[[], Step]]
"""How often a step is drawn, as a weight, and what draws it."""


class Family(Protocol):
    """Steps that belong together."""

    def making(self) -> list[Making]:
        """The steps of this family."""


class Drawing:
    """A seeded chance; most of what it draws makes sense."""

    def __init__(self, seed: int, began_ms: int) -> None:
        """Records have timestamps from `began_ms` on."""
        self.chance = random.Random(seed)
        self.seed = seed
        self.groups = (f"g1-{seed}", f"g2-{seed}")
        """The groups of this seed: what a group becomes, of one kind or another, it stays while the brokers run."""
        self.began_ms = began_ms
        self.numbers = 0
        self.recompressed: set[str] = set()
        """The topics whose records may be compressed anew, each by its own library."""

    def one(self, *values: Any) -> Any:
        """One of the values."""
        return self.chance.choice(values)

    def often(self) -> bool:
        """True, but for one time in seven."""
        return self.chance.random() < 0.85

    def sometimes(self, share: float) -> bool:
        """True that often."""
        return self.chance.random() < share

    def number(self, *bounds: int) -> int:
        """A number below a bound, or from one to below another."""
        return self.chance.randrange(*bounds)

    def version(self, api: ApiKey, low: int = 0, high: int = 99) -> int:
        """A version of an API that both have."""
        return self.chance.randint(max(low, APIS[api].low), min(high, APIS[api].high))

    def name(self) -> str:
        """A topic's name."""
        return self.chance.choice(TOPICS if self.often() else _ODD_TOPICS)

    def group(self, *odd: str) -> str:
        """A group's id, sometimes an odd one, or a share group's."""
        return str(self.one(*self.groups) if self.often() else self.one(f"f1-{self.seed}", *odd))

    def partition(self) -> int:
        """A partition's number."""
        return int(self.one(0, 0, 0, 1, 2) if self.often() else self.one(-1, 7, 1 << 30))
