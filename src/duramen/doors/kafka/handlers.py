"""The handler of each API, with its admission rules: names to resolve, and operations to authorize.

Operations and resources are those of Kafka's own table:
https://kafka.apache.org/documentation/#operations_resources_and_protocols
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.admin import configs, logdirs, metadata, quorum, quotas, topics
from duramen.doors.kafka.admin import reassignment as reassigning
from duramen.doors.kafka.admin import topic_pages as paging
from duramen.doors.kafka.groups import admin as group_admin
from duramen.doors.kafka.groups import classic as groups
from duramen.doors.kafka.groups import consumer as consumer_groups
from duramen.doors.kafka.groups import offsets as group_offsets
from duramen.doors.kafka.groups import share as share_groups
from duramen.doors.kafka.groups import share_fetch as shares
from duramen.doors.kafka.groups.named_partitions import used_before
from duramen.doors.kafka.records import delete_records as deleting
from duramen.doors.kafka.records import fetch, offsets, produce, transactions
from duramen.doors.kafka.records import query_batches as batches
from duramen.doors.kafka.request.rules import ApiHandler, ApiNeeds, group, groups_named, topics_named, transactional_id
from duramen.service.admission import LONGEST_RESOLUTION_MS, AdmissionRules, Need, Refuses, cluster
from duramen.service.authorize import Access, Operation, ResourceType

__all__ = ["HANDLERS"]

_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE = Operation.ALTER, Operation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_CREATE_IN_CLUSTER: Final = Access(_CREATE, ResourceType.CLUSTER)
_DESCRIBE_CLUSTER: Final = Access(_DESCRIBE, ResourceType.CLUSTER)
_WRITE_TOPICS: Final = Access(_WRITE, ResourceType.TOPIC)


def _of(array: str, field: str = "name") -> Callable[[ApiNeeds], Sequence[str]]:
    """Finds names in an array of the request."""
    return lambda needs: [one[field] for one in needs.request[array] or ()]


def _list(field: str) -> Callable[[ApiNeeds], Sequence[str]]:
    """Finds names in a list of the request."""

    def names(needs: ApiNeeds) -> Sequence[str]:
        found: Sequence[str] = needs.request[field] or ()
        return found

    return names


def _one(field: str) -> Callable[[ApiNeeds], Sequence[str]]:
    return lambda needs: (needs.request[field],)


def _timeout_ms(needs: ApiNeeds) -> int:
    """While the request waits; its version may not have a timeout."""
    timeout_ms: int = needs.request["timeout_ms"] or LONGEST_RESOLUTION_MS
    return min(timeout_ms, LONGEST_RESOLUTION_MS)


def _produce_timeout_ms(needs: ApiNeeds) -> int:
    timeout_ms: int = needs.request.timeout_ms
    return min(timeout_ms, LONGEST_RESOLUTION_MS)


def _configs(operation: Operation, *, only_reads: bool = False) -> AdmissionRules[ApiNeeds]:
    """Each resource in these requests has its type."""
    return AdmissionRules(
        topics_named(operation, configs.topic_names),
        groups_named(operation, configs.group_names),
        Need(Access(operation, ResourceType.CLUSTER), configs.cluster_names, Refuses.ENTRY),
        only_reads=only_reads,
    )


HANDLERS: Final[Mapping[ApiKey, ApiHandler]] = {
    ApiKey.PRODUCE: ApiHandler(
        produce.handle_produce,
        AdmissionRules(
            transactional_id(_WRITE, produce.transactional_ids), topics_named(_WRITE, produce.names),
            within_ms=_produce_timeout_ms,
        ),
        produce.decode,
    ),
    ApiKey.FETCH: ApiHandler(
        fetch.handle_fetch,
        AdmissionRules(topics_named(_READ, fetch.names), within_ms=fetch.resolved_within_ms, only_reads=True),
        fetch.decode,
    ),
    ApiKey.LIST_OFFSETS: ApiHandler(
        offsets.handle_list_offsets,
        AdmissionRules(topics_named(_DESCRIBE, _of("topics")), within_ms=_timeout_ms, only_reads=True),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiHandler(
        offsets.handle_offset_for_leader_epoch,
        AdmissionRules(topics_named(_DESCRIBE, _of("topics", "topic")), only_reads=True),
    ),
    ApiKey.METADATA: ApiHandler(
        metadata.handle_metadata,
        AdmissionRules(
            topics_named(_DESCRIBE, metadata.names),
            topics_named(_DESCRIBE, metadata.listed, Refuses.ENTRY),
            topics_named(_CREATE, metadata.absent_names, Refuses.ENTRY, _CREATE_IN_CLUSTER),
            cluster(_DESCRIBE, Refuses.ENTRY),
            names=metadata.listed_light, only_reads=True,
        ),
        metadata.decode_metadata,
    ),
    ApiKey.API_VERSIONS: ApiHandler(
        metadata.handle_api_versions, AdmissionRules(open_because="a client asks for it before it authenticates")
    ),
    ApiKey.DESCRIBE_CLUSTER: ApiHandler(
        metadata.handle_describe_cluster, AdmissionRules(cluster(_DESCRIBE, Refuses.ENTRY))
    ),
    ApiKey.FIND_COORDINATOR: ApiHandler(
        groups.handle_find_coordinator,
        AdmissionRules(
            groups_named(_DESCRIBE, groups.found_groups),
            transactional_id(_DESCRIBE, groups.found_transactional_ids, Refuses.ENTRY),
            cluster(Operation.CLUSTER_ACTION, Refuses.ENTRY),
        ),
    ),
    ApiKey.JOIN_GROUP: ApiHandler(groups.handle_join_group, AdmissionRules(group(_READ))),
    ApiKey.SYNC_GROUP: ApiHandler(groups.handle_sync_group, AdmissionRules(group(_READ))),
    ApiKey.HEARTBEAT: ApiHandler(groups.handle_heartbeat, AdmissionRules(group(_READ))),
    ApiKey.LEAVE_GROUP: ApiHandler(groups.handle_leave_group, AdmissionRules(group(_READ))),
    ApiKey.OFFSET_COMMIT: ApiHandler(
        group_offsets.handle_offset_commit,
        AdmissionRules(group(_READ), topics_named(_READ, _of("topics")), names=used_before, only_reads=True),
    ),
    ApiKey.OFFSET_FETCH: ApiHandler(
        group_offsets.handle_offset_fetch,
        AdmissionRules(
            groups_named(_DESCRIBE, group_offsets.fetched_groups),
            topics_named(_DESCRIBE, group_offsets.fetched_topics, Refuses.ENTRY),
            names=group_offsets.fetched_topics, only_reads=True,
        ),
    ),
    ApiKey.OFFSET_DELETE: ApiHandler(
        group_offsets.handle_offset_delete,
        AdmissionRules(group(_DELETE), topics_named(_READ, _of("topics")), only_reads=True),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiHandler(
        consumer_groups.handle_consumer_group_heartbeat,
        AdmissionRules(
            group(_READ), topics_named(_DESCRIBE, _list("subscribed_topic_names"), Refuses.REQUEST), only_reads=True
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiHandler(
        consumer_groups.handle_consumer_group_describe, AdmissionRules(groups_named(_DESCRIBE, _list("group_ids")))
    ),
    ApiKey.LIST_GROUPS: ApiHandler(
        group_admin.handle_list_groups, AdmissionRules(groups_named(_DESCRIBE, group_admin.listed, _DESCRIBE_CLUSTER))
    ),
    ApiKey.DESCRIBE_GROUPS: ApiHandler(
        group_admin.handle_describe_groups, AdmissionRules(groups_named(_DESCRIBE, _list("groups")))
    ),
    ApiKey.DELETE_GROUPS: ApiHandler(
        group_admin.handle_delete_groups, AdmissionRules(groups_named(_DELETE, _list("groups_names")))
    ),
    ApiKey.CREATE_TOPICS: ApiHandler(
        topics.handle_create_topics,
        AdmissionRules(topics_named(_CREATE, _of("topics"), Refuses.ENTRY, _CREATE_IN_CLUSTER)),
    ),
    ApiKey.DELETE_TOPICS: ApiHandler(
        topics.handle_delete_topics, AdmissionRules(topics_named(_DELETE, topics.deleted), within_ms=_timeout_ms)
    ),
    ApiKey.DELETE_RECORDS: ApiHandler(
        deleting.handle_delete_records, AdmissionRules(topics_named(_DELETE, _of("topics")), within_ms=_timeout_ms)
    ),
    ApiKey.ALTER_CONFIGS: ApiHandler(configs.handle_alter_configs, _configs(_ALTER_CONFIGS)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiHandler(
        logdirs.handle_alter_replica_log_dirs, AdmissionRules(cluster(_ALTER, Refuses.ENTRY), names=logdirs.moved)
    ),
    ApiKey.DESCRIBE_LOG_DIRS: ApiHandler(
        logdirs.handle_describe_log_dirs, AdmissionRules(cluster(_DESCRIBE), names=logdirs.named)
    ),
    ApiKey.CREATE_PARTITIONS: ApiHandler(
        topics.handle_create_partitions, AdmissionRules(topics_named(_ALTER, _of("topics")), within_ms=_timeout_ms)
    ),
    ApiKey.INIT_PRODUCER_ID: ApiHandler(
        transactions.handle_init_producer_id,
        AdmissionRules(
            transactional_id(_WRITE, transactions.initialised_ids),
            # As in Apache Kafka, a client that may write to some topic may do so idempotently (KIP-679).
            Need(
                Access(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), transactions.idempotent_only,
                Refuses.REQUEST, (_WRITE_TOPICS,),
            ),
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiHandler(
        transactions.handle_add_partitions_to_txn,
        AdmissionRules(
            transactional_id(_WRITE, _one("v3_and_below_transactional_id")),
            topics_named(_WRITE, _of("v3_and_below_topics")),
        ),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiHandler(
        transactions.handle_add_offsets_to_txn,
        AdmissionRules(transactional_id(_WRITE, _one("transactional_id")), group(_READ)),
    ),
    ApiKey.END_TXN: ApiHandler(
        transactions.handle_end_txn, AdmissionRules(transactional_id(_WRITE, _one("transactional_id")))
    ),
    ApiKey.TXN_OFFSET_COMMIT: ApiHandler(
        transactions.handle_txn_offset_commit,
        AdmissionRules(
            transactional_id(_WRITE, _one("transactional_id")), group(_READ), topics_named(_READ, _of("topics")),
            names=used_before, only_reads=True,
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: ApiHandler(
        transactions.handle_describe_producers, AdmissionRules(topics_named(_READ, _of("topics")))
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiHandler(
        transactions.handle_describe_transactions,
        AdmissionRules(
            transactional_id(_DESCRIBE, _list("transactional_ids"), Refuses.ENTRY),
            topics_named(_DESCRIBE, transactions.described_topics, Refuses.ENTRY),
        ),
    ),
    ApiKey.LIST_TRANSACTIONS: ApiHandler(
        transactions.handle_list_transactions,
        AdmissionRules(transactional_id(_DESCRIBE, transactions.listed_ids, Refuses.ENTRY)),
    ),
    ApiKey.DESCRIBE_CONFIGS: ApiHandler(
        configs.handle_describe_configs, _configs(_DESCRIBE_CONFIGS, only_reads=True)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiHandler(
        configs.handle_incremental_alter_configs, _configs(_ALTER_CONFIGS)
    ),
    ApiKey.ELECT_LEADERS: ApiHandler(reassigning.handle_elect_leaders, AdmissionRules(cluster(_ALTER))),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiHandler(
        reassigning.handle_alter_partition_reassignments, AdmissionRules(cluster(_ALTER))
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiHandler(
        reassigning.handle_list_partition_reassignments, AdmissionRules(cluster(_DESCRIBE))
    ),
    ApiKey.DESCRIBE_QUORUM: ApiHandler(quorum.handle_describe_quorum, AdmissionRules(cluster(_DESCRIBE))),
    ApiKey.UNREGISTER_BROKER: ApiHandler(quorum.handle_unregister_broker, AdmissionRules(cluster(_ALTER))),
    ApiKey.ADD_RAFT_VOTER: ApiHandler(quorum.handle_add_raft_voter, AdmissionRules(cluster(_ALTER))),
    ApiKey.REMOVE_RAFT_VOTER: ApiHandler(quorum.handle_remove_raft_voter, AdmissionRules(cluster(_ALTER))),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiHandler(
        quotas.handle_describe_client_quotas, AdmissionRules(cluster(_DESCRIBE_CONFIGS))
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiHandler(quotas.handle_alter_client_quotas, AdmissionRules(cluster(_ALTER_CONFIGS))),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiHandler(
        paging.handle_describe_topic_partitions,
        AdmissionRules(
            topics_named(_DESCRIBE, paging.names), topics_named(_DESCRIBE, paging.listed, Refuses.ENTRY),
            only_reads=True,
        ),
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiHandler(
        share_groups.handle_share_group_heartbeat,
        AdmissionRules(group(_READ), topics_named(_DESCRIBE, _list("subscribed_topic_names"), Refuses.REQUEST)),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiHandler(
        share_groups.handle_share_group_describe, AdmissionRules(groups_named(_DESCRIBE, _list("group_ids")))
    ),
    ApiKey.SHARE_FETCH: ApiHandler(
        shares.handle_share_fetch, AdmissionRules(group(_READ), topics_named(_READ, shares.topic_ids))
    ),
    ApiKey.SHARE_ACKNOWLEDGE: ApiHandler(
        shares.handle_share_acknowledge, AdmissionRules(group(_READ), topics_named(_READ, shares.topic_ids))
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiHandler(
        share_groups.handle_describe_share_group_offsets,
        AdmissionRules(
            groups_named(_DESCRIBE, _of("groups", "group_id")), topics_named(_DESCRIBE, share_groups.offset_topics)
        ),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiHandler(
        share_groups.handle_alter_share_group_offsets,
        AdmissionRules(group(_READ), topics_named(_READ, _of("topics", "topic_name"))),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiHandler(
        share_groups.handle_delete_share_group_offsets,
        AdmissionRules(group(_DELETE), topics_named(_READ, _of("topics", "topic_name"))),
    ),
    # Duramen's own: a query's transactional ids begin with its id.
    ApiKey.BEGIN_BATCH: ApiHandler(
        batches.handle_begin_batch, AdmissionRules(transactional_id(_WRITE, _one("query_id")))
    ),
    ApiKey.DECIDE_BATCH: ApiHandler(
        batches.handle_decide_batch, AdmissionRules(transactional_id(_WRITE, _one("query_id")))
    ),
}  # fmt: skip
