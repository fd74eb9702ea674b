"""Make `.venv` in this checkout from requirements/*.lock; do nothing when it is already right.

Run by `make install` with the system's python3, so it may use the standard library only, and every Python from 3.6 on
can read it, so that an old one is told and not tripped up. Two at once wait for each other; what an interrupted one
left is made anew by the next, because the stamp is written last. What goes wrong is said in one line, with what to do.
"""

import ast
import collections.abc
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import time
from typing import NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed.sha256"
PYTHON = VENV / "bin" / "python"
OLDEST_PYTHON = (3, 11)
NEWEST_MINOR_TRIED = 20
INPUTS = ("requirements/build.lock", "requirements/all.lock", "pyproject.toml", "tools/install.py", "tools/native.py")
NATIVE_INPUTS = (".rs", ".toml", ".lock", ".pyi")
VENV_BYTES = 1_800_000_000
CACHE_BYTES = 2_600_000_000
SHOWN_EVERY_S = 15
LAST_LINES = 20
KEPT_BYTES = 64 * 1024

# What the tools may say, and what it means; the first that is found counts.
CAUSES = (
    (
        r"No space left on device|Errno 28\]|os error 28\b|Disk quota exceeded|os error 122\b",
        (
            "the disk is full: make room for 4 GB in {root}, in the cache {cache} (UV_CACHE_DIR moves it)"
            " and for temporary files (TMPDIR moves them)"
        ),
    ),
    (
        r"Read-only file system|os error 30\b",
        "{root} or the cache {cache} is on a read-only file system: clone to where you may write",
    ),
    (
        (
            r"ProxyError|Cannot connect to proxy|Tunnel connection failed|tunnel error|unsuccessful tunnel"
            r"|[Pp]roxy [Aa]uthenti?[cz]a|[Pp]roxy authorization required"
        ),
        (
            "{proxy} refuses or is not there: correct it (HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT),"
            " or unset it where none is needed"
        ),
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate|UnknownIssuer|SSLError",
        (
            "the certificate of the package index is not trusted here, as with a proxy that looks into TLS:"
            " set PIP_CERT to a file with its CA"
        ),
    ),
    (
        r"DO NOT MATCH THE HASHES|Hash mismatch",
        "the package index serves something else than the lock files name: set PIP_INDEX_URL to another one",
    ),
    (
        (
            r"NewConnectionError|Failed to establish a new connection"
            r"|Name or service not known|failed to lookup address"
            r"|Temporary failure in name resolution|nodename nor servname|Network is unreachable|No route to host"
            r"|Connection refused|ConnectTimeout|[Tt]imed out|Connection reset|dns error|client error \(Connect\)"
            r"|error sending request|Max retries exceeded"
        ),
        (
            "the package index cannot be reached{through}: is there a network? A proxy is set with HTTPS_PROXY,"
            " an index of your own with PIP_INDEX_URL"
        ),
    ),
    (
        (
            r"No matching distribution found|no version of|no wheels with a matching|not found in the package registry"
            r"|not found in the provided package locations|\b40[134] "
        ),
        "the package index does not have everything that the lock files name: set PIP_INDEX_URL to one that does",
    ),
    (
        r"No module named '?(ensurepip|venv)",
        "this Python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv",
    ),
    (
        r"Permission denied|os error 13\b|Operation not permitted",
        (
            "not allowed to write in {root} or in the cache {cache}: do they belong to another user (then remove"
            " .venv as that one), or are they mounted noexec?"
        ),
    ),
)

# Pip's settings, which companies set, as uv calls them.
NO_INDEX = "UV_NO_INDEX"  # ours: uv has only an option for it
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "no-index": NO_INDEX,
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
}
# What would lead pip, uv or the Python of .venv elsewhere.
MISLEADING = (
    "CONDA_PREFIX", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PIP_ROOT", "PIP_TARGET", "PYTHONHOME", "PYTHONPATH",
    "UV_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_TARGET", "VIRTUAL_ENV",
)  # fmt: skip


def fail(message: str) -> NoReturn:
    """End with one line that says what was wrong."""
    sys.exit("make install: " + message)


def named_proxy() -> str:
    """The proxy that the environment names, without its password; empty where it names none."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"):
        address = re.sub(r"^[a-z0-9]+://|/.*$", "", os.environ.get(name, ""))
        if address:
            return f"the proxy {address.rpartition('@')[2]} of {name}"
    return ""


def cause(said: str, environment: "dict[str, str]") -> "str | None":
    """What the output `said` of a tool means and what to do, in one line; None where that is not known."""
    proxy = named_proxy()
    for pattern, meaning in CAUSES:
        if re.search(pattern, said):
            return meaning.format(
                root=ROOT,
                cache=environment.get("UV_CACHE_DIR", "~/.cache/uv"),
                proxy=proxy or "a proxy",
                through=f" through {proxy}" if proxy else "",
            )
    return None


def digest_of_inputs() -> str:
    """What the stamp must say: a digest of everything that decides the content of .venv."""
    digest = hashlib.sha256(sys.version.encode())
    digest.update(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    for path in sorted(ROOT.glob("native/**/*")):
        made = path.name == "Cargo.lock" or "target" in path.relative_to(ROOT).parts
        if path.suffix in NATIVE_INPUTS and not made:
            digest.update(path.read_bytes())
    # Where a toolchain has come, the native package can be built.
    digest.update(str(shutil.which("cargo") is not None).encode())
    return digest.hexdigest()


def installed(digest: str) -> bool:
    """Whether .venv is what `digest` stands for."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == digest


