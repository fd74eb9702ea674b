"""The broker's own streams: made once, and who asked first goes on first."""

from collections.abc import Callable
from types import SimpleNamespace

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DuramenError, StorageFull
from duramen.base.settings import Settings
from duramen.metadata.decisions import Definition
from duramen.service.internal_streams import InternalStreams

Done = Callable[[DuramenError | None], None]


class Creating:
    def __init__(self) -> None:
        self.asked: list[Done] = []
        self.keeper = SimpleNamespace(ready=False)
        keeper = self.keeper
        self.streams = InternalStreams(
            self._create, Settings(BROKER), keeper, keeper, keeper, keeper, keeper, lambda _, done: done(None)
        )

    def _create(self, definition: Definition, done: Done, *, idempotent: bool) -> None:
        assert idempotent
        assert definition.internal
        self.asked.append(done)


def test_who_asks_while_the_stream_is_there_and_others_wait_goes_behind_them() -> None:
    creating = Creating()
    order: list[str] = []

    def first(_: DuramenError | None) -> None:
        order.append("first")
        creating.streams.ensure_offsets(lambda _: order.append("because of the first"))

    creating.streams.ensure_offsets(first)
    creating.streams.ensure_offsets(lambda _: order.append("second"))
    creating.keeper.ready = True
    creating.streams.ensure_offsets(lambda _: order.append("third"))
    assert order == []
    assert len(creating.asked) == 1
    creating.asked[0](None)
    creating.streams.ensure_offsets(lambda _: order.append("last"))
    assert order == ["first", "second", "third", "because of the first", "last"]


def test_an_error_is_for_all_who_wait_and_who_comes_later_asks_again() -> None:
    creating = Creating()
    errors: list[DuramenError | None] = []
    for _ in range(2):
        creating.streams.ensure_transactions(errors.append)
    full = StorageFull("no room")
    creating.asked[0](full)
    assert errors == [full, full]
    creating.streams.ensure_transactions(errors.append)
    creating.asked[1](None)
    assert errors[2] is None


def test_share_groups_need_the_stream_of_groups_first() -> None:
    creating = Creating()
    errors: list[DuramenError | None] = []
    creating.streams.ensure_shares(errors.append)
    creating.asked[0](None)
    assert errors == []
    creating.asked[1](None)
    assert errors == [None]
    creating.streams.ensure_shares(errors.append)
    full = StorageFull("no room")
    creating.asked[2](full)
    assert errors[1] is full
