"""From a decoded request to its handler: names resolved, admitted; or refused with Kafka's errors."""

from functools import partial

from duramen.base.errors import DuramenError
from duramen.doors.kafka.connection.error_responses import refuse
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiHandler, ApiNeeds
from duramen.service.admission import Admitted

__all__ = ["enter"]


def enter(api: ApiHandler, context: Context, exchange: Exchange) -> None:
    """Handle a request once its names are resolved. Raises RequestInvalid if the connection cannot continue."""
    api.decode(context, exchange)
    for_all = context.service.for_readers if api.rules.only_reads else context.service.for_all
    if for_all is not None:  # the usual way of a request, made short
        if api.rules.resolved:
            exchange.admitted = for_all
        api.handler(context, exchange)
        return
    asked = ApiNeeds(context, exchange)
    verdict = context.service.admit_now(exchange.principal, api.rules, asked)
    if verdict is not None:
        _handle(api, context, exchange, verdict)
        return
    cancel = context.service.admit(exchange.principal, api.rules, asked, partial(_judged, api, context, exchange))
    if cancel is not None:
        exchange.abandoned = cancel
        exchange.channel.hold()


def _judged(api: ApiHandler, context: Context, exchange: Exchange, verdict: Admitted | DuramenError) -> None:
    if exchange.abandoned is None:
        _handle(api, context, exchange, verdict)
    else:  # it had to wait
        exchange.abandoned = None
        exchange.channel.go_on(partial(_handle, api, context, exchange, verdict))


def _handle(api: ApiHandler, context: Context, exchange: Exchange, verdict: Admitted | DuramenError) -> None:
    if isinstance(verdict, Admitted):
        exchange.admitted = verdict
        api.handler(context, exchange)
    else:
        refuse(context, exchange, error_code(verdict), str(verdict))
