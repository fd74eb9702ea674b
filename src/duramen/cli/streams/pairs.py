"""KEY=VALUE options, such as `--config`."""

from collections.abc import Sequence

import click

__all__ = ["pairs"]


def pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """The values of the options. Raises click.BadParameter."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        name, content = name.strip(), content.strip()
        if found.setdefault(name, content) != content:
            raise click.BadParameter(f"{name} is given twice, as {found[name]!r} and as {content!r}")
    return found
