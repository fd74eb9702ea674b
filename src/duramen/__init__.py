"""Duramen: a durable log for people who work in Python: NATS subjects and Kafka topics in one log.

>>> with duramen.connect(server) as client:
...     client.streams.create("hello")
...     client.produce("hello", ["world"])
...     for batch in client.consume("hello"):
...         for record in batch:
...             print(record.offset, record.text)
StreamInfo(...)
[Place(partition=0, offset=0)]
0 world

`duramen.aio` is the same for asyncio, `duramen.testing` runs a node for tests, `duramen.errors` has what to catch,
`duramen.spark` reads and writes streams with PySpark.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from duramen import aio, errors, spark, testing
    from duramen.client.api.client import Client, connect
    from duramen.client.api.group_snapshots import GroupSnapshot
    from duramen.client.api.inventory.changes import InventoryChange, Subscription, TopicNamed
    from duramen.client.api.inventory.inventory import Inventory
    from duramen.client.api.inventory.policies import Policies
    from duramen.client.api.inventory.policy_requests import PoliciesInfo, PolicyInfo, PolicyQuota
    from duramen.client.api.inventory.requests import (
        CreatedNames,
        MovedTopics,
        NamespaceInfo,
        TenantInfo,
        TopicInfo,
        TopicPage,
    )
    from duramen.client.api.joint_snapshots import JointSnapshot
    from duramen.client.api.queues.queues import (
        LeasedEntry,
        MissingShard,
        NewEntry,
        QueueEntry,
        QueueNames,
        QueuePage,
        Queues,
        QueueStats,
        ShardUsage,
        SpaceUsage,
    )
    from duramen.client.api.queues.spaces import SpaceInfo
    from duramen.client.api.records import Batch, NewRecord, Place, Record
    from duramen.client.api.snapshots import Snapshot
    from duramen.client.api.values import (
        GroupDetails,
        GroupInfo,
        GroupMember,
        GroupOffset,
        NodeInfo,
        OffsetChange,
        PartitionInfo,
        StreamInfo,
    )

__all__ = [
    "Batch",
    "Client",
    "CreatedNames",
    "GroupDetails",
    "GroupInfo",
    "GroupMember",
    "GroupOffset",
    "GroupSnapshot",
    "Inventory",
    "InventoryChange",
    "JointSnapshot",
    "LeasedEntry",
    "MissingShard",
    "MovedTopics",
    "NamespaceInfo",
    "NewEntry",
    "NewRecord",
    "NodeInfo",
    "OffsetChange",
    "PartitionInfo",
    "Place",
    "Policies",
    "PoliciesInfo",
    "PolicyInfo",
    "PolicyQuota",
    "QueueEntry",
    "QueueNames",
    "QueuePage",
    "QueueStats",
    "Queues",
    "Record",
    "ShardUsage",
    "Snapshot",
    "SpaceInfo",
    "SpaceUsage",
    "StreamInfo",
    "Subscription",
    "TenantInfo",
    "TopicInfo",
    "TopicNamed",
    "TopicPage",
    "__version__",
    "aio",
    "connect",
    "errors",
    "spark",
    "testing",
]

__version__ = "0.1.0"

_MODULES: Final = ("aio", "errors", "spark", "testing")
_HOMES: Final = (
    {
        "Client": "client",
        "connect": "client",
        "Snapshot": "snapshots",
        "GroupSnapshot": "group_snapshots",
        "JointSnapshot": "joint_snapshots",
        "SpaceInfo": "queues.spaces",
    }
    | dict.fromkeys(("Batch", "NewRecord", "Place", "Record"), "records")
    | {"Inventory": "inventory.inventory", "Policies": "inventory.policies"}
    | dict.fromkeys(("InventoryChange", "Subscription", "TopicNamed"), "inventory.changes")
    | dict.fromkeys(("PoliciesInfo", "PolicyInfo", "PolicyQuota"), "inventory.policy_requests")
    | dict.fromkeys(
        ("CreatedNames", "MovedTopics", "NamespaceInfo", "TenantInfo", "TopicInfo", "TopicPage"), "inventory.requests"
    )
    | dict.fromkeys(
        (
            "LeasedEntry",
            "MissingShard",
            "NewEntry",
            "QueueEntry",
            "QueueNames",
            "QueuePage",
            "QueueStats",
            "Queues",
            "ShardUsage",
            "SpaceUsage",
        ),
        "queues.queues",
    )
)


def __getattr__(name: str) -> object:
    # Found when they are first used: the broker and the command line, which import this too, need none of them.
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"duramen.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'duramen' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"duramen.client.api.{_HOMES.get(name, 'values')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
