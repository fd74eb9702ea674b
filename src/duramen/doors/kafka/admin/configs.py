"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, for every kind of resource that has configs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from duramen.base.errors import DuramenError, RequestInvalid
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.admin.broker_configs import BrokerConfigs
from duramen.doors.kafka.admin.group_configs import GroupResource
from duramen.doors.kafka.admin.loggers import BrokerLoggers
from duramen.doors.kafka.admin.resources import (
    Alteration,
    DescribedConfig,
    Operation,
    Resource,
    ResourceChange,
    TopicConfigs,
)
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.gather import gather
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.service.authorize import CLUSTER_NAME, Access, ResourceType
from duramen.service.authorize import Operation as AccessOperation

__all__ = [
    "cluster_names",
    "group_names",
    "handle_alter_configs",
    "handle_describe_configs",
    "handle_incremental_alter_configs",
    "topic_names",
]

_TOPIC: Final = 2
_GROUP: Final = 32
_RESOURCES: Final[Mapping[int, Resource]] = {
    _TOPIC: TopicConfigs(),
    4: BrokerConfigs(),
    8: BrokerLoggers(),
    _GROUP: GroupResource(),
}
_OPERATIONS: Final[Sequence[Operation]] = ("set", "delete", "append", "subtract")

Changes = Callable[[Message], list[ResourceChange]]


def _resource(resource: Message) -> Resource:
    found = _RESOURCES.get(resource["resource_type"])
    if found is None:
        raise RequestInvalid(f"there are no configs of the resource type {resource['resource_type']}")
    return found


def _names(needs: ApiNeeds, kind: int) -> list[str]:
    return [one["resource_name"] for one in needs.request["resources"] if one["resource_type"] == kind]


def topic_names(needs: ApiNeeds) -> Sequence[str]:
    """The topics whose configs are meant."""
    return _names(needs, _TOPIC)


def group_names(needs: ApiNeeds) -> Sequence[str]:
    """The groups whose configs are meant."""
    return _names(needs, _GROUP)


def cluster_names(needs: ApiNeeds) -> Sequence[str]:
    """The cluster, where configs of nodes are meant."""
    others = any(one["resource_type"] not in (_TOPIC, _GROUP) for one in needs.request["resources"])
    return (CLUSTER_NAME,) if others else ()


def _check_access(exchange: Exchange, operation: AccessOperation, resource: Message) -> None:
    """Raise the refusal of an operation on a resource other than a topic; topics are refused with their names."""
    if resource["resource_type"] == _GROUP:
        exchange.admitted.check(Access(operation, ResourceType.GROUP), resource["resource_name"])
    elif resource["resource_type"] != _TOPIC:
        exchange.admitted.check(Access(operation, ResourceType.CLUSTER), CLUSTER_NAME)


# -- describing ---------------------------------------------------------------------------------------


def handle_describe_configs(context: Context, exchange: Exchange) -> None:
    """The configs of resources, with where their values come from."""
    request = exchange.message()
    results: list[Message] = []
    room = context.response_budget()
    for resource in request["resources"]:
        answer: dict[str, Any] = {
            "resource_type": resource["resource_type"],
            "resource_name": resource["resource_name"],
            "configs": (),
        }
        try:
            room.check()
            _check_access(exchange, AccessOperation.DESCRIBE_CONFIGS, resource)
            found = _resource(resource).describe(context, exchange.admitted.topics, resource["resource_name"])
            # As in Apache Kafka, no key at all stands for every one.
            keys = resource["configuration_keys"]
            shown = [_shown(config, request) for config in found if not keys or config.name in keys]
            room.take(shown)
            answer["configs"] = shown
        except DuramenError as error:
            answer |= {"error_code": error_code(error), "error_message": str(error)}
        results.append(answer)
    exchange.reply({"results": results})


def _shown(config: DescribedConfig, request: Message) -> Message:
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": config.sensitive,
        "synonyms": [
            {"name": name, "value": value, "source": source}
            for name, value, source in (config.synonyms if request["include_synonyms"] else ())
        ],
        "config_type": config.type,
        "documentation": config.doc if request["include_documentation"] else None,
    }


# -- changing -----------------------------------------------------------------------------------------


def handle_alter_configs(context: Context, exchange: Exchange) -> None:
    """Give resources other configs: those that are not named go back to their defaults."""
    _alter(context, exchange, lambda resource: [_set(entry) for entry in resource["configs"]], whole=True)


def handle_incremental_alter_configs(context: Context, exchange: Exchange) -> None:
    """Change configs of resources, and leave the others alone (KIP-339)."""
    _alter(context, exchange, lambda resource: [_change(entry) for entry in resource["configs"]], whole=False)


def _alter(context: Context, exchange: Exchange, changes_of: Changes, *, whole: bool) -> None:
    request = exchange.message()
    resources = request["resources"]
    named = Counter((resource["resource_type"], resource["resource_name"]) for resource in resources)
    put = gather(len(resources), lambda answers: exchange.reply({"responses": answers}))

    def finish(at: int, error: DuramenError | None) -> None:
        answer = {"resource_type": resources[at]["resource_type"], "resource_name": resources[at]["resource_name"]}
        put(at, answer | {"error_code": error_code(error), "error_message": None if error is None else str(error)})

    for at, resource in enumerate(resources):
        kind, name = resource["resource_type"], resource["resource_name"]
        done = partial(finish, at)
        try:
            if named[kind, name] > 1:
                raise RequestInvalid(f"{name} is named more than once")
            changes = _distinct(changes_of(resource))
            alteration = Alteration(name, changes, whole, request["validate_only"])
            _check_access(exchange, AccessOperation.ALTER_CONFIGS, resource)
            _resource(resource).alter(context.broker, exchange.admitted.topics, alteration, done)
        except DuramenError as error:
            done(error)


def _distinct(changes: list[ResourceChange]) -> list[ResourceChange]:
    if len({change.name for change in changes}) < len(changes):
        raise RequestInvalid("a config is named more than once")
    return changes


def _set(entry: Message) -> ResourceChange:
    if entry["value"] is None:
        raise RequestInvalid(f"{entry['name']} has no value")
    return ResourceChange(entry["name"], "set", entry["value"])


def _change(entry: Message) -> ResourceChange:
    name, number = entry["name"], entry["config_operation"]
    if not 0 <= number < len(_OPERATIONS):
        raise RequestInvalid(f"there is no operation {number}")
    operation = _OPERATIONS[number]
    if operation == "delete":
        return ResourceChange(name, operation, None)
    return _set(entry)._replace(operation=operation)
