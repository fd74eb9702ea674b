"""Where percentiles stand on the axis, and that there is a picture of whatever was measured."""

from pathlib import Path

import pytest

from duramen.bench.latency import LatencyCell
from duramen.bench.load.percentiles import Latencies
from duramen.bench.report.plot import CurvePoint, nines, plot_curves, plot_latency


def test_each_nine_is_as_far_as_the_one_before() -> None:
    assert [nines(percentile) for percentile in (0, 90, 99, 99.9)] == pytest.approx([1, 10, 100, 1000])


@pytest.mark.parametrize("samples", [1, 15, 2000])
def test_a_picture_of_few_samples_and_of_many(tmp_path: Path, samples: int) -> None:
    runs = [Latencies(range(100, 100 + samples))]
    cells = [LatencyCell(name, "kafka", size, runs) for size in (100, 2000, 3000) for name in ("one", "other")]
    plot_latency(cells, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_curves_names_them_and_is_the_same_again(tmp_path: Path) -> None:
    points = [CurvePoint(1000, 900.0, 400.0, 5.0), CurvePoint(2000, 800.0, 480.0, None)]
    for name in ("one.svg", "two.svg"):
        plot_curves({"Duramen": points[:1], "Apache Kafka": points, "nobody": []}, tmp_path / name)
    picture = (tmp_path / "one.svg").read_text()
    assert all(name in picture for name in ("Duramen", "Apache Kafka", "topics created a second"))
    assert picture == (tmp_path / "two.svg").read_text()
