"""`duramen serve`: its options are generated from the catalogue of settings."""

import gc
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DependencyMissing, SettingInvalid
from duramen.base.settings import Setting, Settings
from duramen.cli.config import FILE, read_file
from duramen.cli.standard import discard_output

__all__ = ["command"]


def _option(setting: Setting) -> click.Option:
    name, help_text = setting.option_name, setting.doc
    if setting.default_text:
        help_text += f" [default: {setting.default_text}]"
    if setting.kind == "flag":
        # A feature that is on by default needs a way to turn it off.
        names = f"{name}/--no-{name.removeprefix('--')}" if setting.default else name
        return click.Option([names, setting.name.replace(".", "_")], is_flag=True, default=None, help=help_text)
    return click.Option([name, setting.name.replace(".", "_")], metavar=_metavar(setting), help=help_text)


def _metavar(setting: Setting) -> str:
    if setting.kind == "choice":
        return "|".join(setting.choices)
    units = {"bytes": "BYTES", "ms": "TIME", "minutes": "TIME"}
    return units.get(setting.unit, "NUMBER" if setting.kind == "integer" else "TEXT")


def _serve(config: str | None, **options: Any) -> int:
    """Start a node and run it until it is told to stop (SIGTERM or Ctrl-C; a second one stops at once)."""
    if sys.platform == "win32":
        raise DependencyMissing(
            "a node needs Linux or macOS: on Windows run it in WSL (wsl --install), and clients here"
        )
    given = {setting.name: options[setting.name.replace(".", "_")] for setting in BROKER.values()}
    settings = _load(config, given)
    # Objects of the start-up live as long as the node, which turns collection on again once it is ready.
    gc.disable()
    from duramen.node.run import run

    code = run(settings, _say, load=partial(_load, config, given))
    gc.freeze()  # the process ends: its objects are not walked once more, which takes seconds if there are many
    return code


def _load(config: str | None, given: Mapping[str, object]) -> Settings:
    faults: list[SettingInvalid] = []
    file, file_name = read_file(config, faults)
    if faults:
        raise faults[0]
    return Settings(BROKER, options=given, environment=os.environ, file=file, file_name=file_name)


def _say(line: str) -> None:
    # A running node continues although its addresses could not be printed.
    try:
        click.echo(line)
    except OSError as error:
        discard_output()
        click.echo(f"duramen: standard output cannot be written: {error.strerror}; the node continues", err=True)


def _with_options(function: Callable[..., int]) -> click.Command:
    options: list[click.Parameter] = [
        click.Option(["--config"], metavar="FILE", help=f"Settings as TOML [default: ./{FILE} if there is one]")
    ]
    options += [_option(setting) for setting in BROKER.values()]
    return click.Command("serve", callback=function, params=options, help=function.__doc__)


command = _with_options(_serve)
