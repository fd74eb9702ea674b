"""What the resolver of a node's streams knows at any time."""

from duramen.base.principal import ANONYMOUS, Principal
from duramen.service.admission import NOTHING_NEEDED, AdmissionRules, Service
from duramen.service.authorize import Access
from duramen.service.resolve import StreamResolver
from duramen.sim.broker import ManualBroker


class _Everything:
    """An authorizer that is asked, and allows all."""

    def allows(self, principal: Principal, access: Access, name: str | None) -> bool:
        del principal, access, name
        return True


def test_streams_are_known_by_name_and_id_as_they_come_and_go() -> None:
    manual = ManualBroker()
    known = StreamResolver(manual.broker.streams).all_known
    assert known.get("a") is None
    stream = manual.create("a")
    assert known["a"] is known[stream.id] is stream
    manual.delete("a")
    again = manual.create("a")
    assert known.get(stream.id) is None
    assert known["a"] is known[again.id] is again


def test_requests_are_admitted_alike_only_where_nothing_is_refused() -> None:
    manual = ManualBroker()
    rules: AdmissionRules[str] = AdmissionRules(names=lambda name: (name,))
    service = Service(manual.broker)
    assert service.admit_now(ANONYMOUS, rules, "a") is service.for_all is not None
    assert service.admit_now(ANONYMOUS, AdmissionRules(), "a") is NOTHING_NEEDED
    assert Service(manual.broker, authorizer=_Everything()).for_all is None
