import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest._secret_file import secret_of
from ingest.errors import BadInput


def test_processes_that_start_together_share_one_secret_for_its_owner_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "secret"
    code = (
        "import sys, pathlib; from ingest._secret_file import secret_of; sys.stdin.read(); "
        "print(secret_of(pathlib.Path(sys.argv[1])).decode())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin
        process.stdin.close()
    secrets = set()
    for process in started:
        assert process.stdout
        secrets.add(process.stdout.read().strip())
        process.stdout.close()
        assert process.wait() == 0
    assert secrets == {path.read_text().strip()}
    assert len(secrets.pop()) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_threads_that_start_together_share_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(secret_of, [tmp_path / "secret"] * 64))) == 1


def test_a_secret_that_is_no_secret_is_named(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("hunter2\n")
    for path in (short, tmp_path, short / "below"):
        with pytest.raises(BadInput, match="secret: ") as refused:
            secret_of(path)
        assert "hunter2" not in refused.value.detail
