"""Rates and waits against plain models, and whose quota counts for whom."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.settings import Settings
from duramen.broker.quotas import ANONYMOUS, Quotas, RateWindows
from duramen.metadata.quotas import CONSUMER_RATE, PRODUCER_RATE
from duramen.metadata.state import Entity

STEPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 100_000)), max_size=60)


@given(steps=STEPS, count=st.integers(1, 12), window_ms=st.sampled_from([10, 1000, 2500]))
def test_a_rate_is_what_came_in_the_windows_that_count(
    steps: list[tuple[int, int]], count: int, window_ms: int
) -> None:
    rates, windows, now_ms = RateWindows(count, window_ms), list[tuple[int, int]](), 5_000
    for later_ms, amount in steps:
        now_ms += later_ms
        windows = [(start, total) for start, total in windows if now_ms - start < count * window_ms]
        if not windows or now_ms - windows[-1][0] >= window_ms:
            windows.append((now_ms, 0))
        windows[-1] = windows[-1][0], windows[-1][1] + amount
        rates.record(now_ms, amount)
        elapsed_ms = now_ms - windows[0][0]
        span_ms = max(1, elapsed_ms + max(0, count - 1 - elapsed_ms // window_ms) * window_ms)
        assert rates.span_ms(now_ms) == span_ms
        assert rates.rate(now_ms) == pytest.approx(1000 * sum(total for _, total in windows) / span_ms)
        assert len(windows) <= count
        wait_ms = rates.wait_ms(now_ms, 500)
        assert (wait_ms > 0) <= (rates.rate(now_ms) > 500)
        # So long that the same total over a span that is longer by it is the bound.
        if wait_ms:
            total = sum(total for _, total in windows)
            assert 1000 * total / (span_ms + wait_ms) == pytest.approx(500, rel=0.6 / wait_ms + 0.01)


@given(
    bound=st.integers(1, 100_000), sizes=st.lists(st.integers(1, 200_000), min_size=1, max_size=5),
    seed=st.integers(0, 1 << 30),
)  # fmt: skip
def test_who_waits_as_told_is_not_faster_than_the_quota(bound: int, sizes: list[int], seed: int) -> None:
    quotas = Quotas(Settings(BROKER))
    quotas.update({(("client-id", "c"),): {PRODUCER_RATE: float(bound)}})
    chance, began_ms, now_ms, sent = random.Random(seed), 1000, 1000, 0
    for _ in range(100):
        size = chance.choice(sizes)
        sent += size
        now_ms += quotas.produced("c", size, now_ms) + chance.randint(0, 30)
    # As Apache Kafka's: what fits into all windows is free, and windows are forgotten whole. Requests of twice
    # that size come through at nearly twice the rate; smaller and larger ones at about the rate.
    assert sent <= bound * (2 * (now_ms - began_ms) / 1000 + 11) + max(sizes)
    if max(sizes) <= bound:
        assert sent <= bound * (1.2 * (now_ms - began_ms) / 1000 + 11) + max(sizes)


def test_without_quotas_nobody_waits() -> None:
    quotas = Quotas(Settings(BROKER))
    assert quotas.produced("c", 1 << 40, 0) == quotas.consumed("c", 1 << 40, 0) == 0
    assert quotas.largest_answer("c") is None


def test_an_answer_that_is_refused_is_not_counted() -> None:
    quotas = Quotas(Settings(BROKER))
    quotas.update({(("user", None),): {CONSUMER_RATE: 1000.0}})
    assert quotas.largest_answer("c") == 10_000
    assert quotas.consumed("c", 9000, 0) == 0
    refused_ms = quotas.consumed("c", 2000, 0)
    assert refused_ms == quotas.consumed("c", 2000, 0) == 1000
    assert quotas.consumed("c", 1000, 0) == 0


def test_an_answer_larger_than_all_windows_goes_out_alone() -> None:
    quotas = Quotas(Settings(BROKER))
    quotas.update({(("client-id", None),): {CONSUMER_RATE: 10.0}})
    assert quotas.consumed("c", 1_000_000, 0) == 0
    assert quotas.consumed("c", 1_000_000, 10_000) > 0
    assert quotas.consumed("c", 1_000_000, 11_000) == 0


USER, OTHER = ("user", ANONYMOUS), ("user", "somebody")
ANY_USER, ANY_CLIENT, CLIENT = ("user", None), ("client-id", None), ("client-id", "c")
# Kafka's order, the nearest first, and whether the rate is the user's as a whole (all of its clients together).
ORDER: list[tuple[Entity, bool]] = [
    ((CLIENT, USER), False),
    ((ANY_CLIENT, USER), False),
    ((USER,), True),
    ((CLIENT, ANY_USER), False),
    ((ANY_CLIENT, ANY_USER), False),
    ((ANY_USER,), True),
    ((CLIENT,), False),
    ((ANY_CLIENT,), False),
]


@given(present=st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_nearest_quota_counts(present: set[int]) -> None:
    quotas = Quotas(Settings(BROKER))
    bounds: dict[Entity, dict[str, float]] = {ORDER[at][0]: {PRODUCER_RATE: 1000.0 * (at + 1)} for at in present}
    quotas.update(bounds | {(OTHER,): {PRODUCER_RATE: 1.0}, (("client-id", "other"), USER): {CONSUMER_RATE: 1.0}})
    total = 10_000_000
    wait_ms = quotas.produced("c", total, 0)
    if not present:
        assert wait_ms == 0
        return
    nearest = min(present)
    bound = 1000.0 * (nearest + 1)
    assert wait_ms == pytest.approx((total / 10 - bound) / bound * 10_000, abs=1)
    # Another client shares the rate of the user, and has one of its own otherwise.
    shared = [at for at in present if CLIENT not in ORDER[at][0]]
    again_ms = quotas.produced("another", total, 0)
    if shared and ORDER[min(shared)][1] and min(shared) == nearest:
        assert again_ms > wait_ms
    elif shared:
        other = 1000.0 * (min(shared) + 1)
        assert again_ms == pytest.approx((total / 10 - other) / other * 10_000, abs=1)


def test_what_is_remembered_of_clients_is_bounded() -> None:
    quotas = Quotas(Settings(BROKER))
    quotas.update({(("client-id", None),): {PRODUCER_RATE: 1.0}})
    for number in range(25_000):
        quotas.produced(f"client {number}", 1, number // 10)
    assert quotas.remembered <= 10_000
    assert math.isclose(quotas.produced("client 24999", 1_000_000, 2500), 999_990_010, rel_tol=0.01)


def test_a_wait_fits_where_clients_are_told_of_it() -> None:
    rates = RateWindows(11, 1000)
    rates.record(0, 1 << 40)
    assert rates.wait_ms(0, 1e-9) == (1 << 31) - 1
