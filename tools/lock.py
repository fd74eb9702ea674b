"""Write requirements/*.lock anew: names, versions and hashes, no addresses.

Run by `make lock`; needs `uv` (which `make install` puts into .venv). Touches only requirements/ and,
where Rust is installed, native/crates.lock.
"""

import pathlib
import subprocess
import sys

REQUIREMENTS = pathlib.Path(__file__).resolve().parent.parent / "requirements"
HEADER = "# Written by `make lock`. Names, versions and hashes; the index is whatever the machine is set up with.\n"


def compile_lock(uv: str, name: str, *inputs: str) -> None:
    """Resolve `inputs` for every supported Python and platform into requirements/<name>.lock."""
    lock = REQUIREMENTS / f"{name}.lock"
    # fmt: off
    subprocess.run(
        [
            uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes",
            "--no-annotate", "--no-header", "--no-emit-index-url", *inputs, "--output-file", str(lock),
        ],
        check=True, cwd=REQUIREMENTS.parent,
    )
    # fmt: on
    text = lock.read_text()
    if "://" in text:
        sys.exit(f"{lock}: holds an address; a lock file must name none")
    if not text.startswith(HEADER):
        lock.write_text(HEADER + text)


def main() -> None:
    """Write all lock files."""
    uv = str(pathlib.Path(sys.executable).parent / "uv")
    compile_lock(uv, "all", "pyproject.toml", "requirements/build.in", "--all-extras")
    compile_lock(uv, "build", "requirements/build.in", "--constraint", "requirements/all.lock")
    compile_lock(uv, "wheel", "requirements/wheel.in")
    subprocess.run([sys.executable, "tools/native.py", "lock"], check=True, cwd=REQUIREMENTS.parent)


if __name__ == "__main__":
    main()
