"""`make docs`: every page is on the site, no link on it is dead, and nothing comes from elsewhere."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


class Links(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """HTMLParser: a tag begins."""
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in {"script", "img", "iframe", "source"} and given.get("src"):
            self.loads.append(given["src"])
        elif tag == "link" and given.get("href"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "tools" / "site.py"), "--build", str(build)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "site"


def address(page: Path) -> str:
    name = str(page.relative_to(ROOT)).removesuffix(".md")
    return f"{name.removesuffix('README')}index.html" if name.endswith("README") else f"{name}.html"


def test_every_page_is_there(site: Path) -> None:
    assert [address(page) for page in PAGES if not (site / address(page)).exists()] == []


def test_no_link_is_dead(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    dead = []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            missing = parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids
            if not target.exists() or missing:
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = {load for page in site.rglob("*.html") for load in Links(page).loads}
    assert sorted(load for load in loads if urlsplit(load).scheme or load.startswith("//")) == []