# -- the environment of the tools -------------------------------------------------------------------------


def is_ours(directory: str) -> bool:
    """Whether we may write to `directory`, or may make it, and leave nothing there that its owner cannot remove."""
    while not os.path.exists(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    try:
        with os.scandir(directory) as entries:
            owners = {os.stat(directory).st_uid, *(entry.stat(follow_symlinks=False).st_uid for entry in entries)}
    except OSError:
        return False
    return owners == {os.geteuid()} and os.access(directory, os.W_OK)


def clean_environment() -> "dict[str, str]":
    """The environment without what leads astray; uv's cache in this checkout where the usual one is not ours."""
    environment = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    environment.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    environment.setdefault("PIP_RETRIES", "3")
    if "UV_CACHE_DIR" not in environment:
        usual = os.path.join(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "uv")
        environment["UV_CACHE_DIR"] = usual if is_ours(usual) else str(ROOT / ".cache" / "uv")
    return environment


def as_pip_is_set_up(environment: "dict[str, str]") -> "dict[str, str]":
    """`environment` with pip's index, certificate and proxy for uv, which reads neither pip's files nor variables."""
    command = [str(PYTHON), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    found = {}
    for line in listed.stdout.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2]
        with contextlib.suppress(ValueError, SyntaxError):
            words = str(ast.literal_eval(value)).split()
            if name in PIP_TO_UV and words:
                found[PIP_TO_UV[name]] = " ".join(words)
            elif name == "find-links":
                # Pip passes over what is not there; uv does not.
                found["UV_FIND_LINKS"] = ",".join(word for word in words if "://" in word or os.path.exists(word))
    return {**{name: value for name, value in found.items() if value}, **environment}


# -- running a tool ---------------------------------------------------------------------------------------


def open_output(on_screen: bool) -> "tuple[int, int]":
    """A pipe for the output of a tool; one that looks like our terminal where the tool is to draw its progress."""
    if not on_screen:
        return os.pipe()
    import fcntl
    import termios

    reader, writer = os.openpty()
    with contextlib.suppress(OSError):
        fcntl.ioctl(writer, termios.TIOCSWINSZ, fcntl.ioctl(sys.stderr.fileno(), termios.TIOCGWINSZ, bytes(8)))
    return reader, writer


def call(command: "list[str]", environment: "dict[str, str]", on_screen: bool) -> "tuple[int, str]":
    """Run a tool; returns its exit code and the end of what it said. Says now and then that it is still at it."""
    reader, writer = open_output(on_screen)
    try:
        process = subprocess.Popen(
            command, cwd=str(ROOT), env=environment, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
        )
    finally:
        os.close(writer)
    said = b""
    began_s = shown_s = time.monotonic()
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], SHOWN_EVERY_S)
            if ready:
                # The end of a pseudo-terminal is an error on Linux.
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(reader, KEPT_BYTES)
                if not data:
                    break
                said = (said + data)[-KEPT_BYTES:]
                if on_screen:
                    os.write(sys.stderr.fileno(), data)
            now_s = time.monotonic()
            if not on_screen and now_s - shown_s > SHOWN_EVERY_S:
                shown_s = now_s
                print(f"     still at it, for {now_s - began_s:.0f} s", flush=True)
    except BaseException:
        process.kill()
        raise
    finally:
        os.close(reader)
        code = process.wait()
    return code, said.decode("utf-8", "replace")


def step(what: str, command: "list[str]", environment: "dict[str, str]", on_screen: bool = False) -> None:
    """Say `what` is done and do it; where it fails, say why and end."""
    print(what, flush=True)
    try:
        code, said = call(command, environment, on_screen)
    except OSError as error:
        code, said = 1, str(error)
    if code == 0:
        return
    known = cause(said, environment)
    if known is None:
        if not on_screen:
            print("\n".join(said.splitlines()[-LAST_LINES:]), file=sys.stderr)
        known = f"could not do: {what.split(None, 1)[-1]}: see above, then run `make install` again"
    fail(known)


# -- what is done -----------------------------------------------------------------------------------------


