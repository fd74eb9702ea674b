"""Creates and deletes streams, and changes their configs, through the Kafka door."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from duramen.client.answers import failure
from duramen.client.cluster import BrokerCluster
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["StreamAdmin"]

_TOPIC: Final = 2  # the resource type
_SET: Final = 0  # the operation on a config


class StreamAdmin:
    """Creates, changes and deletes streams of a cluster."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster

    def create_stream(self, name: str, partitions: int = -1, config: Mapping[str, str] | None = None) -> None:
        """Create a stream; -1 partitions: as many as the broker's default. Raises StreamExists, NameInvalid …"""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        }
        self._change(ApiKey.CREATE_TOPICS, {"topics": [topic]}, "topics", f"creating {name}")

    def delete_stream(self, name: str) -> None:
        """Delete a stream with its records. Raises StreamNotFound …"""
        self._change(
            ApiKey.DELETE_TOPICS,
            {"topics": [{"name": name}], "topic_names": [name]},
            "responses",
            f"deleting {name}",
        )
        self._cluster.forget([name])

    def stream_configs(self, name: str, keys: Sequence[str] | None = None) -> dict[str, str | None]:
        """The configs of a stream, those of `keys` or all, as text. Raises StreamNotFound or ServerUnreachable."""
        return self.configs_of([name], keys)[name]

    def configs_of(self, names: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, dict[str, str | None]]:
        """The configs of several streams. Raises as `stream_configs`."""
        resources = [{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": keys} for name in names]
        found = {}
        for answer in self._cluster.ask(ApiKey.DESCRIBE_CONFIGS, {"resources": resources})["results"]:
            name = answer["resource_name"]
            if answer["error_code"] != ErrorCode.NONE:
                raise failure(answer["error_code"], f"the configs of {name}", answer["error_message"])
            found[name] = {config["name"]: config["value"] for config in answer["configs"]}
        return found

    def set_stream_configs(self, name: str, values: Mapping[str, str]) -> None:
        """Change some configs of a stream. Raises ConfigInvalid, StreamNotFound, ServerUnreachable …"""
        configs = [{"name": key, "config_operation": _SET, "value": value} for key, value in values.items()]
        resource = {"resource_type": _TOPIC, "resource_name": name, "configs": configs}
        message = {"resources": [resource], "validate_only": False}
        for one in self._cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, message)["responses"]:
            if one["error_code"] != ErrorCode.NONE:
                raise failure(one["error_code"], f"the configs of {name}", one["error_message"])

    def _change(self, api: ApiKey, message: dict[str, Any], answers: str, what: str) -> None:
        timeout_s = self._cluster.timeout_s
        # Not asked twice: the first might have been done although its answer was lost.
        reply: Message = self._cluster.anyone().request(
            api, message | {"timeout_ms": int(1000 * timeout_s)}, wait_s=timeout_s
        )
        for one in reply[answers]:
            if one["error_code"] != ErrorCode.NONE:
                raise failure(one["error_code"], what, one["error_message"])
