"""Write the generated pages of docs/ from the catalogues and the command line; `--check` says which are out of date.

In docs/doors/spark.md only what stands between two marks is written: the options of the format.
"""

import importlib
import pkgutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import click

import duramen
from duramen.base.catalogue.catalogue import BROKER, GROUP, STREAM
from duramen.base.errors import DuramenError
from duramen.base.metrics import BOUNDS, CATALOGUE, Metric
from duramen.base.metrics_tables import TABLE_METRICS
from duramen.base.settings import Setting
from duramen.cli.commands import cli
from duramen.codec import jetstream
from duramen.codec.kafka.errors import ErrorCode
from duramen.doors.http.application import ROUTES
from duramen.doors.http.serving.openapi import document, errors_of, plain_path
from duramen.doors.http.serving.routes import HttpRoute
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.nats.refusals import api_error
from duramen.doors.problems import status_of
from duramen.spark.options import OPTIONS, WITHOUT_EFFECT, ReadOption

DOCS: Final = Path(__file__).parents[1] / "docs"
GENERATED: Final = "<!-- Written by `make reference`; change the source, not this page. -->"
_LARGEST: Final = (1 << 63) - 1


def cell(text: object) -> str:
    """Text for a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def rows(header: Sequence[str], lines: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for line in lines:
        yield f"| {' | '.join(cell(field) for field in line)} |"


# -- settings -------------------------------------------------------------------------------------------


def value(setting: Setting) -> str:
    """A setting's default."""
    if setting.broker_default:
        return f"`{setting.broker_default}`"
    return f"`{setting.default_text}`" if setting.default_text else "empty"


def accepted(setting: Setting) -> str:
    """What a value may be."""
    bounds = []
    if setting.choices:
        return ("list of " if setting.kind == "list" else "") + ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.minimum is not None:
        bounds.append(f"from {setting.minimum}")
    if setting.maximum is not None and setting.maximum < _LARGEST:
        bounds.append(f"to {setting.maximum}")
    kind = {"integer": setting.unit or "whole number", "flag": "true, false"}
    return " ".join([kind.get(setting.kind, setting.kind), *bounds])


def setting_rows(catalogue: Mapping[str, Setting]) -> Iterator[str]:
    """The table of a catalogue."""
    for setting in catalogue.values():
        doc = setting.doc
        if setting.without_effect:
            doc += f" Accepted without effect: {setting.without_effect}."
        yield f"### `{setting.name}`"
        yield ""
        yield doc
        yield ""
        facts = [f"Default {value(setting)}", accepted(setting), "Kafka's" if setting.kafka else "ours"]
        if setting.scope == "broker":
            facts += [f"`{setting.option_name}`", f"`{setting.environment_name}`"]
        facts.append(_when(setting))
        yield " · ".join(facts)
        yield ""


def _when(setting: Setting) -> str:
    if setting.dynamic:
        return "can change while running"
    return "read at start and at SIGHUP" if setting.reloadable else "read at start"


def deviation_rows() -> Iterator[str]:
    """The table of the defaults that are not Kafka's."""
    yield from rows(
        ("Name", "Kafka's default", "Duramen's default", "Reason"),
        [
            (f"`{setting.name}`", setting.kafka_default, value(setting), setting.deviation)
            for setting in (*BROKER.values(), *STREAM.values(), *GROUP.values())
            if setting.deviation
        ],
    )
    yield ""


def idle_rows() -> Iterator[str]:
    """The table of Kafka's settings that are taken and change nothing."""
    yield from rows(
        ("Name", "Why it has no effect"),
        [
            (f"`{setting.name}`", why)
            for setting in (*BROKER.values(), *STREAM.values())
            for why in [
                setting.without_effect or "; ".join(f"`durability={one}`: {why}" for one, why in setting.idle_with)
            ]
            if why
        ],
    )
    yield ""


