"""Differences between two answers, and which of them are deliberate."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Difference", "differences", "is_deliberate"]

_DELIBERATE: Final = json.loads((Path(__file__).parent / "deliberate.json").read_text())["differences"]


class Difference(NamedTuple):
    """A place in an answer where the two say different things."""

    api: str
    path: str
    duramen: Any
    kafka: Any


def differences(api: str, ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    """Every place where two answers to a request of that API are not the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            if name in ours and name in theirs:
                yield from differences(api, ours[name], theirs[name], f"{path}.{name}".lstrip("."))
            else:
                yield Difference(api, f"{path}.{name}".lstrip("."), ours.get(name, "-"), theirs.get(name, "-"))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(api, one, other, f"{path}[{at}]")
    elif ours != theirs:
        yield Difference(api, path, ours, theirs)


def is_deliberate(found: Difference) -> bool:
    """Whether the list of deliberate differences has it."""
    return any(
        re.fullmatch(entry["api"], found.api)
        and re.fullmatch(entry["path"], found.path)
        and re.fullmatch(entry["duramen"], str(found.duramen))
        and re.fullmatch(entry["kafka"], str(found.kafka))
        for entry in _DELIBERATE
    )
