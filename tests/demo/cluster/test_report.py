from pathlib import Path

from duramen.demo.cluster import page, picture
from duramen.demo.cluster.report import ClusterDemoFigures, Outage, lines
from duramen.demo.cluster.timeline import Sight, Timeline, TimelineLayout
from duramen.demo.flights import flight_fingerprint, key_of, number_of
from duramen.demo.proof import PartitionProof

_FIGURES = ClusterDemoFigures(
    1000, [0.01, 0.02, 0.5], 10.0, [Outage(1, "killed", 0.12, 0.3, 0.2), Outage(2, "paused", None, 3.5, None)], 20.0
)


def test_the_report_fits_a_terminal() -> None:
    found = lines(_FIGURES)
    assert ("node 1", "killed: others led after 120 ms;") in found
    assert ("node 2", "paused: others led after no time that was seen;") in found
    assert found[0] == ("acknowledged", "100 flights/s (10 s), acks=all: on disk")
    assert max(len(words) for _, words in found) <= 63


def test_the_page_holds_the_story_and_the_proof() -> None:
    proofs = [PartitionProof(0, 1000, 1000, "a" * 32, "b" * 32, 0)]
    text = page.render([(1.5, "node 1 <killed>")], proofs, lines(_FIGURES), b"picture")
    for part in ("1.50 s", "node 1 &lt;killed&gt;", "1,000", "a" * 32, "b" * 32, "base64,cGljdHVyZQ=="):
        assert part in text


def test_the_timeline_is_a_picture(tmp_path: Path) -> None:
    timeline = Timeline([1, 2, 3])
    everybody = frozenset({1, 2, 3})
    timeline.see(Sight(0.0, 1, (TimelineLayout(1, 0, everybody), TimelineLayout(2, 0, everybody))))
    timeline.happen(1.0, 1, "killed", gone=True)
    timeline.see(Sight(2.0, 2, (TimelineLayout(2, 1, frozenset({2, 3})), TimelineLayout(2, 0, frozenset({2, 3})))))
    for at_s in range(5):
        timeline.count(float(at_s), 100 * at_s)
    picture.draw(timeline, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_keys_name_flights() -> None:
    assert [number_of(key_of(number)) for number in (0, 17, 336_775)] == [0, 17, 336_775]
    assert [number_of(key) for key in (None, b"", b"17", b"flight-", b"flight-x")] == [-1] * 5
    assert number_of("flight-3") == 3
    assert flight_fingerprint(1, b"{}") != flight_fingerprint(2, b"{}")
