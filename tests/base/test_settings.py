"""Settings: the catalogue itself, values from four sources, errors that name what would be right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.catalogue import BROKER, STREAM
from duramen.base.errors import ConfigInvalid, SettingInvalid
from duramen.base.settings import Setting, Settings, check, flatten, nearest

EVERY = [*BROKER.values(), *STREAM.values()]


@pytest.mark.parametrize("setting", EVERY, ids=lambda one: f"{one.scope}-{one.name}")
def test_the_catalogue_holds_itself(setting: Setting) -> None:
    assert check(setting, setting.default) == check(setting, str(setting.default)) == setting.default
    assert setting.doc.endswith(".")
    if setting.kind == "integer" and not setting.kafka and setting.unit:
        assert setting.name.endswith(setting.unit)
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


def test_an_unknown_name_in_a_file() -> None:
    with pytest.raises(
        SettingInvalid, match=r"here.toml: num.partition is not a setting; did you mean num.partitions\?"
    ):
        Settings(BROKER, file={"num.partition": 1}, file_name="here.toml")


def test_an_unknown_variable() -> None:
    with pytest.raises(SettingInvalid) as raised:
        Settings(BROKER, environment={"HOME": "/", "DURAMEN_MEMROY_LIMIT_BYTES": "abc"})
    assert str(raised.value) == (
        "the environment: DURAMEN_MEMROY_LIMIT_BYTES is not a setting; did you mean DURAMEN_MEMORY_LIMIT_BYTES?"
    )


@pytest.mark.parametrize(
    "name",
    ["DURAMEN", "DURAMENT_X", "_DURAMEN_COMPLETE", "DURAMEN_SERVER", "DURAMEN_TRACEBACK", "DURAMEN_SERVICE_HOST",
     "DURAMEN_SERVICE_PORT", "DURAMEN_SERVICE_PORT_KAFKA", "DURAMEN_PORT", "DURAMEN_PORT_9092_TCP",
     "DURAMEN_PORT_9092_TCP_ADDR", "DURAMEN_KAFKA_SERVICE_HOST"],
)  # fmt: skip
def test_variables_of_others(name: str) -> None:
    assert Settings(BROKER, environment={name: "x"}).source("num.partitions") == "default"


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
    assert flatten({"wal": {"max": {"bytes": 1}}, "node.id": 2}) == {"wal.max.bytes": 1, "node.id": 2}


def test_the_nearest_name() -> None:
    assert nearest("retention.sm", STREAM) == "; did you mean retention.ms?"
    assert nearest("zzz", STREAM) == ""
