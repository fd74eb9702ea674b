"""No handler looks up a topic that a request names: the service does, in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import duramen

DOORS = Path(duramen.__file__).parent / "doors"
LOOKUPS = {"find", "find_id", "get", "by_name", "readable"}
OWN = {  # streams that no request names
    "kafka/groups/classic.py": "the broker's own streams, which store groups and transactions",
    "http/coordinator_requests.py": "the broker's own stream of offsets",
    "http/groups.py": "topics of committed offsets, at the coordinator",
    "http/snapshots/forwarding.py": "by id, for the node that has resolved the name",
    "kafka/admin/resources.py": "by id, the stream that keeps a light topic which the service has found",
    "nats/namespaces.py": "the broker's own stream that keeps topics of the inventory",
    "nats/led_partitions.py": "streams of events of the metadata",
}


def lookups(tree: ast.AST) -> Iterator[int]:
    """Lines in which a stream is looked up in the broker."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(attr="streams"), attr=name) if name in LOOKUPS:
                yield node.lineno
            case _:
                pass


def test_topics_of_requests_are_looked_up_by_the_service() -> None:
    found = {}
    for path in sorted(DOORS.rglob("*.py")):
        lines = list(lookups(ast.parse(path.read_text())))
        if lines:
            found[str(path.relative_to(DOORS))] = lines
    assert set(found) == set(OWN), found


def test_an_authorizer_is_asked_in_one_place() -> None:
    asking = [path.name for path in DOORS.parent.rglob("*.py") if "authorizer.allows(" in path.read_text()]
    assert asking == ["authorize.py"]
