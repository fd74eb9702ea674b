"""`duramen topic`: topics of the inventory; for a name without a slash, the commands of `duramen stream`."""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Final

import click
import msgspec

from duramen.base.errors import DuramenError, TopicAliasDangling
from duramen.cli.confirmation import confirm, yes_option
from duramen.cli.inventory.common import (
    account_option,
    counted,
    create_in_each,
    delete_all,
    filter_options,
    inventory_of,
    names_from,
    namespace_argument,
    not_empty,
    print_created,
)
from duramen.cli.output import JSON, format_option, print_json, print_table
from duramen.cli.progress import Bar
from duramen.cli.server import NodeAddress, server_option
from duramen.cli.streams.stream import command as streams
from duramen.cli.tables import plain
from duramen.client.api.inventory.requests import MOST_TOPICS, Filter, TopicInfo

__all__ = ["command"]

_LONGEST_SEARCH_S: Final = 10
_MOST_LISTED: Final = 1000


class _Topics(click.Group):
    """Commands on topics of the inventory, and those on streams for words without a slash."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = super().list_commands(ctx)
        return own + [name for name in streams.list_commands(ctx) if name not in own]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return super().get_command(ctx, name) or streams.get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        of_streams = None if name is None else streams.get_command(ctx, name)
        helps = any(word in ("-h", "--help") for word in rest)
        if of_streams is None or helps or any("/" in word for word in rest):
            return name, found, rest
        words = rest and not rest[0].startswith("-")
        if words and not any(isinstance(one, click.Argument) for one in of_streams.params):
            return name, found, rest  # which says what the word lacks
        return name, of_streams, rest


@click.group("topic", cls=_Topics)
def command() -> None:
    """Create, list, search, rename, move and delete topics of the inventory: TENANT/NAMESPACE/TOPIC.

    A name without slashes is that of a stream, which is a Kafka topic too: `duramen stream` has its commands.
    """


def _split(path: str) -> tuple[str, str]:
    tenant, _, rest = path.partition("/")
    namespace, slash, name = rest.partition("/")
    if not slash:
        raise click.BadParameter(f"{path!r} is not TENANT/NAMESPACE/TOPIC")
    return f"{tenant}/{namespace}", name


def _topic_argument(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    _split(value)
    return value


def _print(topic: TopicInfo, format_: str) -> None:
    if format_ == JSON:
        print_json(msgspec.to_builtins(topic))
        return
    click.echo(f"{'Alias' if topic.alias else 'Topic'} {plain(topic.path)}: {topic.id}")
    if topic.topic is not None:
        click.echo(f"  leads to {plain('/'.join(topic.topic.values()))}")
    for one in topic.aliases:
        click.echo(f"  alias {plain('/'.join(one.values()))}")
    if topic.durability:
        click.echo(f"  durability {topic.durability}")


@command.command("create")
@click.argument("names", metavar="TENANT/NAMESPACE[/TOPIC]...", nargs=-1, required=True)
@click.option(
    "--file", "file", type=click.File("rb"), metavar="FILE",
    help="Create topics of the namespace with names from FILE: a line each, - is standard input. Parquet (*.parquet) "
    "and Arrow files (*.arrow, *.arrows, *.feather, *.ipc) have the names in the column `name`, and need pyarrow.",
)  # fmt: skip
@click.option("--ndjson", is_flag=True, help="The lines of FILE are JSON: strings, or objects with the field `name`.")
@account_option
@format_option
@server_option
def _create(
    names: Sequence[str], file: IO[bytes] | None, ndjson: bool, account: str, format_: str, server: NodeAddress
) -> None:
    """Create topics; those that are there stay as they are, so that it is safe to repeat.

    Those that fail are named, and the others are created, also in other namespaces. --file takes millions of names.
    """
    inventory = inventory_of(server)
    if file is not None:
        if len(names) != 1:
            raise click.UsageError("--file needs exactly one namespace, TENANT/NAMESPACE")
        namespace = namespace_argument(click.get_current_context(), click.Argument(["names"]), names[0])
        failed: dict[str, DuramenError] = {}
        names_, total = names_from(file, failed, ndjson=ndjson)
        with Bar(f"creating topics of {namespace}", total) as bar:
            created = inventory.create_topics(namespace, names_, progress=bar.advance, account=account)
            created = created._replace(failed={**failed, **created.failed})
    else:
        if ndjson:
            raise click.UsageError("--ndjson needs --file FILE")
        by_namespace: dict[str, list[str]] = {}
        for path in names:
            namespace, name = _split(path)
            by_namespace.setdefault(namespace, []).append(name)
        created = create_in_each(by_namespace, partial(inventory.create_topics, account=account))
    print_created(created, "topic", format_)


def _paging(function: click.decorators.FC) -> click.decorators.FC:
    limit = click.option(
        "--limit", type=click.IntRange(1), default=_MOST_LISTED, show_default=True, help="The most topics."
    )
    after = click.option(
        "--after", metavar="TOKEN", default="", help="Continue after the topics of a command that named this TOKEN."
    )
    return limit(after(function))


@command.command("list")
@click.argument("namespace", metavar="TENANT/NAMESPACE", callback=namespace_argument)
@_paging
@account_option
@format_option
@server_option
def _list(namespace: str, limit: int, after: str, account: str, format_: str, server: NodeAddress) -> None:
    """List topics and aliases of a namespace by name. JSON has the TOKEN of the rest as `next`."""
    _found(server, namespace, Filter(), limit, account, format_, after)


@command.command("search")
@click.argument("scope", metavar="[TENANT[/NAMESPACE]]", required=False, callback=not_empty)
@filter_options
@click.option(
    "--kind", type=click.Choice(["topic", "alias", "dangling-alias"]), default=None,
    help="Only topics, only aliases, or only aliases whose topics were deleted with their namespaces [default: topics "
    "and aliases]",
)  # fmt: skip
@click.option("--durability", type=click.Choice(["sync", "os"]), default=None, help="Only topics with this durability.")
@click.option(
    "--policy",
    metavar="NAME",
    default=None,
    callback=not_empty,
    help="Only topics on which this policy is set, not inherited.",
)
@_paging
@account_option
@format_option
@server_option
def _search(
    scope: str,
    prefix: str,
    glob: str,
    pattern: str,
    label: str,
    kind: str | None,
    durability: str | None,
    policy: str,
    limit: int,
    after: str,
    account: str,
    format_: str,
    server: NodeAddress,
) -> None:
    """Find topics and aliases of a namespace, of a tenant or of all, in the order of their names.

    --label is a label of the namespace or of its tenant. Topics have no labels and no creation time of their own.

    A search stops at --limit or after 10 seconds, and names the TOKEN with which --after continues it. JSON has it as
    `next`.
    """
    wanted = Filter(prefix, glob, pattern, label, kind or "", durability or "", policy)
    _found(server, scope, wanted, limit, account, format_, after)


def _found(
    server: NodeAddress, scope: str, wanted: Filter, limit: int, account: str, format_: str, after: str = ""
) -> None:
    topics, token, until_s = list[TopicInfo](), after or None, time.monotonic() + _LONGEST_SEARCH_S
    while True:
        most = min(limit - len(topics), MOST_TOPICS)
        page = inventory_of(server).search_page(
            scope, **wanted._asdict(), after=token or "", limit=most, account=account
        )
        topics += page.topics
        token = page.next
        if token is None or len(topics) == limit or time.monotonic() > until_s:
            break
    _show(topics, token, format_)
    if token is not None and format_ != JSON:
        why = f"after {_LONGEST_SEARCH_S} s" if len(topics) < limit else f"at --limit, {counted(limit, 'topic')}"
        click.echo(f"The search stopped {why}; --after {token} continues it.", err=True)


def _show(topics: Sequence[TopicInfo], token: str | None, format_: str) -> None:
    if format_ == JSON:
        print_json({"topics": msgspec.to_builtins(topics), "next": token})
    elif topics:
        print_table(("TOPIC", "ID"), [(one.path + (" (alias)" if one.alias else ""), one.id) for one in topics])
    else:
        click.echo("There are no such topics.", err=True)


@command.command("describe")
@click.argument("name", metavar="TENANT/NAMESPACE/TOPIC", callback=_topic_argument)
@account_option
@format_option
@server_option
def _describe(name: str, account: str, format_: str, server: NodeAddress) -> None:
    """Show a topic with its id, its durability and its aliases, or where an alias leads."""
    _print(inventory_of(server).topic(name, account=account), format_)


def _keep_alias(function: click.decorators.FC) -> click.decorators.FC:
    return click.option("--keep-alias", is_flag=True, help="Keep the old name as an alias.")(function)


@command.command("rename")
@click.argument("name", metavar="TENANT/NAMESPACE/TOPIC", callback=_topic_argument)
@click.argument("new_name")
@_keep_alias
@account_option
@format_option
@server_option
def _rename(name: str, new_name: str, keep_alias: bool, account: str, format_: str, server: NodeAddress) -> None:
    """Give a topic another name in its namespace; its id stays."""
    namespace, _ = _split(name)
    if new_name.startswith(f"{namespace}/"):
        raise click.UsageError(
            f"NEW_NAME is the name without the namespace: {new_name[len(namespace) + 1 :]!r};"
            f" `duramen topic move {name} {new_name}` takes a path"
        )
    to = f"{namespace}/{new_name}"
    _print(inventory_of(server).move_topic(name, to, keep_alias=keep_alias, account=account), format_)


@command.command("move")
@click.argument("name", metavar="TENANT/NAMESPACE/TOPIC", callback=_topic_argument)
@click.argument("to", metavar="TO_TENANT/TO_NAMESPACE/TO_TOPIC", callback=_topic_argument)
@_keep_alias
@account_option
@format_option
@server_option
def _move(name: str, to: str, keep_alias: bool, account: str, format_: str, server: NodeAddress) -> None:
    """Move a topic to another namespace; its id stays."""
    _print(inventory_of(server).move_topic(name, to, keep_alias=keep_alias, account=account), format_)


@command.command("alias")
@click.argument("alias", metavar="TENANT/NAMESPACE/ALIAS", callback=_topic_argument)
@click.argument("topic", metavar="TENANT/NAMESPACE/TOPIC", callback=_topic_argument)
@account_option
@format_option
@server_option
def _alias(alias: str, topic: str, account: str, format_: str, server: NodeAddress) -> None:
    """Create an alias of a topic, which it keeps through renames."""
    _print(inventory_of(server).alias(alias, topic, account=account), format_)


@command.command("delete")
@click.argument("names", metavar="TENANT/NAMESPACE/TOPIC...", nargs=-1, required=True)
@yes_option
@account_option
@format_option
@server_option
def _delete(names: Sequence[str], yes: bool, account: str, format_: str, server: NodeAddress) -> None:
    """Delete topics that have no aliases, or aliases, also those of deleted topics. JSON has a line for each."""
    inventory = inventory_of(server)
    for name in names:
        with suppress(TopicAliasDangling):
            inventory.topic(name, account=account)
    confirm(f"Delete {', '.join(map(plain, names))}?", yes=yes)
    delete_all(names, "Topic", partial(inventory.delete_topic, account=account), format_)
