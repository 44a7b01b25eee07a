"""A program that never closes its catalog ends without a word, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

from deltadex.store import Catalog

PROGRAM = """
import sys
from pathlib import Path
import deltadex as dx
db = dx.open(sys.argv[1])
reader = db.reader()
temporary = dx.open()
print(len(db.models()), len(reader.models()), temporary.path.parent)
raise SystemExit(3)
"""


def test_a_catalog_is_closed_at_the_end_of_a_program(tmp_path):
    path = tmp_path / "c.duckdb"
    with Catalog.open(path):
        pass

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=60
    )

    counts, folder = ended.stdout.rsplit(maxsplit=1)
    assert ended.returncode == 3
    assert ended.stderr == ""
    assert counts == "0 0"
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.duckdb"]
    assert not Path(folder).exists()
