"""Build the docs site into build/site: `make docs`. Strict: a warning or a dead link fails it. Needs no network.

The pages are copied to build/docs/pages as they lie in the repository, so that the links between them are the same on
the site, on GitHub and in a checkout.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_FOLDERS: Final = ("docs", "examples")


def stage(where: Path) -> None:
    """Copy what the site is made of."""
    shutil.rmtree(where, ignore_errors=True)
    pages = where / "pages"
    for folder in _FOLDERS:
        shutil.copytree(ROOT / folder, pages / folder)
    for page in [*ROOT.glob("*.md"), ROOT / "LICENSE"]:
        shutil.copy(page, pages / page.name)
    (pages / "docs" / "zensical.toml").replace(where / "zensical.toml")


def main() -> int:
    """Stage, build, and put the site in its place; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where to build [default: build]")
    build: Path = parser.parse_args().build.resolve()
    where = build / "docs"
    stage(where)
    zensical = Path(sys.executable).parent / "zensical"
    done = subprocess.run([zensical, "build", "--strict", "--clean"], cwd=where, check=False)
    if done.returncode == 0:
        shutil.rmtree(build / "site", ignore_errors=True)
        (where / "site").replace(build / "site")
        print(f"{build / 'site'}; to read it: python3 -m http.server --directory {build / 'site'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
