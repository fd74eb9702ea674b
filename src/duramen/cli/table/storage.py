"""`--storage NAME=VALUE`: access to the storage of tables, in addition to the environment."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from duramen.base.catalogue.tables import storage_problem

__all__ = ["storage_option"]

_F = TypeVar("_F", bound=Callable[..., object])


def _pairs(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        problem = storage_problem(name.strip())
        if problem is not None:
            raise click.BadParameter(problem)
        pairs[name.strip()] = content.strip()
    return pairs


def storage_option(function: _F) -> _F:
    """The option `--storage`, which the command gets as the mapping `storage`."""
    return click.option(
        "--storage", metavar="NAME=VALUE", multiple=True, callback=_pairs,
        help="Access to the storage: s3.endpoint, s3.region, s3.access-key-id, s3.secret-access-key, catalog.…; may "
             "be repeated. Defaults come from the environment (AWS_…).",
    )(function)  # fmt: skip
