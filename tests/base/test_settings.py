"""Settings: the catalogue itself, values from four sources, errors that name what would be right."""

import re
import tomllib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.catalogue.catalogue import BROKER, STREAM
from duramen.base.errors import ConfigInvalid, SettingInvalid
from duramen.base.settings import Setting, Settings, check, config_text, flatten, nearest

EVERY = [*BROKER.values(), *STREAM.values()]


@pytest.mark.parametrize("setting", EVERY, ids=lambda one: f"{one.scope}-{one.name}")
def test_the_catalogue_holds_itself(setting: Setting) -> None:
    assert check(setting, setting.default) == check(setting, str(setting.default)) == setting.default
    assert setting.doc.endswith(".")
    if setting.kind == "integer" and not setting.kafka and setting.unit:
        assert setting.name.removesuffix(".per.second").endswith(setting.unit)
    if setting.broker_default:
        broker = BROKER[setting.broker_default]
        assert (broker.default, broker.kind, broker.choices) == (setting.default, setting.kind, setting.choices)


def test_names_options_and_variables_are_there_once() -> None:
    assert len({setting.option_name for setting in BROKER.values()}) == len(BROKER)
    assert len({setting.environment_name for setting in BROKER.values()}) == len(BROKER)


def test_the_first_source_that_has_a_value_wins() -> None:
    name = "num.partitions"
    options, environment, file = {name: 2}, {"DURAMEN_NUM_PARTITIONS": "3"}, {name: 4}
    taken = [
        Settings(BROKER, options=options, environment=environment, file=file),
        Settings(BROKER, environment=environment, file=file),
        Settings(BROKER, file=file),
        Settings(BROKER),
    ]
    assert [(settings.integer(name), settings.source(name)) for settings in taken] == [
        (2, "option"),
        (3, "environment"),
        (4, "file"),
        (1, "default"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num.partitions", "many", "num.partitions: 'many' does not fit; it must be a whole number, at least 1"),
        ("num.partitions", 0, "num.partitions: 0 does not fit"),
        ("num.partitions", True, "num.partitions: True does not fit"),
        ("num.partitions", 1.5, "num.partitions: 1.5 does not fit"),
        ("memory.limit.bytes", "1KiB", "memory.limit.bytes: '1KiB' does not fit; it must be a number of bytes"),
        ("log.durability", "always", "it must be one of sync, os, memory"),
        ("insecure", "perhaps", "insecure: 'perhaps' does not fit; it must be true or false"),
        ("data.dir", 5, "data.dir: 5 does not fit; it must be text"),
        ("data.dir", "x" * 1000, None),
        ("inventory.account", "", "inventory.account: '' does not fit; it must be 1 to 63 of"),
        ("inventory.account", "a/b", "inventory.account: 'a/b' does not fit"),
        ("inventory.account", "team-1", None),
        ("inventory.metadata.namespace", "acme", "'acme' does not fit; it must be TENANT/NAMESPACE"),
        ("inventory.metadata.namespace", "a/b/c", "'a/b/c' does not fit"),
        ("inventory.metadata.namespace", "a/b", None),
        ("inventory.metadata.namespace", "", None),
    ],
)
def test_wrong_values(name: str, value: object, said: str | None) -> None:
    if said is None:
        assert check(BROKER[name], value) == value
        return
    with pytest.raises(SettingInvalid) as raised:
        check(BROKER[name], value)
    assert said in str(raised.value)


def test_a_streams_errors_are_configs() -> None:
    with pytest.raises(ConfigInvalid, match=r"retention.ms: 'soon' does not fit"):
        check(STREAM["retention.ms"], "soon")


def test_what_read_replicas_may_be_is_said() -> None:
    with pytest.raises(ConfigInvalid, match="must be all, racks, rack:NAME or ids of nodes, comma-separated"):
        check(STREAM["read.replicas"], "zzz")


def test_an_unknown_name_in_a_file() -> None:
    with pytest.raises(
        SettingInvalid, match=r"here.toml: num.partition is not a setting; did you mean num.partitions\?"
    ):
        Settings(BROKER, file={"num.partition": 1}, file_name="here.toml")


