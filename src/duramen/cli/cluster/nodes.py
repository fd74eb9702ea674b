"""Shared parts of the commands about one node of a cluster."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

__all__ = ["LARGEST_ID", "NODE_ID", "PARTITION", "node_argument", "node_path"]

_F = TypeVar("_F", bound=Callable[..., object])

LARGEST_ID: Final = (1 << 31) - 1
NODE_ID: Final = click.IntRange(0, LARGEST_ID)
PARTITION: Final = click.IntRange(0, LARGEST_ID)


def node_argument(function: _F) -> _F:
    """The argument NODE, a node's id, which the command gets as `node_id`."""
    return click.argument("node_id", metavar="NODE", type=NODE_ID)(function)


def node_path(node_id: int) -> str:
    """The path of a node."""
    return f"/v1/cluster/nodes/{node_id}"
