"""What a machine wants done is done once, in its order, and nothing behind what waits."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.rpc.effect_runner import EffectRunner


class Step:
    """Something to be done, and what the machine wants next once it is."""

    def __init__(self, number: int, *, waits: bool, after: int) -> None:
        self.number = number
        self.waits = waits
        self.after = after


class Cutting(Step):
    """The same, of the kind that cuts."""


class Machine:
    """Wants steps, and carries them out on an agenda."""

    def __init__(self) -> None:
        self.wanted: list[Step] = []
        self.made = 0
        self.done: list[int] = []
        self.cuts = 0
        self.agenda: EffectRunner[Step] = EffectRunner(self.take, self.do, (Cutting,))

    def want(self, *, waits: bool, cuts: bool, after: int) -> None:
        kind = Cutting if cuts else Step
        self.wanted.append(kind(self.made, waits=waits or cuts, after=after))
        self.made += 1
        self.cuts += cuts

    def take(self) -> list[Step]:
        wanted, self.wanted = self.wanted, []
        return wanted

    def do(self, step: Step) -> None:
        assert not self.agenda.waits
        self.done.append(step.number)
        for _ in range(step.after):
            self.want(waits=False, cuts=False, after=0)
        self.agenda.go_on()  # as whoever is told of a step may
        assert self.done[-1] == step.number
        if step.waits:
            self.agenda.wait()
            self.waiting = step

    def finish(self) -> None:
        if self.agenda.waits:
            self.agenda.cuts_done += isinstance(self.waiting, Cutting)
            self.agenda.resume()
            self.agenda.go_on()


WANTS = st.tuples(st.booleans(), st.booleans(), st.integers(0, 2))


@given(st.lists(st.one_of(WANTS, st.just("finish"), st.just("take"))))
def test_all_is_done_in_order_and_nothing_overtakes_what_waits(steps: list[object]) -> None:
    machine = Machine()
    for step in steps:
        if isinstance(step, tuple):
            waits, cuts, after = step
            machine.want(waits=waits, cuts=cuts, after=after)
            machine.agenda.go_on()
        elif step == "finish":
            machine.finish()
        else:
            machine.agenda.take()
        assert machine.done == list(range(len(machine.done)))
        assert machine.agenda.uncut == (machine.cuts == machine.agenda.cuts_done)
        assert machine.agenda.idle == (not machine.agenda.waits and len(machine.done) == machine.made)
    while machine.agenda.waits:
        machine.finish()
    machine.agenda.go_on()
    assert machine.done == list(range(machine.made))
    assert machine.agenda.uncut


def test_what_ended_does_nothing_more() -> None:
    machine = Machine()
    machine.want(waits=True, cuts=False, after=0)
    machine.want(waits=False, cuts=False, after=0)
    machine.agenda.go_on()
    machine.agenda.end()
    machine.finish()
    assert machine.done == [0]
