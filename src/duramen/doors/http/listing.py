"""Pages of streams by name, limited to those that the client may describe: for streams and for queue spaces."""

from collections.abc import Callable
from itertools import islice, takewhile
from typing import Final

from duramen.doors.http.serving.routes import Call
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.resolve import Topic

__all__ = ["names_listed", "streams_page"]

_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.TOPIC)


def names_listed(call: Call) -> list[str]:
    """The names of all streams."""
    return [stream.name for stream in call.service.resolver.every()]


def streams_page(
    call: Call, prefix: str, after: str, limit: int, wanted: Callable[[Topic], bool] = lambda _: True
) -> tuple[list[Topic], str | None]:
    """The first `limit` accepted streams after the name `after`; and the last name if there are more."""
    following = call.service.resolver.from_name(max(after, prefix))
    allowed = (
        stream
        for stream in takewhile(lambda one: one.name.startswith(prefix), following)
        if wanted(stream) and stream.name > after and call.admitted.refusal(_DESCRIBE, stream.name) is None
    )
    found = list(islice(allowed, limit + 1))
    page = found[:limit]
    return page, page[-1].name if len(found) > limit else None