def settings_page() -> Iterator[str]:
    """docs/settings.md."""
    yield "# Settings"
    yield ""
    yield (
        "The value of a node's setting comes from the first of these that has it: the option of `duramen serve`, the "
        "environment variable, `duramen.toml` (in the working directory, or `--config FILE`), the default. In TOML "
        'the dots of a name are tables: `wal.max.bytes` is `bytes` in `[wal.max]`. `"wal.max.bytes" = …` works too; '
        "a name that is set in both ways is refused. Bytes may be written as `64MiB`, times as `30s` or `7d`, here "
        "and wherever a setting or a config is given; without a unit they are in bytes and milliseconds, or in the "
        "unit at the end of the name. A name in the file that is not a setting is refused. A variable that begins "
        "with `DURAMEN_` and belongs to no setting is ignored, with a warning that names the most similar one. The "
        "variables that Kubernetes sets for a Service called `duramen`, such as `DURAMEN_SERVICE_HOST` and "
        "`DURAMEN_PORT_9092_TCP_ADDR`, are ignored without a warning."
    )
    yield ""
    yield (
        "`duramen config show` prints every setting with its value and the source of the value. `duramen config "
        "check FILE` names everything in a file that `duramen serve` would refuse; it starts no node."
    )
    yield ""
    yield (
        "A stream's settings are its *config*: set at its creation, and changed with `duramen stream alter` or any "
        "Kafka admin client. A config with a name of Kafka has Kafka's meaning and default; other names end in their "
        "unit."
    )
    yield ""
    yield "## Defaults that differ from Kafka's"
    yield ""
    yield "Every setting with Kafka's name that is not in this table has the default of Apache Kafka 4."
    yield ""
    yield from deviation_rows()
    yield (
        "These configs of Kafka are accepted, checked and shown with their value, but have no effect; their "
        "documentation in DescribeConfigs says so. Any other name that is not on this page is refused."
    )
    yield ""
    yield from idle_rows()
    yield "## Of a node"
    yield ""
    yield from setting_rows(BROKER)
    yield "## Of a stream"
    yield ""
    yield "If the default is a name, it is the value of that setting of the node."
    yield ""
    yield from setting_rows(STREAM)
    yield "## Of a group"
    yield ""
    yield (
        "Groups have the configs of Kafka's resource type GROUP. Any Kafka admin client changes them, for example "
        "`kafka-configs.sh --alter --entity-type groups --entity-name GROUP --add-config …`. Share groups have them "
        "too."
    )
    yield ""
    yield from setting_rows(GROUP)


# -- commands -------------------------------------------------------------------------------------------


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below `command`, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from commands(found, f"{path} {name}")


def option_rows(command: click.Command, path: str) -> Iterator[str]:
    """The table of a command's options."""
    context = click.Context(command, info_name=path)
    lines = []
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            lines.append((f"`{record[0]}`", record[1]))
    if lines:
        yield from rows(("Option", "What it does"), lines)
        yield ""


def commands_page() -> Iterator[str]:
    """docs/commands.md."""
    yield "# Commands"
    yield ""
    yield (
        "Exit codes: 0 for success, 1 for a failure, 2 for wrong usage, 130 after Ctrl-C. Errors are one line on "
        "standard error; results go to standard output. Ctrl-C or SIGTERM stops `duramen serve` at any time, also "
        "during its start; it then exits with 0."
    )
    yield ""
    yield (
        "With `DURAMEN_TRACEBACK=1` in the environment, an unexpected error prints its traceback; include it in a "
        "report."
    )
    yield ""
    for path, command in commands(cli, "duramen"):
        if path == "duramen":
            continue
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        yield f"## `{path}`"
        yield ""
        yield f"    {usage}"
        yield ""
        yield " ".join((command.help or "").split())
        yield ""
        yield from option_rows(command, path)


# -- metrics --------------------------------------------------------------------------------------------


def metrics_page() -> Iterator[str]:
    """docs/metrics.md."""
    yield "# Metrics"
    yield ""
    yield "`GET /metrics` on the HTTP door, in the text format of Prometheus. Times are seconds, sizes are bytes."
    yield ""
    yield from metric_rows(CATALOGUE)
    for name, bounds in BOUNDS.items():
        yield f"Buckets of `{name}`: {', '.join(f'{bound:g}' for bound in bounds)}."
        yield ""
    yield "## Of tables"
    yield ""
    yield "`duramen table run --metrics HOST:PORT` serves these metrics at `/metrics`; nodes do not have them."
    yield ""
    yield from metric_rows(TABLE_METRICS)


