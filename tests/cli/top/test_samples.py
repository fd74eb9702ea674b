"""Samples of metrics, and what has happened between two of them."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.cli.top.samples import between, parse
from duramen.cli.top.screen import render

LABELS = st.dictionaries(
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]))
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(LABELS, st.floats(allow_nan=False))
def test_what_was_written_is_read(labels: dict[str, str], value: float) -> None:
    written = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    sample = parse(f"# HELP a b\n# TYPE a gauge\na{{{written}}} {value!r}\nb 1\n", 0.0)
    assert sample.values == {"a": {tuple(sorted(labels.items())): value}, "b": {(): 1.0}}


def test_a_line_break_in_a_label() -> None:
    assert parse('a{b="x\\ny"} 1 1700000000', 0.0).values == {"a": {(("b", "x\ny"),): 1.0}}


def test_rates_and_lag() -> None:
    first = parse(
        'duramen_records_in_total{stream="s"} 100\n'
        'duramen_wal_sync_seconds_bucket{le="0.001"} 10\nduramen_wal_sync_seconds_bucket{le="0.002"} 10\n'
        'duramen_wal_sync_seconds_bucket{le="+Inf"} 10\n'
        "duramen_wal_sync_seconds_count 10\nduramen_wal_sync_seconds_sum 0.005\n",
        10.0,
    )
    second = parse(
        'duramen_records_in_total{stream="s"} 300\nduramen_records_in_total{stream="new"} 50\n'
        'duramen_wal_sync_seconds_bucket{le="0.001"} 60\nduramen_wal_sync_seconds_bucket{le="0.002"} 110\n'
        'duramen_wal_sync_seconds_bucket{le="+Inf"} 110\n'
        "duramen_wal_sync_seconds_count 110\nduramen_wal_sync_seconds_sum 0.105\n"
        'duramen_group_lag_records{group="g",stream="s",partition="0"} 3\n'
        'duramen_group_lag_records{group="g",stream="s",partition="1"} 4\n'
        'duramen_group_lag_seconds{group="g",stream="s",partition="0"} 2.5\n'
        'duramen_group_lag_seconds{group="g",stream="s",partition="1"} 1\n',
        12.0,
    )
    said = between(first, second)
    assert (said["interval_s"], said["records_in_per_s"], said["records_out_per_s"]) == (2.0, 125.0, None)
    assert {one["name"]: one["records_in_per_s"] for one in said["streams"]} == {"s": 100.0, "new": 25.0}
    assert said["syncs"] == {"per_s": 50.0, "mean_ms": 1.0, "p99_ms": 1.98}
    assert said["groups"] == [{"id": "g", "stream": "s", "lag_records": 7, "lag_seconds": 2.5}]


def test_views() -> None:
    at = '{stream="s",partition="10"}'
    said = between(
        parse("", 1.0),
        parse(f"duramen_view_position{at} 7\nduramen_view_keys{at} 3\nduramen_view_bytes_per_key{at} 25.5\n", 2.0),
    )
    assert said["views"] == [
        {
            "stream": "s", "partition": 10, "keys": 3, "superseded_records": None, "oldest_snapshot": None,
            "position": 7, "lag_records": None, "memory_bytes": None, "bytes_per_key": 25,
        }
    ]  # fmt: skip
    assert "BYTES/KEY" in render(said, "here", None, None)
    assert "BYTES/KEY" not in render(between(parse("", 0.0), parse("", 1.0)), "here", None, None)


def test_a_node_that_was_started_again_counts_from_zero() -> None:
    said = between(
        parse('duramen_bytes_in_total{stream="s"} 1000', 1.0), parse('duramen_bytes_in_total{stream="s"} 10', 2.0)
    )
    assert said["bytes_in_per_s"] == 10.0


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    before = parse("duramen_wal_sync_seconds_count 0\nduramen_wal_sync_seconds_sum 0\n", 0.0)
    after = parse(
        'duramen_wal_sync_seconds_bucket{le="5.0"} 0\nduramen_wal_sync_seconds_bucket{le="+Inf"} 2\n'
        "duramen_wal_sync_seconds_count 2\nduramen_wal_sync_seconds_sum 20\n",
        1.0,
    )
    assert between(before, after)["syncs"] == {"per_s": 2.0, "mean_ms": 10000.0, "p99_ms": 5000.0}


def test_nothing_is_nothing() -> None:
    said = between(parse("", 0.0), parse("", 1.0))
    assert (said["records_in_per_s"], said["streams"], said["groups"], said["nats_connected"]) == (None, [], [], None)
