"""NATS subjects of namespaces: a fixed prefix and a wildcard for the topic. Pure."""

from collections.abc import Sequence
from typing import Final

from duramen.base.errors import SubjectInvalid

__all__ = ["check_subjects", "overlap"]

_MOST: Final = 16
_LONGEST: Final = 255


def check_subjects(subjects: Sequence[str]) -> tuple[str, ...]:
    """Subjects of a namespace, without duplicates. Raises SubjectInvalid."""
    found = tuple(dict.fromkeys(subjects))
    if len(found) > _MOST:
        raise SubjectInvalid(f"a namespace is bound to {_MOST} subjects at most, not {len(found)}")
    for subject in found:
        *first, last = subject.split(".")
        if not first or last not in (">", "*") or not all(map(_is_plain, first)) or len(subject) > _LONGEST:
            raise SubjectInvalid(
                f"{subject[:80]!r} is no subject of a namespace: it has plain tokens and a final > or *, which stands"
                f" for the topic, and {_LONGEST} characters at most"
            )
        if first[0].startswith("$") or first[0] == "_INBOX":
            raise SubjectInvalid(f"{subject[:80]!r} begins with {first[0]}, which is not for topics")
    for at, subject in enumerate(found):
        for other in found[:at]:
            if overlap(subject, other):
                raise SubjectInvalid(f"the subjects {other} and {subject} have messages in common")
    return found


def _is_plain(token: str) -> bool:
    return bool(token) and token.isprintable() and not any(one.isspace() or one in "*>" for one in token)


def overlap(one: str, other: str) -> bool:
    """Whether two subjects of namespaces have messages in common."""
    short, long = sorted((one, other), key=len)
    if not long.startswith(short[:-1]):
        return False
    return short.endswith(">") or long[:-1] == short[:-1]
