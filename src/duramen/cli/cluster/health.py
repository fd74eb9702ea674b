"""How each node is, as it says itself: all are asked at once."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.base.units import format_bytes, format_ms
from duramen.cli.output import print_table
from duramen.cli.server import Server
from duramen.cli.tables import plain

__all__ = ["print_health"]

_ANSWER_S: Final = 2.0
_AT_ONCE: Final = 32
_HEADER: Final = ("NODE", "VERSION", "UP", "STORAGE", "DISK FREE", "FILES", "READY")


def print_health(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Print a row for each node with an HTTP address; whether there is one."""
    reached = [(str(node["id"]), address) for node in nodes if (address := node["endpoints"].get("http"))]
    if reached:
        with ThreadPoolExecutor(min(len(reached), _AT_ONCE)) as pool:
            print_table(_HEADER, list(pool.map(lambda one: _row(*one), reached)), right=(0, 2, 4, 5))
    return bool(reached)


def _row(node_id: str, address: str) -> tuple[str, ...]:
    try:
        found = Server(address).get("/v1/node", timeout_s=_ANSWER_S)
    except DuramenError as error:
        return (node_id, "-", "-", "-", "-", "-", f"no: {plain(str(error))}")
    health = found.get("health")
    if health is None:  # an older node
        return (node_id, plain(found["version"]), "-", "-", "-", "-", "-")
    return (
        node_id,
        plain(found["version"]),
        format_ms(1000 * health["uptime_seconds"]),
        health["storage"],
        format_bytes(health["disk_free_bytes"]),
        f"{health['descriptors']}/{health['descriptors_limit']}",
        f"no: {plain(health['problem'])}" if health["problem"] else "yes",
    )
