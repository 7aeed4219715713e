"""schemathesis over the whole API with every check on, stateful too: no server error and no broken promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, ROOT, await_, free_port, sqlite

TOOL = ROOT / ".venv-tools" / "bin" / "schemathesis"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "3"))  # of each operation, and runs along the links
LEAST_CASES = 20_000
LEAST_LINKS = 10  # of a hundred; 21 were followed in 126 runs, and more runs follow more
LIMIT_S = 5400 * max(1, EXAMPLES // 3)  # half an hour on a calm core
SETTINGS = {
    "ISTHMUS_MAX_TIME_LIMIT_S": "30",
    "ISTHMUS_MAX_WAIT_S": "0.2",
    "ISTHMUS_MAX_QUEUED_PLANS": "100000",
    "ISTHMUS_MAX_GPUS": "2048",  # the largest examples take seconds to validate; they are refused by this limit
    "ISTHMUS_NUM_DIRECT_SOLVES": "4",
    "ISTHMUS_CALIBRATION_LIMIT_S": "10",
    "ISTHMUS_WEBHOOKS_ENABLED": "false",  # generated hosts are nobody's, or somebody's
    "ISTHMUS_LOG_LEVEL": "ERROR",
}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where the service as it ships listens, its searches included."""
    port = free_port()
    environment = {**os.environ, **SETTINGS, "ISTHMUS_DATABASE_URL": sqlite(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", str(port)], cwd=ROOT, env=environment
    )
    try:
        client = Client(HOST, port)
        await_(lambda: time.sleep(0.2) or client.is_ready(), "ready")  # 5 minutes: the first start compiles the kernels
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_generated_requests_find_nothing(address: str, tmp_path: Path) -> None:
    command = [str(TOOL), "--config-file", str(Path(__file__).parent / "schemathesis.toml"), "run",
               f"{address}/openapi.json", "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful",
               "--max-examples", str(EXAMPLES), "--workers", "1", "--continue-on-failure", "--no-color",
               "--generation-database", "none", "--request-timeout", "60"]  # fmt: skip
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "PYTHONPATH": str(ROOT)}
    report = tmp_path / "report.txt"  # a file, so that a run that is stopped leaves what it had found
    with report.open("w") as sink:
        done = subprocess.run(command, env=environment, stdout=sink, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    text = report.read_text()
    sys.stdout.write(text[-20_000:])
    assert done.returncode == 0, text[-20_000:]
    found = re.search(r"([\d,]+) generated", text)
    assert found, text[-2_000:]
    num_cases = int(found.group(1).replace(",", ""))
    sys.stdout.write(f"{num_cases} cases, 0 server errors, 0 violations\n")
    assert num_cases >= LEAST_CASES
    followed = re.search(r"API Links:\s+(\d+) covered", text)
    assert followed, text[-2_000:]
    assert int(followed.group(1)) >= LEAST_LINKS
