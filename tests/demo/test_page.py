import base64
from html.parser import HTMLParser
from pathlib import Path

from duramen.demo import chart, page
from duramen.demo.delays import Grid

GRID = Grid(("AA", "B6"), (5, 17), ((-2.04, 48.26), (None, 7.0)))
AIRLINES = {"AA": "American <Airlines>", "B6": "JetBlue"}


class _Read(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.pictures: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        if tag == "td":
            self.cells.append("")
        elif tag == "img":
            self.pictures.append(dict(attrs)["src"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open.removesuffix(tag)

    def handle_data(self, data: str) -> None:
        if self._open == "td":
            self.cells[-1] += data


def test_the_page_holds_the_figures_and_the_picture() -> None:
    reader = _Read()
    reader.feed(page.render(GRID, AIRLINES, [("published", "5 < 6")], b"picture"))
    assert reader.cells == ["American <Airlines>", "-2.0", "48.3", "JetBlue", "", "7.0"]
    assert [base64.b64decode(one.partition(",")[2]) for one in reader.pictures] == [b"picture"]


def test_the_chart_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    chart.draw(GRID, AIRLINES, path)
    assert path.read_bytes().startswith(b"\x89PNG")
