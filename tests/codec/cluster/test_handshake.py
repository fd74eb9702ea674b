"""Two nodes prove the secret to each other, or learn why not; strangers get nowhere."""

import hmac
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duramen.codec.cluster.channels import PeerChannel
from duramen.codec.cluster.handshake import (
    ANYBODY,
    VERSION,
    Handshake,
    HandshakeIdentity,
    HandshakeReason,
    HandshakeSide,
    HandshakeState,
)

SECRET = b"s" * 32
ONE, TWO = HandshakeIdentity(1, UUID(int=11)), HandshakeIdentity(2, UUID(int=22))
CLUSTER, OTHER = UUID(int=77), UUID(int=88)
HELLO_BYTES = 83
LARGEST_BYTES = 83


def dialer(me: HandshakeIdentity = ONE, secret: bytes = SECRET, looked_for: int = ANYBODY) -> Handshake:
    return Handshake(HandshakeSide.DIALER, me, secret, b"d" * 32, channel=PeerChannel.DATA, looked_for=looked_for)


def listener(me: HandshakeIdentity = TWO, secret: bytes = SECRET, *, rivals: bool = False) -> Handshake:
    return Handshake(HandshakeSide.LISTENER, me, secret, b"l" * 32, rival=lambda _: rivals)


def feed(to: Handshake, data: bytes, cut: int) -> bytes:
    """Hand over what came, `cut` bytes at a time; what it does not want is left."""
    while data and to.wanted_bytes:
        count = min(cut, to.wanted_bytes, len(data))
        to.receive(data[:count])
        data = data[count:]
    return data


def run(one: Handshake, other: Handshake, cut: int = 1000) -> None:
    """Carry bytes to and fro until there are none."""
    while True:
        there, back = one.take(), other.take()
        if not there and not back:
            return
        assert feed(other, there, cut) == b"" or other.state is HandshakeState.REFUSED
        assert feed(one, back, cut) == b"" or one.state is HandshakeState.REFUSED


def told(handshake: Handshake) -> tuple[HandshakeReason, str]:
    assert handshake.state is HandshakeState.REFUSED
    assert handshake.refusal is not None
    assert handshake.wanted_bytes == 0
    return handshake.refusal


@given(
    cut=st.integers(1, 100), clusters=st.sampled_from([(None, None), (CLUSTER, None), (None, CLUSTER), (CLUSTER,) * 2])
)
def test_both_prove_the_secret(cut: int, clusters: tuple[UUID | None, UUID | None]) -> None:
    one, two = ONE._replace(cluster_id=clusters[0]), TWO._replace(cluster_id=clusters[1])
    a, b = dialer(one, looked_for=2), listener(two)
    run(a, b, cut)
    assert (a.state, b.state) == (HandshakeState.PROVEN, HandshakeState.PROVEN)
    assert (a.refusal, b.refusal) == (None, None)
    assert (a.peer, b.peer) == ((two, PeerChannel.DATA), (one, PeerChannel.DATA))
    assert (a.wanted_bytes, b.wanted_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("a", "b", "reason", "text"),
    [
        (
            dialer(secret=b"x" * 32), listener(), HandshakeReason.SECRET,
            "the two nodes do not have the same cluster secret",
        ),
        (
            dialer(ONE._replace(cluster_id=CLUSTER)), listener(TWO._replace(cluster_id=OTHER)), HandshakeReason.CLUSTER,
            f"node 1 is of the cluster {CLUSTER}, node 2 of the cluster {OTHER}",
        ),
        (dialer(looked_for=3), listener(), HandshakeReason.NODE, "node 3 was expected, and node 2 is there"),
        (
            dialer(ONE._replace(node_id=2)), listener(), HandshakeReason.DUPLICATE,
            f"two nodes have the node id 2, with the directory {UUID(int=11)} and {UUID(int=22)}",
        ),
        (
            dialer(), listener(rivals=True), HandshakeReason.DUPLICATE,
            f"two nodes have the node id 1, with the directory {UUID(int=11)} and one that is connected already",
        ),
        (dialer(), listener(ONE), HandshakeReason.ITSELF, "node 1 has dialed itself"),
    ],
)  # fmt: skip
def test_both_sides_say_the_same_line(a: Handshake, b: Handshake, reason: HandshakeReason, text: str) -> None:
    run(a, b)
    assert told(a) == told(b) == (reason, text)


def test_another_version_is_refused_before_its_hello_is_read() -> None:
    newer = bytearray(dialer().take())
    newer[8:10] = (2, 4)
    old = listener()
    old.receive(newer[:10])
    text = "of the protocol between nodes one speaks version 1, the other versions 2 to 4"
    assert told(old)[0] is HandshakeReason.VERSION
    assert text in told(old)[1]
    # The dialer learns of it from the listener's hello, which a newer one answers in the same way.
    answer = bytearray(old.take())
    assert len(answer) == HELLO_BYTES
    answer[8:10] = (2, 2)
    one = dialer()
    one.take()
    one.receive(answer[:10])
    assert told(one)[0] is HandshakeReason.VERSION
    assert "the other version 2:" in told(one)[1]
    assert one.take() == b""


