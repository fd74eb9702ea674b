"""Every error says what has become of data, whether to repeat is safe, and what to do."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import duramen
from duramen.base.errors import DuramenError


def derived(base: type[DuramenError]) -> Iterator[type[DuramenError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from derived(kind)


def public_errors() -> list[type[DuramenError]]:
    for module in pkgutil.walk_packages(duramen.__path__, "duramen."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {kind for kind in derived(DuramenError) if kind.__module__.startswith("duramen.")}
    return sorted((kind for kind in found if not kind.__name__.startswith("_")), key=lambda kind: kind.__name__)


def test_each_says_what_happened_what_is_safe_and_what_to_do() -> None:
    for kind in public_errors():
        assert kind.__dict__.get("id"), kind
        for text in (kind.__doc__, kind.__dict__.get("safe"), kind.__dict__.get("remedy")):
            assert text, kind
            assert text.strip().endswith("."), (kind, text)


def test_each_says_whether_the_outcome_is_known() -> None:
    doubt = re.compile("unknown|not known|known after|may be (executed|stored)|may have been executed")
    for kind in public_errors():
        assert kind.outcome_known is (doubt.search(kind.safe) is None), kind


def test_ids_are_one_class_each() -> None:
    ids = [kind.id for kind in public_errors()]
    assert sorted(ids) == sorted(set(ids))
    assert all(id_ == id_.lower() and "_" not in id_ and " " not in id_ for id_ in ids)
