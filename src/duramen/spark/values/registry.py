"""A schema registry: fetches the schemas that prefixes name, over HTTP.

Source: Confluent's Schema Registry API, GET /schemas/ids/{id}.
"""

import base64
import http.client
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from duramen.base.errors import OptionInvalid, ServerUnreachable

__all__ = ["SchemaRegistry"]

_TIMEOUT_S: Final = 10.0


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str = "AVRO"
    references: list[msgspec.Raw] = []


class SchemaRegistry:
    """The registered schemas by id; an id's schema never changes, so each is requested once."""

    def __init__(self, url: str) -> None:
        """`url` is http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]. Raises OptionInvalid."""
        split = urlsplit(url)
        if split.scheme not in {"http", "https"} or not split.hostname:
            raise OptionInvalid(f"the schema registry {url!r} must be a URL: http://HOST:PORT")
        self._split = split
        self._shown = f"{split.scheme}://{split.hostname}{f':{split.port}' if split.port else ''}"
        self._known: dict[int, str | None] = {}

    def schema(self, schema_id: int) -> str | None:
        """The Avro schema of an id; None if it does not exist. Raises ServerUnreachable."""
        if schema_id not in self._known:
            self._known[schema_id] = self._ask(schema_id)
        return self._known[schema_id]

    def _ask(self, schema_id: int) -> str | None:
        try:
            connection = _connection(self._split)
            try:
                path = f"{self._split.path.rstrip('/')}/schemas/ids/{schema_id}"
                connection.request("GET", path, headers=_headers(self._split))
                response = connection.getresponse()
                body = response.read()
            finally:
                connection.close()
            if response.status == http.HTTPStatus.NOT_FOUND:
                return None
            if response.status != http.HTTPStatus.OK:
                raise ServerUnreachable(f"the schema registry {self._shown} answered {response.status}")
            answer = msgspec.json.decode(body, type=_Answer)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise ServerUnreachable(f"the schema registry {self._shown} did not answer: {error}") from None
        return answer.schema if answer.schema_type == "AVRO" and not answer.references else None


def _connection(split: SplitResult) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if split.scheme == "https" else http.client.HTTPConnection
    return kind(split.hostname or "", split.port, timeout=_TIMEOUT_S)


def _headers(split: SplitResult) -> dict[str, str]:
    if split.username is None:
        return {}
    secret = f"{unquote(split.username)}:{unquote(split.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(secret).decode()}"}
