"""Serves other nodes' inventory requests from the shards that this node leads, and never forwards them."""

from collections.abc import Callable
from typing import Any

from duramen.base.errors import DuramenError
from duramen.coordinators.inventory.cluster.requests import (
    CHANGE_INVENTORY,
    CHANGE_TOPICS,
    FOLLOW_INVENTORY,
    READ_INVENTORY,
    Changed,
    ChangeInventory,
    ChangeTopics,
    Followed,
    FollowInventory,
    TopicsChanged,
    decode_command,
)
from duramen.coordinators.inventory.cluster.shards import RoutedShards
from duramen.coordinators.inventory.shard import DIRECTORY_SHARD
from duramen.rpc.errors import Refused
from duramen.rpc.server import Done, RpcServer

__all__ = ["serve_inventory"]

RunChanges = Callable[[ChangeTopics, Callable[[Any], None]], None]
"""Runs changes of topics on this node; the callback gets the outcome of each."""


Follow = Callable[[FollowInventory, Callable[[Any], None]], None]
"""Applies the inventory up to a position on this node; the callback gets None, or an error."""


def serve_inventory(server: RpcServer, shards: RoutedShards, run: RunChanges, follow: Follow) -> None:
    """Register the handlers of inventory requests from other nodes."""

    def change(request: ChangeInventory, done: Done[Changed]) -> None:
        shards.serve_command(request.shard, decode_command(request.command), done)

    def change_topics(request: ChangeTopics, done: Done[TopicsChanged]) -> None:
        def ended(problems: list[DuramenError | None]) -> None:
            done(TopicsChanged([Refused.of_any(problem) for problem in problems]))

        shards.check_led(DIRECTORY_SHARD)
        run(request, ended)

    def followed(request: FollowInventory, done: Done[Followed]) -> None:
        follow(request, lambda error: done(Followed() if error is None else error))

    server.handle(FOLLOW_INVENTORY, followed)
    server.handle(READ_INVENTORY, shards.serve_read)
    server.handle(CHANGE_INVENTORY, change)
    server.handle(CHANGE_TOPICS, change_topics)
