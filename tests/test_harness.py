"""transformers' own common tests on this package's classes, where the harness that runs them lies beside the project.

Each `harness_table*.py` here names classes. The harness imports the tests from the source archive of the installed
transformers, which it fetches once. The guarantees themselves have tests of their own in this suite.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
HARNESS = Path(os.environ.get("HF_METALSTM_HARNESS", HERE.parents[1] / "shared" / "harness"))
TABLES = sorted(HERE.glob("harness_table*.py"))


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    if not HARNESS.is_dir():
        pytest.skip("the harness is not beside the project (HF_METALSTM_HARNESS names another place)")
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    unpacked = subprocess.run(
        [str(HARNESS / "get_upstream_tests.sh")],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if unpacked.returncode:
        pytest.skip(f"the tests of the installed transformers cannot be had: {unpacked.stderr[-200:]}")
    return {**environment, "HF_TESTS_PATH": unpacked.stdout.strip(), "PYTHONPATH": str(HERE.parent)}


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("table", TABLES, ids=[table.stem for table in TABLES])
def test_the_common_tests_of_transformers_pass(table, environment):
    command = [sys.executable, "-m", "pytest", "-q", "test_acceptance.py", "-rs", "-p", "no:cacheprovider", "-n", "2"]
    done = subprocess.run(
        command,
        cwd=HARNESS,
        env={**environment, "HF_HARNESS_TABLE": f"{table}:CASES"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    report = done.stdout[-6000:]
    assert done.returncode == 0, report
    skips = re.findall(r"^SKIPPED \[\d+\] \S+?: (.*)$", done.stdout, re.MULTILINE)
    assert all(reason.strip() for reason in skips), "every skip states its reason"
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|skipped)", report)}
    assert counts.get("passed", 0) > 40 and "failed" not in counts, report
    print(f"{table.stem}: {counts}")
