"""Bring Debian's kcat 1.7 (librdkafka 2.0.2) for the tests, without root: into .cache/kcat, from the distribution.

Does nothing where kcat is on the PATH already, or was brought before. On systems without apt it says so, and the
tests that need kcat are skipped there; in CI that is an error.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "kcat"
PACKAGES = ("kcat", "librdkafka1", "libyajl2", "liblz4-1", "libsasl2-2", "libssl3", "libzstd1", "zlib1g")


def bring() -> str | None:
    """Download and unpack the packages; returns what went wrong, if anything."""
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        return "there is no apt-get here"
    state = CACHE / "apt"
    for name in ("lists/partial", "archives/partial", "packages"):
        (state / name).mkdir(parents=True, exist_ok=True)
    # Lists and archives of our own: no root needed, nothing of the system touched.
    options = [
        "-qq", "-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}",
        "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip
    options += ["-o", "Acquire::Retries=3"]
    for command in ([apt, *options, "update"], [apt, *options, "download", *PACKAGES]):
        finished = subprocess.run(command, check=False, capture_output=True, text=True, cwd=state / "packages")
        if finished.returncode != 0:
            return finished.stderr.strip().splitlines()[-1] if finished.stderr.strip() else "apt-get failed"
    for package in (state / "packages").glob("*.deb"):
        subprocess.run([dpkg, "-x", str(package), str(CACHE / "root")], check=True)
    return None


def main() -> None:
    """Bring kcat, or say why not."""
    done = CACHE / "brought"
    if shutil.which("kcat") or done.exists():
        return
    problem = bring()
    if problem is None:
        done.touch()
    elif os.environ.get("CI"):
        sys.exit(f"kcat could not be brought: {problem}")
    else:
        print(f"kcat could not be brought ({problem}): its tests will be skipped", file=sys.stderr)


if __name__ == "__main__":
    main()
