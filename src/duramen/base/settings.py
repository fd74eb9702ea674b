"""Settings: their definition, how values are parsed and checked, and a node's values with their sources.

The settings themselves are data in `base.catalogue`. Pure: the caller reads files and the environment.
"""

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from duramen.base.errors import ConfigInvalid, SettingInvalid
from duramen.base.units import parse_bytes, parse_minutes, parse_ms

__all__ = [
    "Kind",
    "Scope",
    "Setting",
    "Settings",
    "Source",
    "Value",
    "check",
    "config_text",
    "dotted",
    "entries",
    "flatten",
    "named",
    "nearest",
]

Value = int | float | str | bool
Kind = Literal["integer", "number", "flag", "text", "choice", "list"]
Scope = Literal["broker", "stream", "group"]
Source = Literal["option", "environment", "file", "default"]

_INT64_MAX = (1 << 63) - 1
_PREFIX = "DURAMEN_"
_OTHER_VARIABLES = ("DURAMEN_SERVER", "DURAMEN_TRACEBACK")
_SERVICE_LINK = re.compile(
    r"DURAMEN_(\w+_)?"
    r"((SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|PORT=(tcp|udp|sctp)://)"
)
"""NAME=VALUE as Kubernetes sets it in every container of a namespace with a Service whose name begins with `duramen`.

PORT alone has a URL there, so that a DURAMEN_HTTP_PORT=8080 that somebody wrote is not taken for one.
"""

_SHOWN = 100  # characters of a wrong value that an error repeats

_PARSERS: Mapping[str, Callable[[str], int]] = {"bytes": parse_bytes, "ms": parse_ms, "minutes": parse_minutes}
_EXAMPLES = {
    "bytes": "a number of bytes such as 1048576 or 1MiB",
    "ms": "a time such as 30000 or 30s",
    "minutes": "a number of minutes such as 10080 or 7d",
}


