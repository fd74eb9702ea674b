"""The handshake with which two nodes prove that they have the cluster's secret, before anything else is read. Pure.

    dialer    hello     8 bytes magic, uint8 oldest and newest version spoken, int32 node id, 16 bytes directory id,
                        16 bytes cluster id (zeros: none yet), int32 node id looked for (-1: whoever is there),
                        uint8 channel, 32 bytes nonce
    listener  hello     the same of itself, with the dialer's channel, and -1
    dialer    proof     32 bytes
    listener  verdict   uint8 reason of a refusal (0: none), 32 bytes proof; zeros where the dialer's was wrong

A proof is the HMAC-SHA256 with the secret over the name of the proving side, the agreed version, both hellos, and the
listener's reason. So it is valid only for these two nonces, node ids, directories and cluster ids, and cannot be
replayed. The dialer proves first: a stranger receives nothing that depends on the secret.

Every message has a fixed size, and a side never reads more: `wanted_bytes` bounds the memory that a peer can use.
"""

import hmac
import struct
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.ports import Buffer
from duramen.codec.cluster.channels import PeerChannel

__all__ = [
    "ANYBODY",
    "NONCE_BYTES",
    "VERSION",
    "Handshake",
    "HandshakeIdentity",
    "HandshakeReason",
    "HandshakeRefusal",
    "HandshakeSide",
    "HandshakeState",
    "Peer",
]

VERSION: Final = 1
NONCE_BYTES: Final = 32
ANYBODY: Final = -1
"""Looked for where only an address is known."""

_MAGIC: Final = b"DURAMEN\n"
_PREFACE: Final = struct.Struct(">8sBB")
_HELLO: Final = struct.Struct(">8sBBi16s16siB32s")
_VERDICT: Final = struct.Struct(">B32s")
_PROOF_BYTES: Final = 32
_WELCOME: Final = 0
_NO_PROOF: Final = bytes(_PROOF_BYTES)


class HandshakeSide(Enum):
    """The role of a side."""

    DIALER = "dialer"
    LISTENER = "listener"


class HandshakeState(Enum):
    """The awaited message of the peer, or the result."""

    HELLO = "its hello"
    PROOF = "its proof"
    PROVEN = "both have proven the secret"
    REFUSED = "there will be no connection"


class HandshakeReason(IntEnum):
    """Why there is no connection. The first ones travel in a verdict."""

    SECRET = 1
    CLUSTER = 2
    NODE = 3
    DUPLICATE = 4
    ITSELF = 5
    VERSION = 100
    STRANGE = 101
    SILENT = 102
    LOST = 103


class HandshakeRefusal(NamedTuple):
    """Why there is no connection, and that in words which are true for both sides."""

    reason: HandshakeReason
    text: str


class HandshakeIdentity(NamedTuple):
    """A node's identity; `cluster_id` is None before it belongs to a cluster."""

    node_id: int
    directory_id: UUID
    cluster_id: UUID | None = None


class Peer(NamedTuple):
    """The peer's identity, and the purpose of the connection."""

    identity: HandshakeIdentity
    channel: PeerChannel


class _Hello(NamedTuple):
    oldest: int
    newest: int
    identity: HandshakeIdentity
    looked_for: int
    channel: PeerChannel


_TABLE: Final[Mapping[tuple[HandshakeSide, HandshakeState], tuple[int, HandshakeState]]] = MappingProxyType(
    {
        (HandshakeSide.DIALER, HandshakeState.HELLO): (_HELLO.size, HandshakeState.PROOF),
        (HandshakeSide.DIALER, HandshakeState.PROOF): (_VERDICT.size, HandshakeState.PROVEN),
        (HandshakeSide.LISTENER, HandshakeState.HELLO): (_HELLO.size, HandshakeState.PROOF),
        (HandshakeSide.LISTENER, HandshakeState.PROOF): (_PROOF_BYTES, HandshakeState.PROVEN),
    }
)
"""The bytes that a side accepts in a state, and the state that follows if they are valid."""


