"""Topics of the inventory as groups on a cluster know them: what offsets are stored under, and the names of now."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.coordinators.inventory.node import ACCOUNT, at
from tests.coordinators.inventory.several import SHARDS, SeveralInventories

from duramen.base.errors import DuramenError, NotLeader, RequestInvalid, StreamNotFound
from duramen.base.positions import At, Last, Position, Since
from duramen.base.principal import ANONYMOUS
from duramen.base.units import MIB
from duramen.codec.batch import BatchInput, encode
from duramen.coordinators.group.offset_resets import OffsetReset, PlannedOffsets
from duramen.coordinators.group.topics import LASTING, LightFound
from duramen.service.admission import AdmissionRules, Admitted
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.memory import Room
from duramen.service.light_topics import LastingId, LightTopic
from duramen.sim.broker import CallbackResult

RULES: AdmissionRules[list[Any]] = AdmissionRules(names=lambda keys: keys)


def admitted(several: SeveralInventories, node: int, *keys: Any) -> Admitted:
    answer: CallbackResult[Admitted] = CallbackResult()
    several.services[node].admit(ANONYMOUS, RULES, list(keys), answer)
    several.wait(answer)
    return answer.value


def kafka(path: str) -> str:
    return path.replace("/", ".")


def known(several: SeveralInventories, node: int, *stored: str) -> None:
    answer: CallbackResult[None] = CallbackResult()
    several.broker(node).groups.topics.when_known(stored, answer)
    several.wait(answer)
    assert answer.value is None


class Model:
    """What names lead to: a topic, or an alias of one."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.gone: set[str] = set()

    def check(self, several: SeveralInventories, node: int) -> None:
        every = {**self.names, **self.aliases}
        found = admitted(several, node, *map(kafka, every), *(LastingId(stored[1:]) for stored in self.names.values()))
        for path, stored in every.items():
            light = found.light(kafka(path))
            assert light is not None
            assert (light.name, light.stored_as) == (kafka(path), stored)
        for path, stored in self.names.items():
            light = found.light(LastingId(stored[1:]))
            assert light is not None
            assert (light.name, light.stored_as) == (kafka(path), stored)
        topics = several.broker(node).groups.topics
        known(several, node, *self.names.values(), *self.gone)
        for path, stored in self.names.items():
            first, *others = topics.names_of(stored)
            aliases = {kafka(alias) for alias, of in self.aliases.items() if of == stored}
            assert (first, set(others), topics.is_gone(stored)) == (kafka(path), aliases, False)
        assert all(topics.is_gone(stored) and not topics.names_of(stored) for stored in self.gone)


@pytest.mark.parametrize("seed", range(3))
def test_every_node_knows_the_names_of_now(seed: int) -> None:
    chance, several, model = random.Random(seed), SeveralInventories(), Model()
    for _ in range(25):
        step(chance, several, model)
        if chance.random() < 0.1:
            several.take_over(chance.randrange(1, 4), chance.randrange(SHARDS))
        if chance.random() < 0.3:
            model.check(several, chance.randrange(1, 4))
    for node in several.hands:
        model.check(several, node)


def step(chance: random.Random, several: SeveralInventories, model: Model) -> None:
    node, draw = chance.randrange(1, 4), chance.random()
    path = f"{chance.choice(('acme', 'bolt'))}/{chance.choice(('dev', 'prod'))}/{chance.choice('abc')}"
    taken = path in model.names or path in model.aliases
    if draw < 0.4 and not taken:
        several.create(node, path.rpartition("/")[0], path.rpartition("/")[2])
        model.names[path] = LASTING + several.read(node, lambda inventory: inventory.find(ACCOUNT, at(path)).id).hex
    elif model.names:
        old = chance.choice(sorted(model.names))
        stored = model.names[old]
        if draw < 0.7 and not taken:
            keeps = chance.random() < 0.3
            several.move(node, old, path, keep_alias=keeps)
            model.names[path] = model.names.pop(old)
            model.aliases |= {old: stored} if keeps else {}
        elif draw < 0.8 and not taken:
            several.alias(node, path, old)
            model.aliases[path] = stored
        elif stored not in model.aliases.values():
            several.delete(node, old)
            model.gone.add(model.names.pop(old))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_they_do_for_many_seeds(seed: int) -> None:
    test_every_node_knows_the_names_of_now(seed)