def test_the_newest_version_that_both_know_is_spoken() -> None:
    later = bytearray(dialer().take())
    later[9] = 200
    old = listener()
    feed(old, bytes(later), 1000)
    assert (old.state, old.version) == (HandshakeState.PROOF, 1)


def test_nothing_is_said_to_who_does_not_begin_with_a_hello() -> None:
    for words in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"DURAMEX"):
        door = listener()
        feed(door, words, 3)
        assert told(door) == (HandshakeReason.STRANGE, "what it says is not the protocol between Duramen's nodes")
        assert door.take() == b""


def test_a_stranger_gets_no_proof() -> None:
    """Not even for a proof of its own that is wrong: what the secret went into never leaves."""
    door = listener()
    feed(door, dialer().take(), 1000)
    door.take()
    feed(door, bytes(32), 1000)
    assert told(door)[0] is HandshakeReason.SECRET
    assert door.take() == bytes([HandshakeReason.SECRET]) + bytes(32)


def test_nothing_can_be_sent_back() -> None:
    """Who has no secret and echoes what a node says to it, on this or on another connection, proves nothing."""
    one = dialer()
    hello = one.take()
    feed(one, hello, 1000)
    proof = one.take()
    assert len(proof) == 32
    feed(one, b"\0" + proof, 1000)
    assert told(one)[0] is HandshakeReason.SECRET
    # The proof that a dialer gave to a false listener, used towards a true one.
    lured, door = dialer(), listener()
    feed(door, lured.take(), 1000)
    false_hello = bytearray(door.take())
    false_hello[-1] ^= 1
    feed(lured, bytes(false_hello), 1000)
    feed(door, lured.take(), 1000)
    assert told(door)[0] is HandshakeReason.SECRET


@given(at=st.integers(0, 2 * HELLO_BYTES + 32 + 33 - 1), flip=st.integers(1, 255))
@example(at=2 * HELLO_BYTES + 32, flip=int(HandshakeReason.CLUSTER))
def test_no_byte_of_it_can_be_changed_on_the_way(at: int, flip: int) -> None:
    a, b = dialer(), listener()
    passed = 0

    def carry(data: bytes) -> bytes:
        nonlocal passed
        changed = bytearray(data)
        if passed <= at < passed + len(data):
            changed[at - passed] ^= flip
        passed += len(data)
        return bytes(changed)

    feed(b, carry(a.take()), 1000)
    feed(a, carry(b.take()), 1000)
    feed(b, carry(a.take()), 1000)
    feed(a, carry(b.take()), 1000)
    assert a.state is not HandshakeState.PROVEN
    a.lose()
    assert told(a)


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
def test_whatever_comes_it_holds_little_and_proves_nothing(chunks: list[bytes], dials: bool) -> None:
    node = dialer() if dials else listener()
    hello = node.take()
    sent = len(hello)
    for chunk in [hello if dials else dialer().take(), *chunks]:
        feed(node, chunk, 7)
        assert node.wanted_bytes <= LARGEST_BYTES
        sent += len(node.take())
    assert node.state is not HandshakeState.PROVEN
    assert sent <= HELLO_BYTES + 33 + 32


def test_an_unknown_channel_or_a_node_id_that_cannot_be() -> None:
    hello = dialer().take()
    for at, value in ((HELLO_BYTES - 33, 9), (10, 0x80)):
        wrong = bytearray(hello)
        wrong[at] = value
        door = listener()
        feed(door, bytes(wrong), 1000)
        assert told(door)[0] is HandshakeReason.STRANGE


def test_time_and_the_end_of_the_connection() -> None:
    late, lost, done = listener(), dialer(), listener()
    late.expire()
    assert told(late) == (HandshakeReason.SILENT, "it did not prove the cluster secret in time")
    lost.lose()
    assert told(lost)[0] is HandshakeReason.LOST
    lost.expire()
    assert told(lost)[0] is HandshakeReason.LOST
    run(dialer(), done)
    done.lose()
    assert done.state is HandshakeState.PROVEN


def test_what_callers_may_not_do() -> None:
    with pytest.raises(ValueError, match="a nonce has 32 bytes, not 3"):
        Handshake(HandshakeSide.DIALER, ONE, SECRET, b"abc")
    with pytest.raises(ValueError, match="84 bytes where 83 are wanted"):
        listener().receive(bytes(84))


def test_a_refusal_that_this_version_does_not_know() -> None:
    a, b = dialer(), listener()
    hellos = [a.take()]
    feed(b, hellos[0], 1000)
    hellos.append(b.take())
    feed(a, hellos[1], 1000)
    refusal = bytes([50])
    said = b"".join([b"duramen cluster %d listener\n" % VERSION, *hellos, refusal])
    feed(a, refusal + hmac.digest(SECRET, said, "sha256"), 1000)
    assert told(a)[0] is HandshakeReason.STRANGE
