# What Duramen uses of PyYAML, which comes without types.
from typing import Any

class Mark:
    line: int
    column: int

class Node:
    tag: str
    value: Any
    start_mark: Mark
    end_mark: Mark

class ScalarNode(Node):
    style: str | None

class SequenceNode(Node): ...
class MappingNode(Node): ...
class SafeLoader: ...
class YAMLError(Exception): ...

class MarkedYAMLError(YAMLError):
    context: str | None
    context_mark: Mark | None
    problem: str | None
    problem_mark: Mark | None

def compose(stream: str, loader: type[SafeLoader], /) -> Node | None: ...
def safe_load(stream: str) -> Any: ...
