"""The docs name everything there is: settings, commands, options, metrics."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from duramen.base.catalogue.catalogue import BROKER, STREAM
from duramen.base.metrics import CATALOGUE
from duramen.cli.commands import cli
from duramen.codec.kafka.versions import APIS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")


def test_every_setting() -> None:
    text = page("settings.md")
    assert [name for name in (*BROKER, *STREAM) if f"### `{name}`\n" not in text] == []
    assert [one.name for one in BROKER.values() if f"`{one.environment_name}`" not in text] == []


def test_every_api_of_the_kafka_door_with_its_versions() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) to (\d+) \|$", page("doors/kafka.md"), re.MULTILINE)
    assert [(name.lower(), *map(int, numbers)) for name, *numbers in rows] == [
        (api.key.name.replace("_", "").lower(), int(api.key), api.low, api.high) for api in APIS.values()
    ]


def test_every_command_and_option() -> None:
    text = page("commands.md")
    sections = dict(re.findall(r"^## `([^`]+)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    missing = []
    for path, command in commands(cli, "duramen"):
        if path == "duramen":
            continue
        options = [one.opts[0] for one in command.params if isinstance(one, click.Option) and not one.hidden]
        missing += [path] if path not in sections else []
        missing += [f"{path} {option}" for option in options if f"`{option}" not in sections.get(path, "")]
    assert missing == []


def test_every_metric() -> None:
    text = page("metrics.md")
    assert [metric.name for metric in CATALOGUE if f"`{metric.name}`" not in text] == []


def test_every_page_is_reached_from_the_docs() -> None:
    index = page("README.md")
    pages = [path.relative_to(ROOT / "docs") for path in PAGES if path.is_relative_to(ROOT / "docs")]
    assert [str(path) for path in pages if path.name != "README.md" and f"]({path})" not in index] == []


def test_everything_public_in_src_says_what_it_is() -> None:
    """Modules, classes and functions that others may use; methods too, unless they implement a documented one."""
    missing = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        public = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in (tree, *public):
            name = getattr(node, "name", "")
            if not name.startswith("_") and ast.get_docstring(node) is None:
                missing.append(f"{path.relative_to(ROOT)} {name}")
    assert missing == []
