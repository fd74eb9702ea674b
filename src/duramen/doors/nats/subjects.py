"""Finds the bindings that match a subject: a tree of tokens, with NATS' matching rules. Pure.

A subject consists of tokens between dots. In a binding `*` stands for one token and `>`, as the last, for one or more.
A binding that starts with a wildcard does not match subjects that start with `$` or with the token `_INBOX`: those
belong to the server, JetStream and clients, and match only bindings that name them.
"""

from typing import Final, Generic, TypeVar

__all__ = ["SubjectTree"]

T = TypeVar("T")

_INBOX: Final = b"_INBOX"


class _Node(Generic[T]):
    __slots__ = ("children", "here", "rest", "star")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[T]] = {}
        self.star: _Node[T] | None = None
        self.here: dict[T, None] = {}  # bound to the subject that ends here
        self.rest: dict[T, None] = {}  # bound to everything below: `>`

    def empty(self) -> bool:
        return not (self.children or self.star or self.here or self.rest)


class SubjectTree(Generic[T]):
    """Things bound to subjects with wildcards."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    @property
    def empty(self) -> bool:
        """Whether nothing is bound, and no former bindings are kept."""
        return self._root.empty()

    def bind(self, subject: bytes, thing: T) -> None:
        """`thing` is bound to a well-formed subject, wildcards included."""
        tokens = subject.split(b".")
        node = self._root
        for token in tokens if tokens[-1] != b">" else tokens[:-1]:
            if token == b"*":
                node.star = node.star or _Node()
                node = node.star
            else:
                node = node.children.setdefault(token, _Node())
        (node.rest if tokens[-1] == b">" else node.here)[thing] = None

    def release(self, subject: bytes, thing: T) -> None:
        """Undo `bind`."""
        tokens = subject.split(b".")
        path = [(self._root, b"")]
        for token in tokens if tokens[-1] != b">" else tokens[:-1]:
            node = path[-1][0]
            following = node.star if token == b"*" else node.children.get(token)
            if following is None:
                return
            path.append((following, token))
        last = path[-1][0]
        (last.rest if tokens[-1] == b">" else last.here).pop(thing, None)
        for (parent, _), (node, token) in zip(path[-2::-1], path[:0:-1], strict=True):
            if not node.empty():
                break
            if token == b"*":
                parent.star = None
            else:
                del parent.children[token]

    def match(self, subject: bytes) -> list[T]:
        """The bindings that match the subject of a message, each once."""
        tokens = subject.split(b".")
        found: dict[T, None] = {}
        reserved = tokens[0][:1] == b"$" or tokens[0] == _INBOX
        nodes = [self._root]
        for at, token in enumerate(tokens):
            following: list[_Node[T]] = []
            for node in nodes:
                if at or not reserved:
                    found |= node.rest
                    if node.star is not None:
                        following.append(node.star)
                child = node.children.get(token)
                if child is not None:
                    following.append(child)
            nodes = following
        for node in nodes:
            found |= node.here
        return list(found)
