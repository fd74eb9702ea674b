from hypothesis import given
from hypothesis import strategies as st

from duramen.demo.digest import FINGERPRINT_BYTES, digest_of, fingerprint

FLIGHTS = st.lists(st.binary(min_size=FINGERPRINT_BYTES, max_size=FINGERPRINT_BYTES), max_size=20)


@given(FLIGHTS.flatmap(lambda flights: st.tuples(st.just(flights), st.permutations(flights))))
def test_the_order_does_not_matter(orders: tuple[list[bytes], list[bytes]]) -> None:
    assert digest_of(orders[0]) == digest_of(orders[1])


@given(FLIGHTS, st.binary(min_size=FINGERPRINT_BYTES, max_size=FINGERPRINT_BYTES).filter(any))
def test_one_more_is_noticed_even_if_it_was_there_before(flights: list[bytes], more: bytes) -> None:
    digests = {digest_of(flights), digest_of([*flights, more]), digest_of([*flights, more, more])}
    assert len(digests) == 3 - (int.from_bytes(more) == 1 << 127)  # which is its own opposite


def test_of_nothing() -> None:
    assert digest_of([]) == "0" * 32


def test_everything_about_a_flight_is_in_its_fingerprint() -> None:
    flights = [(b"1", b"a.b", b"{}"), (b"2", b"a.b", b"{}"), (b"1", b"a.c", b"{}"), (b"1", b"a.b", b"{ }")]
    fingerprints = [fingerprint(*flight) for flight in flights]
    assert len(set(fingerprints)) == len(flights)
    assert {len(one) for one in fingerprints} == {FINGERPRINT_BYTES}
