"""Steps about client quotas."""

from typing import Any, Final

from tests.differential.drawing import Drawing, Making, Step

from duramen.codec.kafka.versions import ApiKey

__all__ = ["Quotas"]

_KINDS: Final = ("user", "client-id", "client-id", "ip")
_NAMES: Final = {"user": ("u1", "u2", None), "client-id": ("c1", "c2", None), "ip": ("10.0.0.1", "not.an.ip.", None)}
_KEYS: Final = (
    ("producer_byte_rate", (1e9, 2e9, 0.0, -1.0, 1.5)), ("consumer_byte_rate", (1e9, 5e8, 0.0, 1e300)),
    ("request_percentage", (200.0, 1000.0, -5.0)), ("controller_mutation_rate", (100.0, 0.5)),
    ("connection_creation_rate", (1000.0, 1.5)), ("no_such_quota", (1.0,)), ("", (1.0,)),
)  # fmt: skip
_HERE: Final = frozenset({"producer_byte_rate", "consumer_byte_rate"})
_EXACT: Final = 0
_ANY: Final = 2


class Quotas:
    """Draws them. None is for the client that asks."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [(5, self._alter), (5, self._describe)]

    def _part(self, kind: str) -> dict[str, Any]:
        return {"entity_type": kind, "entity_name": self._draw.one(*_NAMES.get(kind, ("x", None)))}

    def _entity(self) -> list[dict[str, Any]]:
        if self._draw.often():
            kinds = self._draw.one(("user",), ("client-id",), ("user", "client-id"), ("ip",))
        else:
            kinds = self._draw.one((), ("ip", "user"), ("user", "user"), ("group",), ("",), ("client-id", "ip"))
        return [self._part(kind) for kind in kinds]

    def _operation(self) -> dict[str, Any]:
        key, values = self._draw.chance.choice(_KEYS[:4] if self._draw.often() else _KEYS)
        value = values[0] if self._draw.sometimes(0.6) else self._draw.one(*values)
        return {"key": key, "value": value, "remove": self._draw.sometimes(0.3)}

    def _alter(self) -> Step:
        count = 1 if self._draw.often() else self._draw.one(0, 2, 2)
        entries = [
            {"entity": self._entity(), "ops": [self._operation() for _ in range(self._draw.one(1, 1, 1, 2, 0))]}
            for _ in range(count)
        ]
        # What Duramen does not have is only asked about, so that both keep the same quotas.
        known = all(_here(entry["entity"]) and all(one["key"] in _HERE for one in entry["ops"]) for entry in entries)
        wish = {"entries": entries, "validate_only": not known or self._draw.sometimes(0.2)}
        return Step(ApiKey.ALTER_CLIENT_QUOTAS, self._draw.version(ApiKey.ALTER_CLIENT_QUOTAS), wish, settle=True)

    def _component(self) -> dict[str, Any]:
        kind = self._draw.one(*_KINDS) if self._draw.often() else self._draw.one("group", "", "user")
        match = self._draw.number(_ANY + 1) if self._draw.often() else self._draw.one(-1, 3, 0)
        name = self._draw.one(*_NAMES.get(kind, ("x",))[:2]) if match == _EXACT else None
        if not self._draw.often():
            name = self._draw.one(None, "c1")
        return {"entity_type": kind, "match_type": match, "match": name}

    def _describe(self) -> Step:
        components = [self._component() for _ in range(self._draw.one(0, 1, 1, 1, 2))]
        wish = {"components": components, "strict": self._draw.sometimes(0.4)}
        return Step(ApiKey.DESCRIBE_CLIENT_QUOTAS, self._draw.version(ApiKey.DESCRIBE_CLIENT_QUOTAS), wish)


def _here(entity: list[dict[str, Any]]) -> bool:
    return all(part["entity_type"] != "ip" for part in entity)