def check_python() -> None:
    """End where this Python is too old, naming one that is not if it is there; or where it makes no environments."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        advice = "install a newer one, or name it: make PYTHON=/path/to/python3 ..."
        for minor in range(NEWEST_MINOR_TRIED, OLDEST_PYTHON[1] - 1, -1):
            found = shutil.which(f"python3.{minor}")
            # Such a name may be a shim that leads nowhere.
            if found and subprocess.call([found, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
                advice = f"there is a newer one: make PYTHON=python3.{minor} ..."
                break
        fail(f"Duramen needs Python 3.11 or newer, this is {sys.version.split()[0]} ({sys.executable}); {advice}")
    if os.name != "posix":
        fail("Duramen's node needs Linux or macOS: on Windows run this in WSL (wsl --install)")
    for name in ("venv", "ensurepip"):
        if importlib.util.find_spec(name) is None:
            fail(str(cause(f"No module named {name}", {})))


def give_up_root() -> None:
    """Under sudo in one's own checkout: go on as its owner, so that nothing in it or in the caches becomes root's."""
    owner = ROOT.stat().st_uid
    if os.geteuid() != 0 or owner == 0 or os.environ.get("SUDO_UID") != str(owner):
        return
    import pwd

    user = pwd.getpwuid(owner)
    print(f"going on as {user.pw_name}, whose checkout this is, instead of root", flush=True)
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(owner)
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    os.environ.pop("XDG_CACHE_HOME", None)
    if not os.access(sys.executable, os.X_OK):
        fail(f"{user.pw_name} may not run {sys.executable}: run it without sudo, or name another: make PYTHON=...")


@contextlib.contextmanager
def turnstile() -> "collections.abc.Iterator[None]":
    """One at a time; the others wait and say so."""
    import fcntl

    path = str(ROOT / "tools" / "install.py")
    # NFS locks only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another `make` that installs here", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_usable() -> bool:
    """Whether .venv was finished, here (its scripts hold its path) and by a Python of this version."""
    if not STAMP.exists():
        return False
    try:
        config = (VENV / "pyvenv.cfg").read_text()
    except OSError:
        return False
    version = ".".join(map(str, sys.version_info[:2]))
    here = f" {VENV}\n" in config and re.search(rf"^version\S* = {re.escape(version)}\.", config, re.MULTILINE)
    probe = [str(PYTHON), "-m", "pip", "--version"]
    quiet = subprocess.DEVNULL
    return bool(here) and PYTHON.exists() and subprocess.call(probe, stdout=quiet, stderr=quiet) == 0


def make_venv(environment: "dict[str, str]") -> None:
    """Make .venv anew."""
    if VENV.exists():
        shutil.rmtree(VENV)
    free_bytes = shutil.disk_usage(ROOT).free
    needed_bytes = VENV_BYTES + (0 if os.path.isdir(environment["UV_CACHE_DIR"]) else CACHE_BYTES)
    if free_bytes < needed_bytes:
        fail(f"{ROOT} has {free_bytes / 1e9:.1f} GB free and {needed_bytes / 1e9:.1f} GB are needed: make room there")
    step("1/5  making .venv", [sys.executable, "-m", "venv", "--without-pip", str(VENV)], environment)
    # By itself, because venv keeps to itself what went wrong with it.
    step("     giving it pip", [str(PYTHON), "-m", "ensurepip", "--default-pip"], environment)


def install(digest: str) -> None:
    """Bring .venv to what the locks say, then stamp it with `digest`."""
    environment = clean_environment()
    if is_usable():
        STAMP.unlink()
    else:
        make_venv(environment)
    python = str(PYTHON)
    # fmt: off
    step("2/5  uv and the build tools (25 MB)",
        [python, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", "requirements/build.lock"],
        environment)
    environment = as_pip_is_set_up(environment)
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--python", python, "--no-deps", "--no-build-isolation"]
    if environment.pop(NO_INDEX, "").lower() in ("1", "on", "true", "yes"):
        uv.append("--no-index")
    # The build tools just installed, checked by their hashes, are the ones that build: no isolation.
    step("3/5  the locked packages (780 MB where none is cached)",
        [*uv, "--require-hashes", "--link-mode", "copy", "-r", "requirements/all.lock"],
        environment, on_screen=sys.stderr.isatty())
    step("4/5  duramen itself", [*uv, "--quiet", "--editable", "."], environment)
    # fmt: on
    print("5/5  the native package, where Rust is installed (a minute)", flush=True)
    if (ROOT / "native" / "Cargo.toml").exists():
        # It says itself what was wrong, and nothing needs it.
        subprocess.call([python, "tools/native.py", "install"], cwd=str(ROOT), env=environment)
    STAMP.write_text(digest)


def main() -> None:
    """Install, unless the stamp says that nothing has changed."""
    check_python()
    if installed(digest_of_inputs()):
        return
    try:
        give_up_root()
        if not os.access(ROOT, os.W_OK):
            fail(f"{ROOT} cannot be written: clone to where you may write")
        with turnstile():
            digest = digest_of_inputs()
            if not installed(digest):
                install(digest)
    except OSError as error:
        fail(cause(str(error), dict(os.environ)) or str(error))
    except KeyboardInterrupt:
        print("\nmake install: interrupted; `make install` begins anew with what was downloaded", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
