"""Which bindings a subject matches, against matching token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from duramen.doors.nats.subjects import SubjectTree

_TOKEN = st.sampled_from([b"a", b"b", b"c", b"$JS", b"_INBOX", b"_INBOXES"])
_SUBJECT = st.lists(_TOKEN, min_size=1, max_size=5).map(b".".join)


@st.composite
def _binding(draw: st.DrawFn) -> bytes:
    tokens = draw(st.lists(_TOKEN | st.just(b"*"), max_size=4))
    if not tokens or draw(st.booleans()):
        tokens.append(draw(st.sampled_from([b">", b"*", b"a"])))
    return b".".join(tokens)


def _matches(binding: bytes, subject: bytes) -> bool:
    pattern, tokens = binding.split(b"."), subject.split(b".")
    if (tokens[0].startswith(b"$") or tokens[0] == b"_INBOX") and pattern[0] != tokens[0]:
        return False
    if pattern[-1] == b">":
        if len(tokens) < len(pattern):
            return False
        pattern, tokens = pattern[:-1], tokens[: len(pattern) - 1]
    return len(pattern) == len(tokens) and all(p in (b"*", t) for p, t in zip(pattern, tokens, strict=True))


class Bindings(RuleBasedStateMachine):
    """The tree against a set of (binding, thing)."""

    def __init__(self) -> None:
        super().__init__()
        self.tree: SubjectTree[int] = SubjectTree()
        self.model: set[tuple[bytes, int]] = set()

    @rule(binding=_binding(), thing=st.integers(0, 5))
    def bind(self, binding: bytes, thing: int) -> None:
        self.tree.bind(binding, thing)
        self.model.add((binding, thing))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.model:
            gone = data.draw(st.sampled_from(sorted(self.model)))
            self.tree.release(*gone)
            self.model.discard(gone)

    @rule(binding=_binding(), thing=st.integers(0, 5))
    def release_what_may_not_be_there(self, binding: bytes, thing: int) -> None:
        self.tree.release(binding, thing)
        self.model.discard((binding, thing))

    @rule(subject=_SUBJECT)
    def match(self, subject: bytes) -> None:
        found = self.tree.match(subject)
        assert len(found) == len(set(found))
        assert set(found) == {thing for binding, thing in self.model if _matches(binding, subject)}

    @invariant()
    def nothing_is_left_of_nothing(self) -> None:
        if not self.model:
            assert self.tree.empty


TestBindings = Bindings.TestCase


@pytest.mark.parametrize("subject", [b"", b".", b"a..b", b"a.*", b">", b"*", b"\xff.\x00", b"a." * 3000 + b"a"])
def test_any_subject_is_matched(subject: bytes) -> None:
    tree: SubjectTree[str] = SubjectTree()
    tree.bind(b">", "everything")
    tree.bind(b"a.*.>", "below")
    assert "everything" in tree.match(subject)


@given(_SUBJECT)
def test_everything_leaves_out_what_belongs_to_others(subject: bytes) -> None:
    tree: SubjectTree[str] = SubjectTree()
    tree.bind(b">", "x")
    tree.bind(b"*.>", "x")
    tree.bind(b"*", "x")
    first = subject.split(b".")[0]
    assert bool(tree.match(subject)) == (first not in (b"$JS", b"_INBOX"))
    tree.bind(first + b".>", "named")
    assert ("named" in tree.match(subject)) == (b"." in subject)