def metric_rows(catalogue: Iterable[Metric]) -> Iterator[str]:
    """The table of some metrics."""
    yield from rows(
        ("Metric", "Kind", "Labels", "What it is"),
        [
            (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.doc)
            for metric in catalogue
        ],
    )
    yield ""


# -- HTTP -----------------------------------------------------------------------------------------------


def schema_text(schema: Mapping[str, Any]) -> str:
    """What a value may be."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(schema_text, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    kind: str = schema.get("type", "anything")
    if kind == "array" and "prefixItems" in schema:
        return f"[{', '.join(map(schema_text, schema['prefixItems']))}]"
    if kind == "array":
        return f"list of {schema_text(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {schema_text(schema['additionalProperties'])}"
    bounds = [f"from {schema['minimum']}"] if "minimum" in schema else []
    if schema.get("maximum", _LARGEST) < _LARGEST:
        bounds.append(f"to {schema['maximum']}")
    return " ".join([kind, *bounds])


def content_text(answer: Mapping[str, Any]) -> str:
    """What a body is."""
    return ", ".join(
        schema_text(content["schema"]) if media.endswith("/json") else media
        for media, content in answer.get("content", {}).items()
    )


def route_rows(route: HttpRoute, operation: Mapping[str, Any]) -> Iterator[str]:
    """What a route takes and gives."""
    yield f"### `{route.method} {plain_path(route)}`"
    yield ""
    yield f"{operation['summary']}."
    yield ""
    lines = []
    for one in operation.get("parameters", ()):
        if one["in"] == "query":
            default = one["schema"].get("default", "")
            shown = "needed" if one.get("required") else f"`{default}`" if default != "" else ""
            lines.append((f"`{one['name']}`", schema_text(one["schema"]), shown, one["description"]))
    if lines:
        yield from rows(("Query", "Type", "Default", "What it says"), lines)
        yield ""
    if "requestBody" in operation:
        yield f"- Takes {content_text(operation['requestBody'])}"
    for status in route.statuses:
        what = content_text(operation["responses"][str(status)])
        yield f"- {status}: {what or 'nothing'}"
    for error in errors_of(route):
        if error in route.errors:
            yield f"- {status_of(error)}: `{error.id}`"
    yield ""


def http_page() -> Iterator[str]:
    """docs/http-api.md."""
    described = document(ROUTES)
    yield "# HTTP API"
    yield ""
    yield (
        "The requests and responses of [the HTTP door](doors/http.md). Every node has the same description as OpenAPI "
        "3.1 at `GET /v1/openapi.json`. Errors are [problems](#problem), `application/problem+json`, whose `type` is "
        "the id of the error."
    )
    yield ""
    yield "Any request may also fail with one of these errors; those about bodies apply only to requests with a body:"
    yield ""
    special = {error for route in ROUTES for error in route.errors}
    common = {error for route in ROUTES for error in errors_of(route)} - special
    lines = [(status_of(error), f"`{error.id}`", " ".join((error.__doc__ or "").split())) for error in common]
    yield from rows(("Status", "Id", "What happened"), sorted(lines))
    yield ""
    yield "## Routes"
    yield ""
    for route in ROUTES:
        yield from route_rows(route, described["paths"][plain_path(route)][route.method.lower()])
    yield "## Types"
    yield ""
    for name, schema in sorted(described["components"]["schemas"].items()):
        yield f"### {name}"
        yield ""
        yield schema["description"]
        yield ""
        required = schema.get("required", ())
        fields = [
            (f"`{field}`", schema_text(one), "yes" if field in required else "no", one.get("description", ""))
            for field, one in schema["properties"].items()
        ]
        yield from rows(("Field", "Type", "Always present", ""), fields)
        yield ""


# -- errors ---------------------------------------------------------------------------------------------


def error_classes() -> list[type[DuramenError]]:
    """Every error that a user can meet, by id: the public classes of the whole package."""
    for module in pkgutil.walk_packages(duramen.__path__, "duramen."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: list[type[DuramenError]] = []
    waiting = DuramenError.__subclasses__()
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if not one.__name__.startswith("_"):
            found.append(one)
    return sorted(found, key=lambda one: one.id)


def doors(kind: type[DuramenError]) -> str:
    """What the doors make of an error, where they have something of their own for it."""
    error = kind.__new__(kind)
    names = []
    if (code := error_code(error)) is not ErrorCode.UNKNOWN_SERVER_ERROR:
        names.append(f"Kafka {code.name} ({int(code)})")
    if (status := status_of(kind)) != HTTPStatus.BAD_REQUEST:
        names.append(f"HTTP {status}")
    if (answer := api_error(error)) is not jetstream.STORE_FAILED:
        names.append(f"NATS {answer.code}, {answer.err_code}")
    return " · ".join(names)


def errors_page() -> Iterator[str]:
    """docs/errors.md."""
    yield "# Errors"
    yield ""
    yield (
        "Each error has a stable id: the `type` of a problem at the HTTP door, and the value that programs compare. "
        "For each error this page has its cause, the state of the data and whether a retry is safe, the remedy, and "
        "its form at the doors: Kafka's error with its number, the HTTP status, JetStream's code and error number at "
        "the NATS door. If none is named, the Kafka door responds with UNKNOWN_SERVER_ERROR (-1), the HTTP door with "
        f"400, and the NATS door with {jetstream.STORE_FAILED.code}, {jetstream.STORE_FAILED.err_code}, if the error "
        "can occur there."
    )
    yield ""
    for kind in error_classes():
        yield f"## `{kind.id}`"
        yield ""
        yield " ".join((kind.__doc__ or "").split())
        yield ""
        yield f"- Safe: {kind.safe}"
        yield f"- To do: {kind.remedy}"
        if answers := doors(kind):
            yield f"- At the doors: {answers}"
        yield ""


PAGES: Final = {
    "settings.md": settings_page,
    "commands.md": commands_page,
    "metrics.md": metrics_page,
    "http-api.md": http_page,
    "errors.md": errors_page,
}


# -- options of Spark -----------------------------------------------------------------------------------

SPARK_PAGE: Final = "doors/spark.md"
_BEGINS: Final = "<!-- Written by `make reference`, to the next mark: change the source, not this. -->\n"
_ENDS: Final = "<!-- End of what is written. -->\n"
_USES: Final = {"batch": "read", "stream": "readStream", "sink": "write"}


def spark_option(option: ReadOption) -> list[str]:
    """A line of the table."""
    where = ", ".join(name for use, name in _USES.items() if use in option.uses)
    default = option.default if " " in option.default or not option.default else f"`{option.default}`"
    return [f"`{option.name}`", where, default, option.doc]


def spark_options() -> Iterator[str]:
    """The options of docs/doors/spark.md."""
    lines = [spark_option(option) for option in OPTIONS.values() if not option.doc.startswith(WITHOUT_EFFECT)]
    yield from rows(["Option", "Where", "Default", "What it does"], lines)
    yield ""
    names = [f"`{option.name}`" for option in OPTIONS.values() if option.doc.startswith(WITHOUT_EFFECT)]
    idle = (
        f"These options of Spark's Kafka source are accepted without effect, so that they can stay: {', '.join(names)}."
    )
    yield from textwrap.wrap(idle, 120, break_on_hyphens=False)


def spark_page(text: str) -> str:
    """The page with its options as they are now."""
    before, _, rest = text.partition(_BEGINS)
    _, mark, after = rest.partition(_ENDS)
    if not mark:
        raise ValueError(f"docs/{SPARK_PAGE} lacks the marks around its options")
    return "".join((before, _BEGINS, "\n", "\n".join(spark_options()), "\n\n", _ENDS, after))


def main() -> int:
    """Write the pages, or with `--check` say which differ."""
    texts = {name: "\n".join([GENERATED, "", *page()]).rstrip() + "\n" for name, page in PAGES.items()}
    texts[SPARK_PAGE] = spark_page((DOCS / SPARK_PAGE).read_text(encoding="utf-8"))
    stale = []
    for name, text in texts.items():
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if "--check" in sys.argv and stale:
        print(f"docs/{', docs/'.join(stale)} out of date: run `make reference`", file=sys.stderr)
        return 1
    print(f"wrote docs/{', docs/'.join(stale)}" if stale else "the generated pages are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
