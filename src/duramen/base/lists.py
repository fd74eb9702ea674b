"""Lists in one text, as Kafka reads them: entries between commas with blanks around, some of them empty."""

__all__ = ["entries", "named"]


def entries(value: str) -> list[str]:
    """The entries of a value; of a blank one none. What is between two commas, or behind the last, is an entry."""
    return [entry.strip() for entry in value.split(",")] if value.strip() else []


def named(value: str) -> list[str]:
    """The entries that a change appends or subtracts: commas at its end are nothing, but of nothing there is one."""
    found = [entry.strip() for entry in value.split(",")]
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found
