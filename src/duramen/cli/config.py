"""`duramen config`: shows a node's settings with their sources, and checks a settings file.

Finding and reading the file is here too; `duramen serve` uses the same code.
"""

import os
import tomllib
from pathlib import Path
from typing import Final

import click

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import SettingInvalid
from duramen.base.settings import Settings, config_text, flatten
from duramen.cli.output import JSON, format_option, print_json, print_table

__all__ = ["FILE", "command", "read_file"]

FILE: Final = "duramen.toml"
"""The file that is read where it is there and none is named."""

_WRONG: Final = 2


@click.group()
def command() -> None:
    """Show the settings of a node and where they come from, and check a file of them."""


def read_file(path: str | None, faults: list[SettingInvalid]) -> tuple[dict[str, object], str]:
    """The settings in the file `path`, or in `duramen.toml` here if `path` is None and it exists; and the file's name.

    Names that are set twice are added to `faults`. Raises SettingInvalid if it cannot be read or is not TOML.
    """
    name = path or FILE
    if path is None and not Path(FILE).exists():
        return {}, name
    try:
        document = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingInvalid(f"{name} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingInvalid(f"{name} is not TOML: {error}") from None
    return flatten(document, file_name=name, faults=faults), name


@command.command()
@click.option("--config", metavar="FILE", help=f"Settings as TOML [default: ./{FILE} if there is one]")
@format_option
def show(config: str | None, format_: str) -> None:
    """Print each setting of a node with its value and the source of the value.

    These are the settings of `duramen serve` without options: from the environment, the file, and the defaults.
    """
    faults: list[SettingInvalid] = []
    file, file_name = read_file(config, faults)
    if faults:
        raise faults[0]
    settings = Settings(BROKER, environment=os.environ, file=file, file_name=file_name)
    _warn(settings)
    if format_ == JSON:
        print_json({"settings": [_described(settings, name) for name in settings.names()]})
        return
    lines = [(name, config_text(settings[name]), settings.origin(name)) for name in settings.names()]
    print_table(("SETTING", "VALUE", "FROM"), lines)


def _warn(settings: Settings) -> None:
    for warning in settings.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _described(settings: Settings, name: str) -> dict[str, object]:
    source = settings.source(name)
    return {
        "name": name,
        "value": settings[name],
        "source": source,
        "origin": None if source == "default" else settings.origin(name),
        "default": settings.setting(name).default,
    }


@command.command()
@click.argument("file")
@format_option
def check(file: str, format_: str) -> int:
    """Check FILE as `duramen serve --config FILE` would, without starting a node.

    Prints every fault, one a line. Environment variables apply, as for a node.
    """
    faults: list[SettingInvalid] = []
    values, name = read_file(file, faults)
    settings = Settings(BROKER, environment=os.environ, file=values, file_name=name, faults=faults)
    from duramen.node.listeners import contradictions

    faults += contradictions(settings)
    _warn(settings)
    if format_ == JSON:
        found = [{"id": fault.id, "message": str(fault)} for fault in faults]
        print_json({"file": name, "settings": len(values), "faults": found})
    elif faults:
        for fault in faults:
            click.echo(f"duramen: {fault} [{fault.id}]", err=True)
    else:
        click.echo(f"{name} sets {len(values)} of {len(BROKER)} settings, all of them valid.")
    return _WRONG if faults else 0
