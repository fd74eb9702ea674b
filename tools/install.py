"""Make `.venv` in this checkout from requirements/*.lock; do nothing when it is already right.

Run by `make install` with the system's python3, so it may use the standard library only. Two at once
wait for each other; an interrupted one is finished by the next, because the stamp is written last.
"""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed.sha256"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)
INPUTS = ("requirements/build.lock", "requirements/all.lock", "pyproject.toml", "tools/install.py")


def fail(message: str) -> None:
    """End with one line that says what was wrong."""
    sys.exit(f"make install: {message}")


def wanted() -> str:
    """What the stamp must say: a digest of everything that decides the content of .venv."""
    digest = hashlib.sha256(sys.version.encode())
    digest.update(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def run(what: str, *command: str) -> None:
    """Run one step, showing its output; a failure ends the installation with `what` in one line."""
    try:
        subprocess.run(command, check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"could not {what} ({error.__class__.__name__}); see above, then run `make install` again")


def make_venv() -> None:
    """Make .venv anew."""
    if VENV.exists():
        shutil.rmtree(VENV)
    print("making .venv", flush=True)
    finished = subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False, capture_output=True, text=True)
    if finished.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        if "ensurepip" in finished.stdout + finished.stderr:
            fail("this Python cannot make virtual environments; on Debian: apt-get install python3-venv")
        fail(f"python3 -m venv failed: {(finished.stdout + finished.stderr).strip().splitlines()[-1:]}")


def install(digest: str) -> None:
    """Bring .venv to what the locks say, then stamp it with `digest`."""
    # A venv that a stopped run left half made has no working pip; it is made anew.
    probe = [str(PYTHON), "-m", "pip", "--version"]
    if not (PYTHON.exists() and subprocess.run(probe, check=False, capture_output=True).returncode == 0):
        make_venv()
    uv = str(VENV / "bin" / "uv")
    python = str(PYTHON)
    # fmt: off
    run("install uv and the build tools", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--require-hashes", "--no-deps", "-r", "requirements/build.lock")
    # The build tools just installed, checked by their hashes, are the ones that build: no isolation.
    run("install the locked packages", uv, "pip", "install", "--python", python, "--require-hashes", "--no-deps",
        "--no-build-isolation", "--link-mode", "copy", "-r", "requirements/all.lock")
    run("install duramen itself", uv, "pip", "install", "--quiet", "--python", python, "--no-deps",
        "--no-build-isolation", "--editable", ".")
    # fmt: on
    STAMP.write_text(digest)


def main() -> None:
    """Install, unless the stamp says that nothing has changed."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        fail(f"Duramen needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")
    with open(ROOT / "tools" / "install.py", "rb") as turnstile:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        digest = wanted()
        if STAMP.exists() and STAMP.read_text() == digest:
            return
        install(digest)


if __name__ == "__main__":
    main()
