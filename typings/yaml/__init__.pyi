# What Duramen's tests use of PyYAML, which comes without types.
from typing import Any

def safe_load(stream: str) -> Any: ...
