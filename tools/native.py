"""Build the native package, and keep native/crates.lock: names, versions and hashes of its crates, no addresses.

`install` puts it into .venv, and where that cannot be says so and goes on: nothing needs it. `must` is the same and
fails then. `wheel` makes a wheel for manylinux in dist/. `lock` writes native/crates.lock anew. `lint` is rustfmt's and
clippy's word. `test` runs the crate's own tests.

Cargo's own lock file names the registry beside each crate. What is in the repository leaves that out; it is put back,
as the Cargo that is here calls it, before anything is built, and Cargo holds every crate to its hash.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = ROOT / "native"
LOCK = CRATE / "crates.lock"
CARGO_LOCK = CRATE / "Cargo.lock"
BIN = pathlib.Path(sys.executable).parent
SOURCE = re.compile(r'^source = "(.*)"\n', re.MULTILINE)
CHECKSUM = re.compile(r"^checksum = ", re.MULTILINE)
HEADER = "# Written by `make lock`: Cargo's lock file without addresses.\n"
BUILD_S = 1800
SLOWER = "Spark decodes records in Python, which is slower"


class NotBuilt(Exception):
    """Why there is no native package, in one line."""


def environment() -> dict[str, str]:
    """What Cargo and maturin run with: no toolchain is fetched, and without a network they end soon."""
    wanted = {
        "CARGO_TARGET_DIR": str(ROOT / "build" / "native"),
        "CARGO_NET_RETRY": "1",
        "CARGO_HTTP_TIMEOUT": "20",
    }
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])  # where maturin looks for zig
    return {**wanted, **os.environ, "MATURIN_NO_INSTALL_RUST": "1", "PYO3_PYTHON": sys.executable, "PATH": path}


def run(*command: str | os.PathLike[str]) -> None:
    """Run a tool in the crate. Raises NotBuilt with the first of its lines that says what was wrong."""
    try:
        done = subprocess.run(
            [*command], cwd=CRATE, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=BUILD_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{pathlib.Path(command[0]).name} took longer than {BUILD_S} s") from None
    except OSError as error:
        raise NotBuilt(str(error)) from None
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()] or ["no reason given"]
        wrong = [line for line in lines if re.match(r"(error|Caused by|💥)", line)] or lines[-1:]
        raise NotBuilt(f"{pathlib.Path(command[0]).name}: {' '.join(wrong[:2])}")


def cargo() -> str:
    """Where Cargo is. Raises NotBuilt."""
    found = shutil.which("cargo")
    if found is None:
        raise NotBuilt("there is no Rust toolchain (cargo)")
    return found


def without_addresses(text: str) -> str:
    """Cargo's lock file as it lies in the repository."""
    return HEADER + SOURCE.sub("", text)


def restore_lock() -> None:
    """Write Cargo's lock file as native/crates.lock says. Raises NotBuilt."""
    wanted = LOCK.read_text()
    if CARGO_LOCK.exists() and without_addresses(CARGO_LOCK.read_text()) == wanted:
        return
    tool = cargo()
    CARGO_LOCK.unlink(missing_ok=True)
    try:
        run(tool, "generate-lockfile")
    except NotBuilt:
        run(tool, "generate-lockfile", "--offline")
    sources = set(SOURCE.findall(CARGO_LOCK.read_text()))
    if len(sources) != 1:
        raise NotBuilt(f"crates come from {len(sources)} registries, and the lock file is for one")
    (source,) = sources
    CARGO_LOCK.write_text(CHECKSUM.sub(f'source = "{source}"\nchecksum = ', wanted.removeprefix(HEADER)))


def build(place: pathlib.Path, *options: str) -> pathlib.Path:
    """A wheel in `place`, of which that is all. Raises NotBuilt."""
    cargo()
    restore_lock()
    shutil.rmtree(place, ignore_errors=True)
    run(BIN / "maturin", "build", "--release", "--locked", "--interpreter", sys.executable, "--out", place, *options)
    (wheel,) = place.glob("*.whl")
    return wheel


def install() -> None:
    """Build for this machine, into this environment. Raises NotBuilt."""
    wheel = build(ROOT / "build" / "native-wheel", "--compatibility", "linux")
    run(BIN / "uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-index", "--no-deps", "--reinstall",
        wheel)  # fmt: skip
    print(f"     {wheel.name.partition('-cp')[0]} is built and installed", flush=True)


def make_wheel() -> None:
    """Build for any Linux of this processor with glibc 2.17 or newer, with zig as C compiler and linker."""
    cargo()
    run(BIN / "uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--require-hashes",
        "-r", ROOT / "requirements" / "wheel.lock")  # fmt: skip
    wheel = build(ROOT / "build" / "native-wheel", "--zig", "--compatibility", "manylinux2014")
    (ROOT / "dist").mkdir(exist_ok=True)
    print(shutil.copy(wheel, ROOT / "dist"))


def lock() -> None:
    """Resolve the crates anew."""
    tool = cargo()
    CARGO_LOCK.unlink(missing_ok=True)
    run(tool, "generate-lockfile")
    LOCK.write_text(without_addresses(CARGO_LOCK.read_text()))


def lint() -> None:
    """Rustfmt and clippy, without a warning."""
    tool = cargo()
    restore_lock()
    run(tool, "fmt", "--check")
    run(tool, "clippy", "--locked", "--all-targets", "--", "-D", "warnings")


def test() -> None:
    """The crate's own tests, without Python."""
    tool = cargo()
    restore_lock()
    run(tool, "test", "--locked", "--no-default-features")


ACTIONS = {"install": install, "must": install, "wheel": make_wheel, "lock": lock, "lint": lint, "test": test}


def main() -> None:
    """Do what the first argument says."""
    action = sys.argv[1]
    try:
        ACTIONS[action]()
    except NotBuilt as error:
        if action == "install":
            print(f"     without the native package ({SLOWER}): {error}", flush=True)
        elif shutil.which("cargo") is None and action != "must":
            print(f"nothing to do for the native package: {error}")
        else:
            sys.exit(f"native: {error}")


if __name__ == "__main__":
    main()
