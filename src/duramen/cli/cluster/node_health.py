"""The health of each node from the node itself, and its lag from the leaders, requested concurrently."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.base.units import format_bytes, format_ms
from duramen.cli.server import NodeAddress
from duramen.cli.tables import plain

__all__ = ["HEALTH_HEADER", "HEALTH_RIGHT", "fetch_health", "health_row"]

HEALTH_HEADER: Final = (
    "NODE", "VERSION", "UP", "STORAGE", "DISK FREE", "LAG RECORDS", "LAG TIME", "FILES", "READY",
)  # fmt: skip
HEALTH_RIGHT: Final = (0, 2, 4, 5, 6, 7)

_ANSWER_S: Final = 2.0
_AT_ONCE: Final = 32
_NO_HTTP: Final = "it has no HTTP address"
_NO_LAG: Final = {"partitions": 0, "records": 0, "unheard": 0, "seconds": 0.0}


def fetch_health(server: NodeAddress, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each node that `server` lists in `/v1/cluster/nodes`: `id`, `version`, `health`, `lag` and `error`.

    `error` is the reason why it does not respond. `lag` is the number of records that it lacks of partitions that the
    responding nodes lead; null if there are none.
    """
    if not nodes:
        return []
    own, _ = _asked(server)  # one that is alone has registered no address
    own_id = own.get("node_id")
    with ThreadPoolExecutor(min(len(nodes), _AT_ONCE)) as pool:
        answers = list(pool.map(lambda node: (own, None) if node["id"] == own_id else _ask(node), nodes))
    lags: dict[int, dict[str, Any]] = {}
    for answer, _ in answers:
        for one in answer.get("followers", ()):
            lag = lags.setdefault(one["node_id"], dict(_NO_LAG))
            for name in ("partitions", "records", "unheard"):
                lag[name] += one[name]
            lag["seconds"] = max(lag["seconds"], one["seconds"])
    heard = any("followers" in answer for answer, _ in answers)
    return [
        {
            "id": node["id"], "version": answer.get("version"), "health": answer.get("health"),
            "lag": lags.get(node["id"], dict(_NO_LAG)) if heard else None, "error": error,
        }
        for node, (answer, error) in zip(nodes, answers, strict=True)
    ]  # fmt: skip


def _ask(node: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    address = node["endpoints"].get("http")
    return ({}, _NO_HTTP) if address is None else _asked(NodeAddress(address))


def _asked(server: NodeAddress) -> tuple[Mapping[str, Any], str | None]:
    try:
        return server.get("/v1/node", timeout_s=_ANSWER_S), None
    except DuramenError as error:
        return {}, str(error)


def health_row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of a table under `HEALTH_HEADER`."""
    health, error = found["health"], found["error"]
    lag = _lag(found["lag"])
    version = plain(found["version"] or "-")
    if health is None:  # it does not answer, or is older
        return (str(found["id"]), version, "-", "-", "-", *lag, "-", f"no: {plain(error)}" if error else "-")
    return (
        str(found["id"]),
        version,
        format_ms(1000 * health["uptime_seconds"]),
        health["storage"],
        format_bytes(health["disk_free_bytes"]),
        *lag,
        f"{health['descriptors']}/{health['descriptors_limit']}",
        f"no: {plain(health['problem'])}" if health["problem"] else "yes",
    )


def _lag(lag: Mapping[str, Any] | None) -> tuple[str, str]:
    if lag is None:
        return "-", "-"
    records = f">={lag['records']}" if lag["unheard"] else str(lag["records"])
    return records, format_ms(1000 * lag["seconds"])