def config_text(value: object) -> str:
    """A value as Kafka, TOML and environment variables write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: everything that the docs, the options, the checks and DescribeConfigs need.

    `dynamic`: clients change it while nodes run. `reload`: a running node reads it from its file again, without being
    dynamic. `broker_default` names the broker setting that is the default of a stream setting. `without_effect` is the
    reason why a setting of Kafka is accepted without effect; `idle_with` is the same for streams of some durabilities.
    A `list` has items from `choices`, or items that match the regular expression `item`, which `example` shows to
    users; a `text` with `item` matches that as a whole. `only` are the supported values if Kafka has more.
    `kafka_default` is Kafka's default if it differs, and `deviation` the reason.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    scope: Scope = "broker"
    unit: str = ""
    kafka: bool = False
    dynamic: bool = False
    reload: bool = False
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    item: str = ""
    example: str = "* or PARTITION:BROKER"
    only: tuple[Value, ...] = ()
    broker_default: str = ""
    option: str = ""
    without_effect: str = ""
    idle_with: tuple[tuple[str, str], ...] = ()
    kafka_default: str = ""
    deviation: str = ""

    @property
    def option_name(self) -> str:
        """The command-line option: `--wal-max-bytes` for `wal.max.bytes`, unless it has a name of its own."""
        return self.option or "--" + self.name.replace(".", "-")

    @property
    def environment_name(self) -> str:
        """The environment variable: `DURAMEN_WAL_MAX_BYTES`."""
        return _PREFIX + self.name.replace(".", "_").upper()

    @property
    def default_text(self) -> str:
        """The default as a user would write it."""
        if self.default == _INT64_MAX:
            return "no bound"
        return config_text(self.default)

    @property
    def expected(self) -> str:
        """The form of a valid value, for error messages and the docs."""
        if self.only:
            return " or ".join(map(config_text, self.only)) + " here"
        if self.kind == "flag":
            return "true or false"
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "list":
            what = "any of " + ", ".join(self.choices) if self.choices else self.example
            return what + ", comma-separated"
        if self.kind == "text":
            return self.example if self.item else "text"
        what = _EXAMPLES.get(self.unit, "a whole number" if self.kind == "integer" else "a number")
        bounds = []
        if self.minimum is not None:
            bounds.append(f"at least {self.minimum}")
        if self.maximum is not None and self.maximum < _INT64_MAX:
            bounds.append(f"at most {self.maximum}")
        return ", ".join([what, *bounds])

    @property
    def reloadable(self) -> bool:
        """Whether a node that runs takes a new value from its file."""
        return self.scope == "broker" and (self.dynamic or self.reload)

    def value_type(self) -> Any:
        """The type against which msgspec checks a value."""
        match self.kind:
            case "integer":
                return Annotated[int, msgspec.Meta(ge=self.minimum, le=min(self.maximum or _INT64_MAX, _INT64_MAX))]
            case "number":
                return Annotated[float, msgspec.Meta(ge=self.minimum, le=self.maximum)]
            case "flag":
                return bool
            case "text" | "choice" | "list":
                return str


def check(setting: Setting, value: object) -> Value:
    """`value` as this setting's type, from text or from a TOML or JSON value.

    Raises SettingInvalid (ConfigInvalid for a stream's or group's) naming the key, the value and what would be right.
    """
    error = SettingInvalid if setting.scope == "broker" else ConfigInvalid
    shown = value[:_SHOWN] if isinstance(value, str) else value
    try:
        if isinstance(value, str) and setting.kind == "integer" and setting.unit in _PARSERS:
            value = _PARSERS[setting.unit](value)
        if isinstance(value, str) and setting.kind == "flag":
            value = value.strip().lower()
        converted: Value = msgspec.convert(value, setting.value_type(), strict=False)
        if setting.kind == "choice":
            converted = _choice(setting, str(converted))
        elif setting.kind == "list":
            converted = _list(setting, str(converted))
        elif setting.kind == "text" and setting.item and not re.fullmatch(setting.item, str(converted)):
            raise ValueError(converted)
        if setting.only and converted not in setting.only:
            raise ValueError(converted)
    except (ValueError, msgspec.ValidationError):
        raise error(f"{setting.name}: {shown!r} does not fit; it must be {setting.expected}") from None
    return converted


def _choice(setting: Setting, value: str) -> str:
    for choice in setting.choices:
        if value.strip().lower() == choice.lower():
            return choice
    raise ValueError(value)


def _list(setting: Setting, value: str) -> str:
    # Kafka takes what lists have in any order: "delete, compact".
    named = entries(value)
    parts = list(dict.fromkeys(part for part in named if part))
    if setting.choices:
        parts = sorted(part.lower() for part in parts)
        if "" in named or not set(parts).issubset(setting.choices):
            raise ValueError(value)
    elif not all(re.fullmatch(setting.item, part) for part in parts):
        raise ValueError(value)
    return ",".join(parts)


def nearest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """The known name nearest to `name` as the end of a sentence, or nothing where none is near.

    A `prefix` that all of them have does not make them alike.
    """
    known = [one.removeprefix(prefix) for one in itertools.islice(names, 1000)]
    near = difflib.get_close_matches(name.removeprefix(prefix), known, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def dotted(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The settings of a TOML document with nested tables, by dotted names; a name set in two ways appears twice."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def flatten(table: Mapping[str, object], *, file_name: str, faults: list[SettingInvalid]) -> dict[str, object]:
    """A TOML document with nested tables as one mapping of dotted names.

    A name that is set twice, as `"wal.max.bytes"` and as `bytes` in `[wal.max]`, is added to `faults`.
    """
    flat: dict[str, object] = {}
    for name, value in dotted(table):
        if name in flat:
            faults.append(SettingInvalid(f"{file_name}: {name} is set twice, as a name in quotes and in a table"))
        flat[name] = value
    return flat


def _unknown_in_file(
    catalogue: Mapping[str, Setting], file: Mapping[str, object], file_name: str
) -> Iterator[SettingInvalid]:
    for name in file:
        if name not in catalogue:
            yield SettingInvalid(f"{file_name}: {name} is not a setting{nearest(name, catalogue)}")


def _unknown_variables(catalogue: Mapping[str, Setting], environment: Mapping[str, str]) -> Iterator[str]:
    known = [*(setting.environment_name for setting in catalogue.values()), *_OTHER_VARIABLES]
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known and not _SERVICE_LINK.match(f"{name}={environment[name]}"):
            yield f"the environment: {name} is not a setting and is ignored{nearest(name, known, _PREFIX)}"


class Settings:
    """A node's settings: every broker setting has a value here, and the value has a source."""

    __slots__ = ("_catalogue", "_file_name", "_sources", "_values", "unfit", "warnings")

    def __init__(
        self,
        catalogue: Mapping[str, Setting],
        *,
        options: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        file: Mapping[str, object] | None = None,
        file_name: str = "duramen.toml",
        faults: list[SettingInvalid] | None = None,
    ) -> None:
        """Take each value from the first of option, environment, file and default that has one.

        `environment` may hold other variables; one that begins with DURAMEN_ and is not a setting's is ignored and
        named in `warnings`, while such a name in the file is refused. Raises SettingInvalid; with `faults`, all of
        them are added to that instead, and a setting whose value does not fit is in `unfit` and has its default.
        """
        self.unfit: set[str] = set()
        self._catalogue = catalogue
        self._file_name = file_name
        self._values: dict[str, Value] = {}
        self._sources: dict[str, Source] = {}
        options, environment, file = options or {}, environment or {}, file or {}
        found = [] if faults is None else faults
        found += _unknown_in_file(catalogue, file, file_name)
        self.warnings = tuple(_unknown_variables(catalogue, environment))
        for setting in catalogue.values():
            raw: object = setting.default
            source: Source = "default"
            if options.get(setting.name) is not None:
                raw, source = options[setting.name], "option"
            elif setting.environment_name in environment:
                raw, source = environment[setting.environment_name], "environment"
            elif setting.name in file:
                raw, source = file[setting.name], "file"
            self._sources[setting.name] = source
            try:
                self._values[setting.name] = check(setting, raw)
            except SettingInvalid as error:
                origin = self.origin(setting.name)
                found.append(SettingInvalid(f"{origin}: {error}") if source in ("environment", "file") else error)
                self._values[setting.name] = check(setting, setting.default)
                self.unfit.add(setting.name)
        if found and faults is None:
            raise found[0]

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def integer(self, name: str) -> int:
        """The value of an integer setting."""
        return int(self._values[name])

    def text(self, name: str) -> str:
        """The value of a text or choice setting."""
        return str(self._values[name])

    def flag(self, name: str) -> bool:
        """The value of a flag."""
        return bool(self._values[name])

    def source(self, name: str) -> Source:
        """The kind of source of the value."""
        return self._sources[name]

    def origin(self, name: str) -> str:
        """The name of the value's source: an option, a variable, a file, or `default`."""
        setting = self._catalogue[name]
        names: dict[Source, str] = {
            "option": setting.option_name, "environment": setting.environment_name, "file": self._file_name
        }  # fmt: skip
        return names.get(self._sources[name], "default")

    def changed(self, other: "Settings") -> list[str]:
        """The settings that have another value in `other`, in the order of the catalogue."""
        return [name for name, value in self._values.items() if other[name] != value]

    def take(self, other: "Settings") -> None:
        """Take over from `other` the values that may change while a node runs, with their sources."""
        for setting in self._catalogue.values():
            if setting.reloadable:
                self._values[setting.name] = other[setting.name]
                self._sources[setting.name] = other.source(setting.name)

    def setting(self, name: str) -> Setting:
        """The setting itself."""
        return self._catalogue[name]

    def names(self) -> Iterable[str]:
        """Every setting's name, in the order of the catalogue."""
        return self._catalogue.keys()


def entries(value: str) -> list[str]:
    """The entries of a list value; a blank value has none.

    An empty text between two commas, or after the last, is an entry.
    """
    return [entry.strip() for entry in value.split(",")] if value.strip() else []


def named(value: str) -> list[str]:
    """The entries that a change appends or subtracts: commas at its end are nothing, but of nothing there is one."""
    found = [entry.strip() for entry in value.split(",")]
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found
