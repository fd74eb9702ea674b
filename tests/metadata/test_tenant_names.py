"""Names of tenants are reserved in the metadata: no stream, live topic or queue is called as their topics are."""

import pytest

from duramen.base.errors import ConfigInvalid, DuramenError, InventoryNameInvalid, NameInvalid, RequestInvalid
from duramen.base.ids import new_stream_id
from duramen.metadata.decisions import Definition, configure_stream, create_stream
from duramen.metadata.events import FeatureLevelChanged
from duramen.metadata.features import MetadataFeature
from duramen.metadata.snapshot import decode_snapshot, encode_snapshot
from duramen.metadata.state import ControllerState
from duramen.metadata.tenant_names import release_tenant, reserve_tenant


def cluster(level: int = MetadataFeature.INVENTORY) -> ControllerState:
    state = ControllerState()
    state.apply(FeatureLevelChanged(level))
    return state


def create(state: ControllerState, name: str, **config: str) -> None:
    id_ = new_stream_id(name.encode().ljust(16, b"-")[:16])
    for event in create_stream(state, Definition(name, 1, config), stream_id=id_, now_ms=1):
        state.apply(event)


def reserve(state: ControllerState, account: str, tenant: str) -> int:
    for event in reserve_tenant(state, account, tenant):
        state.apply(event)
    return state.tenant_names[account, tenant]


def release(state: ControllerState, account: str, tenant: str, number: int) -> None:
    for event in release_tenant(state, account, tenant, number):
        state.apply(event)


@pytest.mark.parametrize(
    ("name", "config", "error"),
    [
        ("acme.prod.orders", {}, NameInvalid),
        ("space", {"kind": "queues", "queue.topic.prefix": "acme.q."}, ConfigInvalid),
        ("space", {"kind": "queues", "queue.topic.prefix": "ac"}, ConfigInvalid),
        ("keyed", {"keyed": "true", "keyed.live.topic": "acme.prod.live"}, ConfigInvalid),
    ],
)
def test_a_stream_hides_no_topic_of_a_tenant_nor_a_tenant_a_stream(
    name: str, config: dict[str, str], error: type[DuramenError]
) -> None:
    state = cluster()
    reserve(state, "default", "acme")
    with pytest.raises(error):
        create(state, name, **config)
    create(state, "acme.orders")
    state = cluster()
    create(state, name, **config)
    with pytest.raises(InventoryNameInvalid):
        reserve(state, "default", "acme")
    reserve(state, "default", "bolt")


def test_a_config_that_would_hide_topics_is_refused() -> None:
    state = cluster()
    create(state, "space", kind="queues")
    reserve(state, "other", "acme")
    with pytest.raises(ConfigInvalid):
        configure_stream(state, "space", {"queue.topic.prefix": "acme."})
    configure_stream(state, "space", {"queue.topic.prefix": "acme2."})


def test_a_release_is_of_one_reservation() -> None:
    state = cluster()
    first, of_other = reserve(state, "default", "acme"), reserve(state, "other", "acme")
    second = reserve(state, "default", "acme")
    assert len({first, of_other, second}) == 3
    release(state, "default", "acme", first)
    assert state.is_tenant("acme")
    release(state, "default", "acme", second)
    assert state.is_tenant("acme")
    release(state, "other", "acme", of_other)
    assert not state.is_tenant("acme")
    create(state, "acme.prod.orders")
    again = decode_snapshot(encode_snapshot(state))
    assert (again.next_reservation, dict(again.tenant_names)) == (state.next_reservation, {})


def test_no_name_is_reserved_before_the_cluster_is_upgraded() -> None:
    with pytest.raises(RequestInvalid, match="duramen cluster upgrade"):
        reserve_tenant(cluster(MetadataFeature.QUEUES), "default", "acme")