def test_an_unknown_variable_is_a_warning_that_names_the_nearest_setting() -> None:
    settings = Settings(BROKER, environment={"HOME": "/", "DURAMEN_X": "1", "DURAMEN_MEMROY_LIMIT_BYTES": "abc"})
    misspelt, unknown = settings.warnings
    assert misspelt == (
        "the environment: DURAMEN_MEMROY_LIMIT_BYTES is not a setting and is ignored;"
        " did you mean DURAMEN_MEMORY_LIMIT_BYTES?"
    )
    assert unknown == "the environment: DURAMEN_X is not a setting and is ignored"


def test_a_known_variable_with_a_bad_value_is_refused_beside_an_unknown_one() -> None:
    with pytest.raises(SettingInvalid, match=r"DURAMEN_NUM_PARTITIONS: num\.partitions: 'x' does not fit"):
        Settings(BROKER, environment={"DURAMEN_X": "1", "DURAMEN_NUM_PARTITIONS": "x"})


def service_links(service: str) -> dict[str, str]:
    """What Kubernetes sets for a Service of that name with a port of each protocol."""
    links = {f"{service}_SERVICE_HOST": "10.0.0.7", f"{service}_SERVICE_PORT": "9092",
             f"{service}_SERVICE_PORT_KAFKA_CLIENTS": "9092", f"{service}_PORT": "tcp://10.0.0.7:9092"}  # fmt: skip
    for number, protocol in ((9092, "tcp"), (53, "udp"), (7, "sctp")):
        name = f"{service}_PORT_{number}_{protocol.upper()}"
        links[name] = f"{protocol}://10.0.0.7:{number}"
        links |= {f"{name}_PROTO": protocol, f"{name}_PORT": str(number), f"{name}_ADDR": "10.0.0.7"}
    return links


@pytest.mark.parametrize("service", ["DURAMEN", "DURAMEN_KAFKA", "DURAMEN_0_HTTP"])
def test_the_variables_of_a_kubernetes_service_are_ignored(service: str) -> None:
    settings = Settings(BROKER, environment=service_links(service) | {"DURAMEN_NUM_PARTITIONS": "3"})
    assert settings.warnings == ()
    assert settings.integer("num.partitions") == 3


@pytest.mark.parametrize("name", ["DURAMEN", "DURAMENT_X", "_DURAMEN_COMPLETE", "DURAMEN_SERVER", "DURAMEN_TRACEBACK"])
def test_variables_of_others(name: str) -> None:
    assert Settings(BROKER, environment={name: "x"}).warnings == ()


@pytest.mark.parametrize("name", ["DURAMEN_HTTP_PORT", "DURAMEN_PORT"])
def test_a_port_that_somebody_wrote_is_not_taken_for_that_of_a_service(name: str) -> None:
    (warning,) = Settings(BROKER, environment={name: "8080"}).warnings
    assert warning.startswith(f"the environment: {name} is not a setting and is ignored")


def test_no_setting_has_a_variable_that_kubernetes_sets() -> None:
    names = {setting.environment_name for setting in BROKER.values()}
    taken = r"DURAMEN_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
    assert [name for name in names if re.fullmatch(taken, name)] == []
    for name, setting in BROKER.items():
        value = config_text(setting.default)
        assert Settings(BROKER, environment={setting.environment_name: value}).source(name) == "environment"


@given(st.sampled_from(EVERY), st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()))
def test_any_value_is_taken_or_refused(setting: Setting, value: object) -> None:
    refused = ""
    try:
        found = check(setting, value)
    except (SettingInvalid, ConfigInvalid) as error:
        refused = str(error)
    else:
        assert check(setting, found) == found
        assert check(setting, str(found)) == found
    assert not refused or refused.startswith(f"{setting.name}: ")


def test_choices_as_kafka_writes_them() -> None:
    assert check(STREAM["cleanup.policy"], "Delete, Compact") == "compact,delete"