def test_the_leaders_of_topics_tell_how_far_offsets_are_behind() -> None:
    several = SeveralInventories()
    names = [f"t{number}" for number in range(6)]
    several.create(1, "acme/dev", *names)
    offsets: dict[str, list[int]] = {}
    for name in names:
        for node in several.hands:
            light = admitted(several, node, f"acme.dev.{name}").light(f"acme.dev.{name}")
            assert light is not None
            if light.partition.leads:
                batch = encode([BatchInput(5, None, b"x"), BatchInput(6, None, b"y")])
                answer: CallbackResult[object] = CallbackResult()
                light.append(memoryview(batch), answer, all_replicas=True)
                several.settle()
                offset, error = answer.calls[0]
                assert error is None
                offsets[light.stored_as] = [offset, offset + 1]
    assert len(offsets) == len(names)
    several.move(2, "acme/dev/t0", "acme/prod/moved")
    wanted = [(stored, places[1]) for stored, places in offsets.items()]
    for node in several.hands:
        found = behind(several, node, [*wanted, ("nothing", 5), (LASTING + "0" * 32, 5)])
        assert found[-2:] == [None, None]
        lags = {one.name: one.lag and (one.lag.records, one.lag.first_ms) for one in found if one is not None}
        assert lags == {f"acme.dev.{name}": (1, 6) for name in names[1:]} | {"acme.prod.moved": (1, 6)}
    several.cut.add(3)
    unknown = [one for one in behind(several, 1, wanted) if one is None or one.lag is None]
    assert len(unknown) < len(wanted)


def behind(several: SeveralInventories, node: int, wanted: list[tuple[str, int]]) -> list[LightFound | None]:
    answer: CallbackResult[list[LightFound | None]] = CallbackResult()
    several.broker(node).groups.topics.find_behind(wanted, answer)
    several.wait(answer)
    return answer.value


class Resetting(SeveralInventories):
    """Topics `t0` and so on of acme/dev, with ten records each, whose shards different nodes lead."""

    def __init__(self) -> None:
        super().__init__()
        for node in self.hands:
            Forwarding(self.broker(node), self.placed[node], Room(MIB))
        self.ensure_offsets()
        (self.home,) = [node for node in self.hands if self.broker(node).offsets.coordinates("g")]
        self.offsets: dict[str, list[int]] = {}
        self.leaders: dict[str, int] = {}
        for number in range(6):
            name = f"acme.dev.t{number}"
            self.create(1 + number % 3, "acme/dev", f"t{number}")
            (self.leaders[name],) = [node for node in self.hands if self.topic(node, name).partition.leads]
        for number in range(10):
            for name, leader in self.leaders.items():
                batch = encode([BatchInput(1000 + number, None, b"x")])
                answer: CallbackResult[object] = CallbackResult()
                self.topic(leader, name).append(memoryview(batch), answer, all_replicas=True)
                self.settle()
                offset, error = answer.calls[0]
                assert error is None
                self.offsets.setdefault(name, []).append(offset)

    def topic(self, node: int, name: str) -> LightTopic:
        light = admitted(self, node, name).light(name)
        assert light is not None
        return light

    def reset(self, to: Position, *names: str, **more: Any) -> list[PlannedOffsets]:
        answer: CallbackResult[list[PlannedOffsets]] = CallbackResult()
        wish = OffsetReset("g", to, [*names] if names else None, **more)
        self.broker(self.home).resets.reset(wish, answer)
        self.wait(answer)
        return answer.value