class Handshake:
    """One side of one connection. After each call, `take` returns the bytes to send."""

    def __init__(
        self,
        side: HandshakeSide,
        me: HandshakeIdentity,
        secret: bytes,
        nonce: bytes,
        *,
        channel: PeerChannel = PeerChannel.CONTROL,
        looked_for: int = ANYBODY,
        rival: Callable[[HandshakeIdentity], bool] = lambda _: False,
    ) -> None:
        """`nonce` is 32 bytes that were never used before; `channel` and `looked_for` are a dialer's request.

        `rival` tells a listener whether another node than this identity is connected under its node id.
        """
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self.side: Final = side
        self.state = HandshakeState.HELLO
        self.refusal: HandshakeRefusal | None = None
        self.peer: Peer | None = None
        self.version = VERSION
        self.me: Final = me
        self._secret = secret
        self._nonce = nonce
        self._rival = rival
        self._wants = (looked_for, channel)
        self._held = bytearray()
        self._out: list[bytes] = []
        self._hellos: dict[HandshakeSide, bytes] = {}
        self._spoken = (VERSION, VERSION)  # by the peer
        if side is HandshakeSide.DIALER:
            self._greet(looked_for, channel)

    @property
    def wanted_bytes(self) -> int:
        """The number of bytes that it accepts from the peer now; 0 after the end."""
        step = _TABLE.get((self.side, self.state))
        return 0 if step is None else step[0] - len(self._held)

    def take(self) -> bytes:
        """The bytes to send since the last call."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def receive(self, data: Buffer) -> None:
        """Bytes arrived, `wanted_bytes` at most. Known errors are refused at once."""
        if len(data) > self.wanted_bytes:
            raise ValueError(f"{len(data)} bytes where {self.wanted_bytes} are wanted")
        self._held += data
        if self.state is HandshakeState.HELLO and not _MAGIC.startswith(self._held[: len(_MAGIC)]):
            self._refuse(HandshakeReason.STRANGE)
        elif self.state is HandshakeState.HELLO and len(self._held) >= _PREFACE.size and not self._agree():
            self._refuse(HandshakeReason.VERSION)
        elif self.wanted_bytes == 0 and (step := _TABLE.get((self.side, self.state))) is not None:
            message = bytes(self._held)
            self._held.clear()
            if self.state is HandshakeState.HELLO:
                self._take_hello(message)
            elif self.side is HandshakeSide.LISTENER:
                self._take_proof(message)
            else:
                self._take_verdict(message)
            if self.state is not HandshakeState.REFUSED:
                self.state = step[1]

    def expire(self) -> None:
        """The time allowed for it is over."""
        self._refuse(HandshakeReason.SILENT)

    def lose(self) -> None:
        """The connection is gone."""
        self._refuse(HandshakeReason.LOST)

    # -- sending ------------------------------------------------------------------------------------

    def _greet(self, looked_for: int, channel: PeerChannel) -> None:
        node_id, directory_id, cluster_id = self.me
        cluster = bytes(16) if cluster_id is None else cluster_id.bytes
        hello = _HELLO.pack(
            _MAGIC, VERSION, VERSION, node_id, directory_id.bytes, cluster, looked_for, channel, self._nonce
        )
        self._hellos[self.side] = hello
        self._out.append(hello)

    def _proof(self, side: HandshakeSide, reason: int = _WELCOME) -> bytes:
        name = f"duramen cluster {self.version} {side.value}\n".encode()
        said = (name, self._hellos[HandshakeSide.DIALER], self._hellos[HandshakeSide.LISTENER], bytes([reason]))
        return hmac.digest(self._secret, b"".join(said), "sha256")

    # -- receiving ----------------------------------------------------------------------------------

    def _agree(self) -> bool:
        """Whether there is a version that both speak; the newest of them is spoken then."""
        _, oldest, newest = _PREFACE.unpack_from(self._held)
        self._spoken = (oldest, newest)
        self.version = min(newest, VERSION)
        return bool(oldest <= VERSION <= newest)

    def _take_hello(self, message: bytes) -> None:
        hello = _read_hello(message)
        if hello is None:
            self._refuse(HandshakeReason.STRANGE)
            return
        if self.side is HandshakeSide.LISTENER:
            self._wants = (hello.looked_for, hello.channel)
            self._greet(ANYBODY, hello.channel)
        self._hellos[_other(self.side)] = message
        self.peer = Peer(hello.identity, self._wants[1])
        if self.side is HandshakeSide.DIALER:
            self._out.append(self._proof(HandshakeSide.DIALER))

    def _take_proof(self, proof: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(HandshakeSide.DIALER)):
            self._out.append(_VERDICT.pack(HandshakeReason.SECRET, _NO_PROOF))
            self._refuse(HandshakeReason.SECRET)
            return
        reason = self._fault()
        self._out.append(_VERDICT.pack(reason, self._proof(HandshakeSide.LISTENER, reason)))
        if reason != _WELCOME:
            self._refuse(HandshakeReason(reason))

    def _take_verdict(self, verdict: bytes) -> None:
        reason, proof = _VERDICT.unpack(verdict)
        if reason == HandshakeReason.SECRET or not hmac.compare_digest(
            proof, self._proof(HandshakeSide.LISTENER, reason)
        ):
            self._refuse(HandshakeReason.SECRET)
        elif (found := reason or self._fault()) != _WELCOME:
            self._refuse(HandshakeReason(found) if found in _TEXTS else HandshakeReason.STRANGE)

    def _fault(self) -> int:
        """The reason why two nodes with the same secret must not connect, if any."""
        peer = self.peer
        if peer is None:
            raise RuntimeError("the peer has said nothing yet")
        identity = peer.identity
        if self.me.cluster_id is not None and identity.cluster_id not in (None, self.me.cluster_id):
            return HandshakeReason.CLUSTER
        if identity.node_id == self.me.node_id:
            return (
                HandshakeReason.ITSELF if identity.directory_id == self.me.directory_id else HandshakeReason.DUPLICATE
            )
        if self._wants[0] not in (ANYBODY, self._ends()[1].node_id):
            return HandshakeReason.NODE
        return HandshakeReason.DUPLICATE if self._rival(identity) else _WELCOME

    # -- refusing -----------------------------------------------------------------------------------

    def _refuse(self, reason: HandshakeReason) -> None:
        if self.state in (HandshakeState.PROVEN, HandshakeState.REFUSED):
            return
        if reason is HandshakeReason.VERSION and self.side is HandshakeSide.LISTENER:
            self._greet(ANYBODY, PeerChannel.CONTROL)  # so that the dialer learns which versions there are
        self.state = HandshakeState.REFUSED
        self._held.clear()
        self.refusal = HandshakeRefusal(reason, _TEXTS[reason](self))

    def _ends(self) -> tuple[HandshakeIdentity, HandshakeIdentity]:
        """The dialer and the listener."""
        other = self.me if self.peer is None else self.peer.identity
        return (self.me, other) if self.side is HandshakeSide.DIALER else (other, self.me)

    def _clusters_text(self) -> str:
        dialer, listener = self._ends()
        return (
            f"node {dialer.node_id} is of the cluster {dialer.cluster_id},"
            f" node {listener.node_id} of the cluster {listener.cluster_id}"
        )

    def _versions_text(self) -> str:
        theirs = "version {}" if self._spoken[0] == self._spoken[1] else "versions {} to {}"
        return (
            f"of the protocol between nodes one speaks version {VERSION},"
            f" the other {theirs.format(*self._spoken)}: give both nodes a version of Duramen that the other knows"
        )

    def _duplicate_text(self) -> str:
        dialer, listener = self._ends()
        same = dialer.node_id == listener.node_id
        other = f"{listener.directory_id}" if same else "one that is connected already"
        return f"two nodes have the node id {dialer.node_id}, with the directory {dialer.directory_id} and {other}"

    def _node_text(self) -> str:
        return f"node {self._wants[0]} was expected, and node {self._ends()[1].node_id} is there"


def _read_hello(message: bytes) -> _Hello | None:
    """A hello with which nothing is wrong."""
    _, oldest, newest, node_id, directory, cluster, looked_for, channel, _ = _HELLO.unpack(message)
    if node_id < 0 or looked_for < ANYBODY or channel not in iter(PeerChannel):
        return None
    cluster_id = UUID(bytes=cluster) if any(cluster) else None
    identity = HandshakeIdentity(node_id, UUID(bytes=directory), cluster_id)
    return _Hello(oldest, newest, identity, looked_for, PeerChannel(channel))


def _other(side: HandshakeSide) -> HandshakeSide:
    return HandshakeSide.LISTENER if side is HandshakeSide.DIALER else HandshakeSide.DIALER


_TEXTS: Final[Mapping[int, Callable[[Handshake], str]]] = MappingProxyType(
    {
        HandshakeReason.SECRET: lambda _: "the two nodes do not have the same cluster secret",
        HandshakeReason.CLUSTER: Handshake._clusters_text,
        HandshakeReason.NODE: Handshake._node_text,
        HandshakeReason.DUPLICATE: Handshake._duplicate_text,
        HandshakeReason.ITSELF: lambda one: f"node {one.me.node_id} has dialed itself",
        HandshakeReason.VERSION: Handshake._versions_text,
        HandshakeReason.STRANGE: lambda _: "what it says is not the protocol between Duramen's nodes",
        HandshakeReason.SILENT: lambda _: "it did not prove the cluster secret in time",
        HandshakeReason.LOST: lambda _: "it closed the connection before the cluster secret was proven",
    }
)
