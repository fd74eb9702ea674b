"""The node that a command uses: its HTTP door, and the address of its Kafka door."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from duramen.base import errors
from duramen.client import BrokerCluster, TopicLeaders, http

__all__ = ["DEFAULT_SERVER", "NodeAddress", "find_stream", "server_option"]

DEFAULT_SERVER: Final = http.DEFAULT_SERVER

_F = TypeVar("_F", bound=Callable[..., object])


def server_option(function: _F) -> _F:
    """The option `--server`, which gives the command a `NodeAddress`."""
    return click.option(
        "--server", metavar="HOST:PORT", envvar="DURAMEN_SERVER", default=DEFAULT_SERVER, show_default=True,
        show_envvar=True, callback=lambda _context, _option, value: NodeAddress(value),
        help="The HTTP address of the node.",
    )(function)  # fmt: skip


def find_stream(cluster: BrokerCluster, name: str) -> TopicLeaders:
    """A stream by its name. Raises StreamNotFound saying how to make it."""
    try:
        return cluster.topic(name)
    except errors.StreamNotFound as error:
        raise errors.StreamNotFound(f"{error}; `duramen stream create {name}` creates one") from None


class NodeAddress(http.HttpNode):
    """The node's HTTP door, as commands name it; requests for another node of its cluster are sent there."""

    def __init__(self, address: str) -> None:
        """Raises SettingInvalid unless the value is HOST:PORT."""
        super().__init__(address, option="--server")

    def ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, object] | http.RequestBody | None = None,
        *,
        timeout_s: float = http.HTTP_TIMEOUT_S,
    ) -> Any:
        """Any question."""
        try:
            return super().ask(method, path, document, timeout_s=timeout_s)
        except errors.NotCoordinator as error:
            for other in self.others():
                with contextlib.suppress(errors.NotCoordinator):
                    return other.ask(method, path, document, timeout_s=timeout_s)
            raise error from None
