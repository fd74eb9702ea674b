"""Compile the simulator, and what of a node it runs, by mypyc, and run that: `make sim COMPILED=1`, with a C compiler.

It is done in a copy, build/compiled. Modules that mypyc cannot compile stay as they are there: those with msgspec's
structs, whose options it loses, and enums with a constructor. Types of named tuples are written as text: of most others
it keeps no more than `type`, and msgspec reads them.
"""

import ast
import contextlib
import copy
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / "build" / "compiled"
COPIED: Final = ("src", "typings")
ROOMS: Final = (
    "base", "broker", "codec", "controller", "delivery", "groups", "metadata", "node", "raft", "replication", "rpc",
    "sim", "storage", "transactions",
)  # fmt: skip
SETUP: Final = """\
import sys
from mypyc.build import mypycify
from setuptools import setup

modules = mypycify(["--config-file", "mypy.ini", *sys.argv[1:]], opt_level="1", debug_level="0", multi_file=True)
setup(name="compiled", package_dir={"": "src"}, ext_modules=modules, script_args=["build_ext", "--inplace"])
"""
SETTINGS: Final = """\
[mypy]
strict = True
mypy_path = src:typings
explicit_package_bases = True
namespace_packages = True
"""


def used() -> list[str]:
    """The modules that decide, store and simulate, as paths under src: as far as a simulated cluster takes them."""
    asked = "import sys, duramen.sim.cluster.runs; print(*(name for name in sys.modules if name.startswith('duramen')))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    names = subprocess.run(
        [sys.executable, "-c", asked], check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    found = []
    for name in names.stdout.split():
        path = pathlib.Path(*name.split("."))
        path = path / "__init__.py" if (ROOT / "src" / path).is_dir() else path.with_suffix(".py")
        if path.parts[1] in ROOMS:
            found.append(str(path))
    return sorted(found)


def is_compilable(tree: ast.Module) -> bool:
    """Whether mypyc keeps what the classes of a module mean."""
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef):
            bases = {getattr(base, "attr", getattr(base, "id", "")) for base in one.bases}
            made = any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in one.body)
            if "Struct" in bases or ("Enum" in bases and made):
                return False
    return True


class _Unions(ast.NodeTransformer):
    """`X | Y` as `Union[X, Y]`, which stays text where the other becomes a type."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        left, right = self.visit(node.left), self.visit(node.right)
        union = ast.Attribute(ast.Name("_typing", ast.Load()), "Union", ast.Load())
        return ast.Subscript(union, ast.Tuple([left, right], ast.Load()), ast.Load())


def _texts(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Expressions that are written in another way, and how."""
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef) and any(getattr(base, "id", "") == "NamedTuple" for base in one.bases):
            for field in one.body:
                if isinstance(field, ast.AnnAssign) and not isinstance(field.annotation, ast.Constant):
                    yield field.annotation, repr(ast.unparse(_Unions().visit(copy.deepcopy(field.annotation))))
        elif isinstance(one, ast.Compare):
            for tested in one.comparators:
                if isinstance(tested, ast.Tuple) and any(isinstance(part, ast.Starred) for part in tested.elts):
                    yield tested, f"list({ast.unparse(tested)})"  # a tuple in that place is taken apart by mypyc


def rewritten(source: str) -> str:
    """A module as mypyc takes it, with its comments: some of them are for mypy."""
    tree, lines = ast.parse(source), source.encode().split(b"\n")
    texts = sorted(_texts(tree), key=lambda found: (found[0].lineno, found[0].col_offset), reverse=True)
    for node, text in texts:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        behind = lines[last][node.end_col_offset :]
        lines[first : last + 1] = [lines[first][: node.col_offset] + text.encode() + behind]
    if texts:
        at = 1 if ast.get_docstring(tree, clean=False) is not None else 0
        lines.insert(tree.body[at].lineno - 1, b"import typing as _typing")
    return b"\n".join(lines).decode()


def prepare() -> list[str]:
    """Write the copy, and say which modules of it are to be compiled."""
    shutil.rmtree(PLACE, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, PLACE / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (PLACE / "mypy.ini").write_text(SETTINGS)
    (PLACE / "setup.py").write_text(SETUP)
    chosen = []
    for name in used():
        path = PLACE / "src" / name
        source = path.read_text()
        if is_compilable(ast.parse(source)):
            path.write_text(rewritten(source))
            chosen.append(f"src/{name}")
    return chosen


def digest() -> str:
    """What is compiled, and how."""
    found = hashlib.sha256()
    for path in (pathlib.Path(__file__), *sorted((ROOT / "src").rglob("*.py"))):
        found.update(path.read_bytes())
    return found.hexdigest()


@contextlib.contextmanager
def _telling(text: str) -> Iterator[None]:
    began_s = time.monotonic()
    print(text, end=" ", flush=True)
    yield
    print(f"{time.monotonic() - began_s:.0f} s", flush=True)


def build() -> None:
    """Compile, unless what is there is of the sources as they are."""
    done = PLACE / "done"
    if done.exists() and done.read_text() == digest():
        return
    if shutil.which(os.environ.get("CC", "cc")) is None:
        sys.exit("there is no C compiler: install one (apt-get install gcc), or leave COMPILED away")
    chosen = prepare()
    log = PLACE / "build.log"
    told = f"compiling {len(chosen)} modules, which takes five minutes or more ({log.relative_to(ROOT)})"
    with _telling(told), log.open("w") as out:
        finished = subprocess.run(
            [sys.executable, "setup.py", *chosen], check=False, cwd=PLACE, stdout=out, stderr=subprocess.STDOUT
        )
    if finished.returncode != 0:
        sys.exit("\n".join(["", *log.read_text().splitlines()[-20:], f"not compiled: see {log}"]))
    done.write_text(digest())


def main() -> None:
    """Compile and run `python -m duramen.sim` with the arguments."""
    build()
    environment = {**os.environ, "PYTHONPATH": str(PLACE / "src")}
    command = [sys.executable, "-m", "duramen.sim", *sys.argv[1:]]
    sys.exit(subprocess.run(command, check=False, env=environment).returncode)


if __name__ == "__main__":
    main()
