"""For tests of users: `node`, a real node.

>>> with duramen.testing.node() as node, duramen.connect(node.server) as client:
...     client.streams.create("flights").name
'flights'
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duramen.testing.process import Node

__all__ = ["node"]


def node(settings: Mapping[str, object] | None = None, *, nats: bool = False) -> "Node":
    """A real node, for a `with` block: on free ports of this machine, with its data in a temporary directory.

    `settings` by their dotted names; with `nats`, an embedded NATS server too. Raises ServerUnreachable, with the end
    of its log, where it does not start.

    >>> with duramen.testing.node({"num.partitions": 3}) as node, duramen.connect(node.server) as client:
    ...     len(client.streams.create("flights").partitions)
    3
    """
    from duramen.testing.process import Node

    return Node(settings, nats=nats)
