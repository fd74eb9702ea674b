"""Makes what executors must do without impossible to import; put on the PYTHONPATH of Spark's Python workers."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

NOT_NEEDED = ("nats", "pandas", "rocksdict", "starlette", "uvicorn", "uvloop")
ON_EXECUTORS = ("base", "client", "codec", "spark")


class Blocker(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        top, _, rest = fullname.partition(".")
        if top in NOT_NEEDED or (top == "duramen" and rest and rest.split(".")[0] not in ON_EXECUTORS):
            raise ImportError(f"{fullname} is not for executors")
        return None


sys.meta_path.insert(0, Blocker())
