"""`duramen tenant`, `namespace` and `topic`: what a user sees of them, and what becomes of names that fail."""

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.cli.command import Run


@pytest.fixture
def tenant(duramen: Run) -> str:
    name = f"t-{uuid4().hex[:12]}"
    assert duramen("tenant", "create", name, "--label", "team=blue").out == "1 tenant created.\n"
    assert duramen("namespace", "create", f"{name}/prod", f"{name}/dev").out == "2 namespaces created.\n"
    return name


def test_topics_are_created_from_a_file_and_what_fails_is_named(duramen: Run, tenant: str, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("".join(f"device-{number:05}/telemetry\n" for number in range(30_000)) + f"{'x' * 122}\n")
    created = duramen("topic", "create", f"{tenant}/prod", "--file", str(names))
    assert (created.code, created.out) == (1, "30,000 topics created.\n")
    assert "[inventory-name-invalid]" in created.err
    again = duramen("topic", "create", f"{tenant}/prod", "--file", str(names), "--format", "json")
    answer = json.loads(again.out)
    assert (answer["created"], answer["existing"], len(answer["failed"])) == (0, 30_000, 1)
    lines = b'"a"\n{"name": "b", "more": 1}\n'
    assert duramen("topic", "create", f"{tenant}/dev", "--file", "-", "--ndjson", stdin=lines).code == 0
    wrong = duramen("topic", "create", f"{tenant}/dev", "--file", "-", "--ndjson", stdin=b'"c"\n7\n{"nam": "d"}\n"e"\n')
    assert (wrong.code, wrong.out) == (1, "2 topics created.\n")
    assert ["line 2 has no name" in wrong.err, "line 3 has no name" in wrong.err] == [True, True]
    bytes_ = duramen("topic", "create", f"{tenant}/dev", "--file", "-", stdin=b"f\n\xff\ng\n")
    assert (bytes_.code, bytes_.out, "line 2" in bytes_.err) == (1, "2 topics created.\n", True)
    assert f"Namespace {tenant}/prod: 30,000 topics" in duramen("namespace", "describe", f"{tenant}/prod").out


def test_topics_are_created_from_columns_of_files(duramen: Run, tenant: str, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", None, "c"]})
    with (tmp_path / "stream.arrows").open("wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    with pa.ipc.new_file(str(tmp_path / "file.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=1)
    parquet.write_table(table, str(tmp_path / "file.parquet"))
    created = {
        "stream.arrows": "3 topics created.",
        "file.arrow": "3 already exist.",
        "file.parquet": "3 already exist.",
    }
    for name, there in created.items():
        made = duramen("topic", "create", f"{tenant}/dev", "--file", str(tmp_path / name))
        assert (made.code, there in made.out, "row 3 has no name" in made.err) == (1, True, True)
    (tmp_path / "wrong.parquet").write_bytes(b"PAR0")
    wrong = duramen("topic", "create", f"{tenant}/dev", "--file", str(tmp_path / "wrong.parquet"))
    assert (wrong.code, "wrong.parquet cannot be read" in wrong.err, "[input-invalid]" in wrong.err) == (1, True, True)


def test_topics_are_found_renamed_moved_aliased_and_deleted(duramen: Run, tenant: str) -> None:
    assert duramen("topic", "create", f"{tenant}/dev/a/b", f"{tenant}/dev/ac", f"{tenant}/prod/d").code == 0
    found = json.loads(duramen("topic", "search", tenant, "--glob", "a*", "--format", "json").out)["topics"]
    assert [one["name"] for one in found] == ["a/b", "ac"]
    renamed = duramen("topic", "rename", f"{tenant}/dev/a/b", "new", "--keep-alias")
    assert renamed.out.splitlines()[1] == f"  alias {tenant}/dev/a/b"
    moved = duramen("topic", "move", f"{tenant}/dev/new", f"{tenant}/prod/new")
    assert moved.out.startswith(f"Topic {tenant}/prod/new: {found[0]['id']}")
    assert f"leads to {tenant}/prod/new" in duramen("topic", "describe", f"{tenant}/dev/a/b").out
    assert duramen("topic", "alias", f"{tenant}/dev/x", f"{tenant}/prod/d").code == 0
    refused = duramen("topic", "delete", f"{tenant}/prod/d", "--yes")
    assert (refused.code, "[topic-has-aliases]" in refused.err) == (1, True)
    assert duramen("topic", "delete", f"{tenant}/dev/x", f"{tenant}/prod/d", "--yes").code == 0
    assert duramen("topic", "list", f"{tenant}/prod").out.splitlines()[1].split() == [
        f"{tenant}/prod/new", found[0]["id"],
    ]  # fmt: skip


def test_what_fails_in_one_namespace_is_named_by_its_path_and_the_rest_is_created(duramen: Run, tenant: str) -> None:
    made = duramen("topic", "create", *(f"{tenant}/{name}" for name in ("none/a", "dev/a", "none/b", "prod/a\t")))
    assert (made.code, made.out) == (1, "1 topic created.\n")
    assert [line.split(": ")[1] for line in made.err.splitlines()[:2]] == [f"{tenant}/none/a", f"{tenant}/none/b"]
    assert "[namespace-not-found]" in made.err
    assert "[inventory-name-invalid]" in made.err
    spaces = ("namespace", "create", "no-such/x", f"{tenant}/new", "--format", "json")
    answer = json.loads(duramen(*spaces).out)
    assert (answer["created"], [one["name"] for one in answer["failed"]]) == (1, ["no-such/x"])


def test_an_alias_of_a_topic_that_was_deleted_with_its_namespace_is_named_and_deleted(
    duramen: Run, tenant: str
) -> None:
    assert duramen("topic", "create", f"{tenant}/prod/topic").code == 0
    assert duramen("topic", "alias", f"{tenant}/dev/alias", f"{tenant}/prod/topic").code == 0
    assert duramen("namespace", "delete", f"{tenant}/prod", "--yes").code == 0
    assert "[topic-alias-dangling]" in duramen("topic", "describe", f"{tenant}/dev/alias").err
    created = duramen("topic", "create", f"{tenant}/dev/alias")
    assert (created.code, created.out) == (1, "0 topics created.\n")
    assert f"`duramen topic delete {tenant}/dev/alias` frees the name [topic-alias-dangling]" in created.err
    assert duramen("topic", "search", tenant).out == ""
    assert f"{tenant}/dev/alias (alias)" in duramen("topic", "search", tenant, "--kind", "dangling-alias").out
    deleted = duramen("topic", "delete", f"{tenant}/dev/alias", "--yes")
    assert (deleted.code, deleted.out) == (0, f"Topic {tenant}/dev/alias deleted.\n")
    assert "[topic-not-found]" in duramen("topic", "delete", f"{tenant}/dev/alias", "--yes").err


def test_updates_change_what_is_given_and_nothing_else(duramen: Run, tenant: str) -> None:
    kinds = (("tenant", tenant, ()), ("namespace", f"{tenant}/dev", ("--subjects", "a.*")))
    for kind, name, more in kinds:
        assert duramen(kind, "update", name, "--label", "a=b", *more).code == 0
        described = duramen(kind, "describe", name).out
        assert "  a=b\n" in described
        nothing = duramen(kind, "update", name)
        assert (nothing.code, "nothing to change: give --label" in nothing.err) == (2, True)
        both = duramen(kind, "update", name, "--label", "c=d", "--no-labels")
        assert (both.code, "exclude each other" in both.err) == (2, True)
        assert duramen(kind, "describe", name).out == described
        assert "a=b" not in duramen(kind, "update", name, "--no-labels").out
        assert ("subject a.*" in duramen(kind, "describe", name).out) is (kind == "namespace")
    for wrong, why in (
        (("namespace", "rename", f"{tenant}/dev", "a/b"), "`duramen namespace move` changes the tenant"),
        (("namespace", "create", "/n"), "tenant is the name of a tenant, not str ''"),
        (("namespace", "describe", f"{tenant}/"), "namespace is TENANT/NAMESPACE"),
        (("topic", "create", "//t"), "namespace is TENANT/NAMESPACE"),
        (("tenant", "delete", tenant, "--account", "", "--yes"), "'--account': it is empty"),
        (("policy", "set", "", "--policy", "retention.ms=1h"), "it is empty: omit it, or give a value"),
        (("policy", "describe", ""), "it is empty"),
        (("topic", "search", ""), "it is empty"),
        (("topic", "list", tenant), f"'{tenant}' is not TENANT/NAMESPACE"),
        (("namespace", "search", ""), "it is empty"),
        (("topic", "create", f"{tenant}/dev/t", "--ndjson"), "--ndjson needs --file"),
        (("topic", "rename", f"{tenant}/dev/t", f"{tenant}/dev/u"), "NEW_NAME is the name without the namespace: 'u'"),
    ):
        refused = duramen(*wrong)
        assert (refused.code > 0, why in refused.err, "Traceback" in refused.err) == (True, True, False), refused.err


def test_searches_that_cannot_be_are_refused(duramen: Run, tenant: str) -> None:
    for option in ("--pattern", "--glob", "--prefix"):
        empty = duramen("topic", "search", tenant, option, "")
        assert (empty.code, f"'{option}'" in empty.err, "it is empty" in empty.err) == (2, True, True)
    unclosed = duramen("topic", "search", tenant, "--glob", "a[b")
    assert (unclosed.code, "'a[b'" in unclosed.err, "[glob-invalid]" in unclosed.err) == (1, True, True)
    assert duramen("topic", "create", *(f"{tenant}/dev/{name}" for name in "abc")).code == 0
    some = duramen("topic", "search", tenant, "--limit", "2")
    assert ([line.split()[0][-1] for line in some.out.splitlines()[1:]], "--limit" in some.err) == (["a", "b"], True)
    rest = duramen("topic", "search", tenant, "--after", some.err.split("--after ")[1].split()[0])
    assert ([line.split()[0][-1] for line in rest.out.splitlines()[1:]], rest.err) == (["c"], "")
    page = json.loads(duramen("topic", "list", f"{tenant}/dev", "--limit", "2", "--format", "json").out)
    more = ("--after", page["next"], "--format", "json")
    last = json.loads(duramen("topic", "list", f"{tenant}/dev", *more).out)
    assert [one["name"] for one in page["topics"] + last["topics"]] == ["a", "b", "c"]
    assert last["next"] is None
    wrong = duramen("topic", "search", tenant, "--after", "GARBAGE")
    assert (wrong.code, "[page-token-invalid]" in wrong.err) == (1, True)


def test_parts_are_searched_and_counted(duramen: Run, tenant: str) -> None:
    assert duramen("namespace", "update", f"{tenant}/dev", "--label", "stage=first").code == 0
    assert duramen("topic", "create", f"{tenant}/dev/a", f"{tenant}/prod/b").code == 0
    found = duramen("tenant", "search", "--glob", f"{tenant[:-1]}?", "--label", "team=blue")
    assert found.out.splitlines()[1].split() == [tenant, "2", "team=blue"]
    assert duramen("tenant", "describe", tenant).out.splitlines()[0].endswith(": 2 namespaces, 2 topics")
    rows = duramen("namespace", "search", tenant, "--pattern", "d.*", "--label", "stage").out.splitlines()[1:]
    assert [row.split() for row in rows] == [[f"{tenant}/dev", "1"]]
    topics = json.loads(duramen("topic", "search", tenant, "--label", "stage=first", "--format", "json").out)["topics"]
    assert [one["name"] for one in topics] == ["a"]
    assert duramen("tenant", "create", f"{tenant}-x", "--account", f"a-{tenant}").code == 0
    listed = duramen("account", "list", "--prefix", f"a-{tenant}").out.splitlines()[1:]
    assert [row.split() for row in listed] == [[f"a-{tenant}", "1", "0"]]
    shown = duramen("account", "describe", f"a-{tenant}")
    assert shown.out == f"Account a-{tenant}: 1 tenant, 0 namespaces, 0 topics\n"
    wrong = duramen("tenant", "create", "x", "--account", "a/b")
    assert (wrong.code, "'a/b' is no name of an account" in wrong.err) == (1, True)


def test_tenants_and_namespaces_are_listed_renamed_and_deleted(duramen: Run, tenant: str) -> None:
    assert duramen("namespace", "rename", f"{tenant}/dev", "test").code == 0
    assert duramen("tenant", "rename", tenant, f"{tenant}-2").code == 0
    assert duramen("tenant", "update", f"{tenant}-2", "--label", "team=red").code == 0
    listed = json.loads(duramen("tenant", "list", "--prefix", tenant, "--format", "json").out)
    assert [(one["name"], one["labels"]) for one in listed] == [(f"{tenant}-2", {"team": "red"})]
    assert [line.split()[0] for line in duramen("namespace", "list", f"{tenant}-2").out.splitlines()[1:]] == [
        f"{tenant}-2/prod", f"{tenant}-2/test",
    ]  # fmt: skip
    assert duramen("namespace", "delete", f"{tenant}-2/test", "--yes").code == 0
    assert (
        duramen("tenant", "delete", f"{tenant}-2", "--yes", "--format", "json").out == f'{{"deleted": "{tenant}-2"}}\n'
    )
    gone = duramen("tenant", "describe", f"{tenant}-2")
    assert (gone.code, "[tenant-not-found]" in gone.err) == (1, True)
