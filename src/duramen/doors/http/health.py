"""Health and metrics, served as soon as the socket is open."""

from typing import Final

from starlette.responses import PlainTextResponse, Response

from duramen.base.errors import StorageFailed
from duramen.doors.http import exposition
from duramen.doors.http.serving.routes import Call, HttpRoute
from duramen.service.admission import AdmissionRules

__all__ = ["ROUTES"]

_PROBE: Final[AdmissionRules[Call]] = AdmissionRules(
    open_because="probes have no credentials and run before the node is ready"
)


async def _healthz(call: Call) -> Response:
    broker = call.node.broker
    condition = None if broker is None else broker.store.condition.problem
    if isinstance(condition, StorageFailed):  # until a restart: the supervisor of the node has to restart it
        return PlainTextResponse(f"{condition}\n", 503)
    return PlainTextResponse("ok\n")


async def _readyz(call: Call) -> Response:
    if call.node.broker is None:
        return PlainTextResponse(f"{call.node.progress() or 'starting'}\n", 503)
    problem = call.node.problem()
    if problem:
        return PlainTextResponse(f"{problem}\n", 503)
    damaged, lost = call.node.broker.store.quarantine.ranges, len(call.node.broker.coordinators.losses)
    parts = ["ready"]
    if damaged:
        ranges = "1 damaged range" if damaged == 1 else f"{damaged} damaged ranges"
        parts.append(f"{ranges} of segments cannot be read: see the node's log")
    if lost:
        partitions = "1 partition are" if lost == 1 else f"{lost} partitions are"
        parts.append(f"the rows of {partitions} lost: see the node's log")
    return PlainTextResponse("; ".join(parts) + "\n")


async def _metrics(call: Call) -> Response:
    return await exposition.answer(call.node.metrics, call.node.broker, call.node.problem())


ROUTES = (
    HttpRoute(
        "GET",
        "/healthz",
        _healthz,
        _PROBE,
        "200 while the process is alive; 503 with the reason if a sync has failed, which only a restart repairs",
        statuses=(200, 503),
    ),
    HttpRoute(
        "GET",
        "/readyz",
        _readyz,
        _PROBE,
        "200 once every door accepts requests; until then 503 with the reason",
        statuses=(200, 503),
    ),
    HttpRoute(
        "GET",
        "/metrics",
        _metrics,
        AdmissionRules(open_because="it is served before the node can authorize"),
        "The metrics in Prometheus text format",
    ),
)
