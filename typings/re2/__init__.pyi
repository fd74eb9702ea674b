# What Duramen uses of google-re2, which comes without types. Its compile and error are named as what every
# module has: they are found by name.
from typing import Any

class Options:
    log_errors: bool
    max_mem: int

def __getattr__(name: str) -> Any: ...
