"""`duramen spark`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.cli.command import run

IMPORTED = """
import sys
sys.path.insert(0, sys.argv[1])
import duramen.client, duramen.codec.compression, duramen.codec.crc
for name in ("pyspark", "uvloop", "duramen.node", "duramen.broker"):
    try:
        __import__(name)
    except ImportError:
        continue
    print(name)
print(duramen.__version__, duramen.__file__)
"""


def test_a_bare_python_imports_what_is_packed(tmp_path: Path) -> None:
    file = tmp_path / "packages.zip"
    ended = run("spark", "package", str(file), "--no-arrow")
    assert (ended.code, ended.err) == (0, "")
    assert f"{file} holds Duramen" in ended.out
    assert f"--archives '{file}#duramen-packages' --conf spark.executorEnv.PYTHONPATH=duramen-packages" in ended.out
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "unpacked")
    assert "pyspark_duramen.py" in names
    assert not [name for name in names if name.startswith(("numpy", "pyarrow"))]
    bare = [str(Path(sys.executable).resolve()), "-S", "-E", "-c", IMPORTED, str(tmp_path / "unpacked")]
    ran = subprocess.run(bare, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stderr == ""
    assert ran.stdout.split()[1:] == [str(tmp_path / "unpacked" / "duramen" / "__init__.py")]
    before = file.read_bytes()
    assert run("spark", "package", str(file), "--no-arrow").code == 0
    assert file.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["packages.zip", "unpacked"]


@pytest.mark.long
def test_numpy_and_pyarrow_are_packed_too(tmp_path: Path) -> None:
    ended = run("spark", "package", str(tmp_path / "packages.zip"))
    assert "numpy, pyarrow" in ended.out
    with zipfile.ZipFile(tmp_path / "packages.zip") as archive:
        assert {"numpy/__init__.py", "pyarrow/__init__.py"} <= set(archive.namelist())


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    ended = run("spark", "package", str(tmp_path / "not" / "there.zip"), "--no-arrow")
    assert (ended.code, ended.out) == (1, "")
    assert str(tmp_path / "not") in ended.err
    assert len(ended.err.splitlines()) == 1
