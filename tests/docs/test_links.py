"""No link between pages is dead, and neither is the heading that it names."""

import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as GitHub and the site make it."""
    found: set[str] = set()
    times = Counter[str]()
    for heading in re.findall(r"^#{1,6} +(.+)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(f"{slug}-{times[slug]}" if times[slug] else slug)
        times[slug] += 1
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(path: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(without_code(path.read_text(encoding="utf-8"))):
        page = path.parent / target if target else path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            dead.append(f"{target}#{anchor}")
    assert dead == []