def test_tables_become_names() -> None:
    faults: list[SettingInvalid] = []
    table = {"wal": {"max": {"bytes": 1}, "file.bytes": 3}, "node.id": 2}
    flat = flatten(table, file_name="here.toml", faults=faults)
    assert (flat, faults) == ({"wal.max.bytes": 1, "wal.file.bytes": 3, "node.id": 2}, [])


def test_a_name_in_two_ways() -> None:
    faults: list[SettingInvalid] = []
    document = tomllib.loads('"wal.max.bytes" = 1\nwal."file.bytes" = 1\n[wal.max]\nbytes = 1\n[wal.file]\nbytes = 1\n')
    flatten(document, file_name="here.toml", faults=faults)
    assert [str(fault) for fault in faults] == [
        "here.toml: wal.max.bytes is set twice, as a name in quotes and in a table",
        "here.toml: wal.file.bytes is set twice, as a name in quotes and in a table",
    ]


@pytest.mark.parametrize("catalogue", [BROKER, STREAM], ids=["broker", "stream"])
def test_no_name_is_a_table_of_others(catalogue: Mapping[str, Setting]) -> None:
    # Otherwise TOML could set only one of the two. Configs of streams are not read from TOML: `keyed` may be one.
    tables = {name.rpartition(".")[0] for name in catalogue}
    tables |= {".".join(table.split(".")[:count]) for table in tables for count in range(1, table.count(".") + 1)}
    assert [name for name in catalogue if name in tables] == (["keyed"] if catalogue is STREAM else [])


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (BROKER["wal.max.bytes"], "1GiB", 1 << 30),
        (BROKER["log.retention.ms"], "7d", 604_800_000),
        (BROKER["log.retention.ms"], "-1", -1),
        (BROKER["offsets.retention.minutes"], "7d", 10_080),
        (BROKER["offsets.retention.minutes"], "10080", 10_080),
        (STREAM["retention.bytes"], "1.5 MB", 1_500_000),
        (STREAM["flush.ms"], "2s", 2000),
    ],
)
def test_sizes_and_times_as_people_write_them(setting: Setting, text: str, value: int) -> None:
    assert check(setting, text) == value


@pytest.mark.parametrize("text", ["90s", "x", "", "1.5"])
def test_no_whole_minutes(text: str) -> None:
    with pytest.raises(SettingInvalid, match="it must be a number of minutes such as 10080 or 7d"):
        check(BROKER["offsets.retention.minutes"], text)


def test_the_source_is_in_the_error() -> None:
    with pytest.raises(SettingInvalid, match=r"^here.toml: node.id: 'x' does not fit"):
        Settings(BROKER, file={"node.id": "x"}, file_name="here.toml")
    with pytest.raises(SettingInvalid, match=r"^DURAMEN_NODE_ID: node.id: 'x' does not fit"):
        Settings(BROKER, environment={"DURAMEN_NODE_ID": "x"})


def test_every_fault_where_they_are_collected() -> None:
    faults: list[SettingInvalid] = []
    file = {"node.id": "x", "num.partitions": 0, "nod.id": 1, "data.dir": "here"}
    settings = Settings(BROKER, file=file, faults=faults)
    assert [str(fault).split(": ")[1].partition(" ")[0] for fault in faults] == ["nod.id", "node.id", "num.partitions"]
    assert (settings.unfit, settings.integer("node.id")) == ({"node.id", "num.partitions"}, 1)
    assert settings.text("data.dir") == "here"


def test_where_each_value_comes_from() -> None:
    settings = Settings(
        BROKER, options={"node.id": 2}, environment={"DURAMEN_NUM_PARTITIONS": "3"}, file={"data.dir": "here"},
        file_name="here.toml",
    )  # fmt: skip
    names = ["node.id", "num.partitions", "data.dir", "insecure"]
    assert [settings.origin(name) for name in names] == ["--node-id", "DURAMEN_NUM_PARTITIONS", "here.toml", "default"]


def test_the_nearest_name() -> None:
    assert nearest("retention.sm", STREAM) == "; did you mean retention.ms?"
    assert nearest("zzz", STREAM) == ""
