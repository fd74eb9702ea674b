"""Every public name has a docstring with an example, and the examples do what they say, `await` included."""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import duramen
from duramen import errors
from duramen.client.api import client as sync
from duramen.client.api import values
from duramen.testing import Broker

MODULES = (duramen, duramen.aio, duramen.errors, duramen.testing)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> Iterator[tuple[str, Any]]:
    for module in (*MODULES, sync):
        if module is not sync:
            yield module.__name__, module
        for name in module.__all__:
            found = getattr(module, name)
            if isinstance(found, ModuleType | str) or (inspect.isclass(found) and issubclass(found, Exception)):
                continue
            yield f"{module.__name__}.{name}", found
            for method, inner in vars(found).items() if inspect.isclass(found) else ():
                function = inner.fget if isinstance(inner, property) else inner
                if not method.startswith("_") and inspect.isfunction(function):
                    yield f"{module.__name__}.{name}.{method}", function


PUBLIC = {name: found for found, name in {found: name for name, found in public()}.items()}
EXAMPLES = {
    name: doctest.DocTestParser().get_examples(inspect.getdoc(found) or "", name) for name, found in PUBLIC.items()
}
WITHOUT = r"\.(open|run|records|text)$"  # of our own making, or shown by their class


def test_there_are_examples() -> None:
    missing = [name for name in PUBLIC if not EXAMPLES[name] and not re.search(WITHOUT, name)]
    assert missing == []


async def run(example: doctest.Example, names: dict[str, Any]) -> str:
    """What an example prints at the prompt of `python -m asyncio`."""
    printed = io.StringIO()
    code = compile(example.source, f"<{example.source.strip()}>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(printed):
        try:
            done = FunctionType(code, names)()
            if inspect.iscoroutine(done):
                await done
        except errors.DuramenError as error:
            return f"Traceback (most recent call last):\n{type(error).__module__}.{type(error).__name__}: {error}\n"
    return printed.getvalue()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with duramen.testing.broker() as broker:
        yield broker


@pytest.mark.parametrize("name", [name for name, examples in EXAMPLES.items() if examples])
def test_it_does_what_it_says(name: str, broker: Broker) -> None:
    server = broker.http_url.removeprefix("http://")

    async def check() -> None:
        client: Any = await duramen.aio.connect(server) if name.startswith("duramen.aio") else duramen.connect(server)
        names = {one: getattr(duramen, one) for one in duramen.__all__} | vars(values)
        names |= {"duramen": duramen, "asyncio": asyncio, "client": client, "server": server}
        names["broker"] = broker
        try:
            for example in EXAMPLES[name]:
                got = await run(example, names)
                assert doctest.OutputChecker().check_output(example.want, got, FLAGS), f"{example.source}gave\n{got}"
        finally:
            closed = client.close()
            if closed is not None:
                await closed

    asyncio.run(check())
