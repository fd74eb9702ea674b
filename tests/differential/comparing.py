"""Differences between two answers, and which of them are deliberate."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Difference", "differences"]

_DELIBERATE: Final = json.loads((Path(__file__).parent / "deliberate.json").read_text())["differences"]
_IDENTITIES: Final = ("group_id", "member_id", "partition_index", "topic_name", "name", "topic", "topic_id")
"""By which of its fields something in a list is known, the first that it has."""


class Difference(NamedTuple):
    """A place in an answer where the two say different things; what is deliberate has an entry in the list."""

    api: str
    path: str
    duramen: Any
    kafka: Any
    deliberate: bool = False


def differences(api: str, asked: str, ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    """Every place where two answers to a request of that API are not the same; `asked` is the request as text.

    What lies beneath a place whose difference is deliberate is not looked at.
    """
    if ours == theirs:
        return
    if _is_deliberate(api, asked, path, ours, theirs):
        yield Difference(api, path, ours, theirs, deliberate=True)
        return
    parts = _parts(ours, theirs, path)
    if parts is None:
        yield Difference(api, path, ours, theirs)
        return
    for at, one, other in parts:
        yield from differences(api, asked, one, other, at)


def _parts(ours: Any, theirs: Any, path: str) -> list[tuple[str, Any, Any]] | None:
    """What two values consist of, side by side with its path, - for what one does not have; None where that is alike.

    Lists are compared place by place; those that do not have the same things, thing by thing.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = sorted({*ours, *theirs})
        return [(f"{path}.{name}".lstrip("."), ours.get(name, "-"), theirs.get(name, "-")) for name in names]
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return None
    mine, other = _by_identity(ours), _by_identity(theirs)
    if (mine or not ours) and (other or not theirs) and mine.keys() != other.keys():
        return [(f"{path}[{key}]", mine.get(key, "-"), other.get(key, "-")) for key in sorted({*mine, *other})]
    if len(ours) != len(theirs):
        return None
    return [(f"{path}[{at}]", *pair) for at, pair in enumerate(zip(ours, theirs, strict=True))]


def _by_identity(values: list[Any]) -> dict[str, Any]:
    """The things of a list by what they are known by; nothing where that does not tell them apart."""
    found = {}
    for value in values:
        names = [name for name in _IDENTITIES if isinstance(value, dict) and name in value]
        if not names:
            return {}
        identity = value[names[0]]
        found[str(getattr(identity, "name", identity))] = value
    return found if len(found) == len(values) else {}


def _is_deliberate(api: str, asked: str, path: str, ours: Any, theirs: Any) -> bool:
    return any(
        re.fullmatch(entry["api"], api)
        and re.fullmatch(entry["path"], path)
        and re.search(entry.get("asked", ""), asked)
        and re.fullmatch(entry["duramen"], str(ours), re.DOTALL)
        and re.fullmatch(entry["kafka"], str(theirs), re.DOTALL)
        for entry in _DELIBERATE
    )
