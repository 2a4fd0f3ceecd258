"""What an engine keeps for the next call is bounded by the largest call there was, not by how many there were."""

import subprocess
import sys

GROWTH = """
from pathlib import Path
import tempfile
from benchmarks.engine_memory import load, measure
with tempfile.TemporaryDirectory() as folder:
    engine = load(Path(folder), None)
measure(engine, 300, most_samples=20)
found = measure(engine, 300, most_samples=20)
print(found.last_mb - found.first_mb)
"""
# Measured: 0.0 to 0.5 MB. An array of a call's rows that is never given back would be 6 MB or more.
MOST_MB = 3


def test_the_same_requests_again_take_no_more_memory() -> None:
    """In a process of its own: other tests' garbage is no evidence."""
    run = subprocess.run([sys.executable, "-c", GROWTH], check=True, capture_output=True, text=True, timeout=100)
    assert float(run.stdout) < MOST_MB