def test_a_reset_asks_the_leaders_of_topics_for_their_bounds() -> None:
    several = Resetting()
    assert len(set(several.leaders.values())) == 2
    before: dict[str, int | None] = dict.fromkeys(several.offsets)
    target = several.offsets["acme.dev.t0"][3]
    expected_places: list[tuple[Position, Callable[[list[int]], int]]] = [
        ("start", lambda places: places[0]),
        ("end", lambda places: places[9] + 1),
        (At(target), lambda places: max(places[0], min(target, places[9] + 1))),
        (Last(3), lambda places: places[7]),
        (Since(1006), lambda places: places[6]),
        (Since(5000), lambda places: places[9] + 1),
    ]
    for to, place_of in expected_places:
        expected = [PlannedOffsets(name, 0, before[name], place_of(places)) for name, places in several.offsets.items()]
        assert several.reset(to, *several.offsets, dry_run=True) == expected
        names = () if before["acme.dev.t0"] is not None else several.offsets
        assert sorted(several.reset(to, *names)) == expected
        before = {one.stream: one.after for one in expected}


def test_a_reset_names_topics_as_they_are_called_now() -> None:
    several = Resetting()
    several.reset("start", *several.offsets)
    old, new, alias = "acme.dev.t0", "bolt.prod.moved", "acme.prod.alias"
    several.move(1, "acme/dev/t0", "bolt/prod/moved")
    several.create(2, "acme/dev", "t0")
    several.alias(3, "acme/prod/alias", "bolt/prod/moved")
    several.delete(2, "acme/dev/t1")
    first, last = several.offsets[old][0], several.offsets[old][9]
    assert several.reset("end", alias) == [PlannedOffsets(alias, 0, first, last + 1)]
    assert several.reset("start", new) == [PlannedOffsets(new, 0, last + 1, first)]
    (of_old,) = several.reset("start", old)
    assert of_old.before is None
    assert {one.stream for one in several.reset("end")} == {new, *several.offsets} - {"acme.dev.t1"}
    for missing in ("acme.dev.t1", "acme.dev.nothing", "acme.nowhere.a"):
        with pytest.raises(StreamNotFound, match=missing):
            several.reset("start", missing)


def test_a_reset_says_which_topic_has_no_leader() -> None:
    several = Resetting()
    name = next(name for name, leader in several.leaders.items() if leader != several.home)
    several.reset("start", name)
    several.elect(several.topic(several.leaders[name], name).partition.place, None)
    with pytest.raises(NotLeader, match=f"topic {name} are unknown"):
        several.reset("end", name)
    several.elect(several.topic(1, name).partition.place, several.leaders[name])
    assert several.reset("end", name) == [
        PlannedOffsets(name, 0, several.offsets[name][0], several.offsets[name][9] + 1)
    ]
    with pytest.raises(RequestInvalid, match=f"records of {name} are more than 10,000"):
        several.reset(Last(10_001), name)


def test_what_a_group_has_used_is_there_under_its_name_of_now() -> None:
    several = SeveralInventories()
    several.create(1, "acme/dev", "a")
    topics = several.broker(2).groups.topics
    light = admitted(several, 2, "acme.dev.a").light("acme.dev.a")
    assert light is not None
    topics.use("acme.dev.a", light.stored_as)
    several.move(1, "acme/dev/a", "acme/prod/b")
    before = LastingId.of_stored(topics.used("acme.dev.a") or "")
    found = admitted(several, 2, "acme.dev.a", before)
    assert found.light("acme.dev.a") is None
    renamed = found.light(before) if before is not None else None
    assert renamed is not None
    assert (renamed.name, renamed.stored_as) == ("acme.prod.b", light.stored_as)
    assert LastingId.of_stored("acme.dev.a") is LastingId.of_stored("~no") is None
    with pytest.raises(DuramenError):
        several.read(1, lambda inventory: inventory.by_id(LastingId(int=7)))
