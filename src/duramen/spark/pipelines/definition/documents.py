"""YAML with the line and column of every node. Pure.

Values are text, whatever type YAML would give them: the value of an option is text even if it is a number.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import yaml

from duramen.spark.pipelines.definition.model import Text
from duramen.spark.pipelines.definition.problems import BEGINNING, Problems, SourcePlace, meant

__all__ = ["DocumentReader", "Section", "compose"]

_HINTS: Final[Mapping[str, str]] = {
    r"'\t' that cannot start": "; lines are indented with spaces, not with tabs",
    "expected <block end>": "; this line is not indented as those that it belongs to",
    "mapping values are not allowed": "; does the line before lack its colon, or this text its quotes?",
    "could not find expected ':'": "; does the line before lack its colon?",
}
"""Parts of the YAML parser's messages, and their meaning for users."""

_VARIABLE: Final = re.compile(r"\$(\$?)\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


def _place(mark: yaml.Mark | None) -> SourcePlace:
    return BEGINNING if mark is None else SourcePlace(mark.line + 1, mark.column + 1)


def compose(text: str, problems: Problems) -> yaml.Node | None:
    """The document of a file; None if it is invalid, which `problems` then reports."""
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        said = " ".join(filter(None, (error.context, error.problem)))
        hint = next((hint for part, hint in _HINTS.items() if part in said), "")
        if error.context_mark and error.problem_mark and error.context_mark.line < error.problem_mark.line and not hint:
            hint = f"; that begins in line {error.context_mark.line + 1}"
        problems.add(_place(error.problem_mark or error.context_mark), f"this is not YAML: {said}{hint}")
        return None
    except yaml.YAMLError as error:
        problems.add(BEGINNING, f"this is not YAML: {str(error).splitlines()[0]}")
        return None
    except RecursionError:
        problems.add(BEGINNING, "this is not a pipeline: it is nested too deeply")
        return None
    if node is None:
        problems.add(BEGINNING, "the file is empty")
    return node


class DocumentReader:
    """Reads texts from a document; `environment` has the variables for `${NAME}`."""

    def __init__(self, text: str, environment: Mapping[str, str], problems: Problems) -> None:
        self._lines = text.splitlines()
        self._environment = environment
        self.problems = problems

    def text(self, node: yaml.Node, what: str, *, verbatim: bool = False) -> Text | None:
        """A non-empty text, with variables replaced unless `verbatim`; otherwise None, and a problem."""
        place = _place(node.start_mark)
        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
            self.problems.add(place, f"{what} must be text")
            return None
        value = node.value if verbatim else self._expanded(node.value, place)
        if not value.strip():
            self.problems.add(place, f"{what} is empty")
            return None
        return self._placed(node, value, place)

    def texts(self, node: yaml.Node, what: str) -> tuple[Text, ...]:
        """One text, or a list of them."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found = [self.text(one, what) for one in nodes]
        if not nodes:
            self.problems.add(_place(node.start_mark), f"{what} is empty")
        return tuple(one for one in found if one is not None)

    def flag(self, node: yaml.Node, what: str) -> bool:
        """True or false."""
        if isinstance(node, yaml.ScalarNode) and node.value.lower() in ("true", "false"):
            return bool(node.value.lower() == "true")
        self.problems.add(_place(node.start_mark), f"{what} must be true or false")
        return False

    def _expanded(self, text: str, place: SourcePlace) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1]:
                return found[0][1:]
            known: str | None = self._environment.get(found[2], found[3])
            if known is None:
                said = f"the environment has no {found[2]}; ${{{found[2]}:-VALUE}} has a value where there is none"
                self.problems.add(place, said)
            return found[0] if known is None else known

        return _VARIABLE.sub(value, text)

    def _placed(self, node: yaml.ScalarNode, value: str, place: SourcePlace) -> Text:
        """The text, with the place of its lines as far as the file has them unchanged."""
        if node.style == "|":
            line = node.start_mark.line + 1
            rest = [text for text in self._lines[line:] if text.strip()]
            own = next((text for text in value.splitlines() if text.strip()), "")
            if not rest:
                return Text(value, place)
            indent = _indent(rest[0]) - _indent(own)
            return Text(value, place, SourcePlace(line + 1, indent + 1), indent)
        if node.style in (None, "'", '"') and node.start_mark.line == node.end_mark.line:
            return Text(value, place, SourcePlace(place.line, place.column + (node.style is not None)))
        return Text(value, place)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class Section:
    """A mapping of a document with known keys; unknown and repeated ones become problems."""

    def __init__(self, reader: DocumentReader, node: yaml.Node, what: str, known: Sequence[str] | None = None) -> None:
        """`known` is None if any key is valid."""
        self.place = _place(node.start_mark)
        self.what = what
        self.is_mapping = isinstance(node, yaml.MappingNode)
        self.has_unknown = False
        self._reader = reader
        self._found: dict[str, tuple[Text, yaml.Node]] = {}
        if not isinstance(node, yaml.MappingNode):
            expected = f" with {', '.join(known)}" if known else ""
            reader.problems.add(self.place, f"{what} must be a mapping{expected}")
            return
        for key, value in node.value:
            name = reader.text(key, f"a name in {what}", verbatim=True)
            if name is None:
                continue
            if known is not None and name.value not in known:
                self.has_unknown = True
                reader.problems.add(name.place, f"{what} has no key {name.value}{meant(name.value, known)}")
            elif name.value in self._found:
                reader.problems.add(name.place, f"{what} has {name.value} twice")
            else:
                self._found[name.value] = (name, value)

    def items(self) -> list[tuple[Text, yaml.Node]]:
        """Its entries, in order."""
        return list(self._found.values())

    def node(self, name: str) -> yaml.Node | None:
        """The node of a key."""
        found = self._found.get(name)
        return None if found is None else found[1]

    def given(self, *names: str) -> list[Text]:
        """The given keys among `names`."""
        return [self._found[name][0] for name in names if name in self._found]

    def text(self, name: str, *, verbatim: bool = False) -> Text | None:
        """The text of a key, or None."""
        node = self.node(name)
        return None if node is None else self._reader.text(node, f"{name} of {self.what}", verbatim=verbatim)

    def texts(self, name: str) -> tuple[Text, ...]:
        """The text or texts of a key."""
        node = self.node(name)
        return () if node is None else self._reader.texts(node, f"{name} of {self.what}")

    def flag(self, name: str) -> bool:
        """Whether a key is true."""
        node = self.node(name)
        return node is not None and self._reader.flag(node, f"{name} of {self.what}")
