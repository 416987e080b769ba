"""What is imported from a zip is compiled once for each source."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parents[3] / "lab" / "nodes" / "python"
# As at a start with the .pth file, in a virtual environment that has the folder.
PLAY = """
import sys
sys.path.insert(0, sys.argv[1])
sys.prefix = sys.argv[2]
import zip_bytecode
compiled, really = [], zip_bytecode._compile
zip_bytecode._compile = lambda path, source: (compiled.append(path), really(path, source))[1]
sys.path.insert(0, sys.argv[3])
import zipped
print(zipped.what(), len(compiled), zipped.what.__code__.co_filename)
"""


def play(prefix: Path, archive: Path, source: str) -> list[str]:
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("zipped.py", source)
    argv = [sys.executable, "-S", "-c", PLAY, HERE, prefix, archive]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def test_a_source_is_compiled_once_and_a_changed_one_again(tmp_path: Path) -> None:
    (tmp_path / "zip-bytecode").mkdir()
    one, other = tmp_path / "one.zip", tmp_path / "other.zip"
    assert play(tmp_path, one, "def what(): return 'first'") == ["first", "1", f"{one}/zipped.py"]
    # The path is where it is now, as a traceback has to say.
    assert play(tmp_path, other, "def what(): return 'first'") == ["first", "0", f"{other}/zipped.py"]
    assert play(tmp_path, one, "def what(): return 'other'") == ["other", "1", f"{one}/zipped.py"]


def test_what_was_damaged_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "zip-bytecode").mkdir()
    play(tmp_path, tmp_path / "one.zip", "def what(): return 'first'")
    for file in (tmp_path / "zip-bytecode").iterdir():
        file.write_bytes(file.read_bytes()[:9])
    assert play(tmp_path, tmp_path / "one.zip", "def what(): return 'first'")[:2] == ["first", "1"]
