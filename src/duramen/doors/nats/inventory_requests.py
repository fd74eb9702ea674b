"""Requests about the inventory over NATS: `$DURAMEN.I.changes`, with the JSON of the HTTP door."""

import asyncio
from collections.abc import Callable
from typing import Final

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.base.principal import ANONYMOUS
from duramen.doors.inventory.changes import poll, scope_of
from duramen.doors.inventory.types import ChangesRequest, changes_info
from duramen.doors.nats.actions import INVENTORY_CHANGES
from duramen.doors.nats.requests import NatsRequests, decode_request
from duramen.service.admission import Admitted, Service
from duramen.service.broker import Broker

__all__ = ["INVENTORY_PREFIX", "INVENTORY_SUBJECT", "NatsInventory"]

INVENTORY_PREFIX: Final = b"$DURAMEN.I."
INVENTORY_SUBJECT: Final = INVENTORY_PREFIX + b">"


class NatsInventory(NatsRequests):
    """Answers requests about the inventory."""

    def __init__(self, broker: Broker, service: Service, send: Callable[[bytes], None]) -> None:
        super().__init__(send)
        self._broker = broker
        self._service = service

    async def run(self, subject: bytes, instance: str, payload: bytes | None) -> object:
        """As of `NatsRequests`."""
        if instance.removeprefix(INVENTORY_PREFIX.decode()) != "changes":
            unknown = subject[:200].decode(errors="replace")
            raise RequestInvalid(f"{unknown} does not fit: the subject is {INVENTORY_PREFIX.decode()}changes")
        request = decode_request(payload, ChangesRequest)
        future: asyncio.Future[Admitted | DuramenError] = asyncio.get_running_loop().create_future()
        self._service.admit(ANONYMOUS, INVENTORY_CHANGES, (), future.set_result)
        found = await future
        if isinstance(found, DuramenError):
            raise found
        scope = scope_of(self._broker, request)
        page = await poll(
            self._broker,
            self.polls,
            scope,
            request.position,
            request.limit,
            request.wait_ms,
            by_id=bool(request.follow),
        )
        return changes_info(page)
