"""All of jevcompat and of jevbench-mini's batch trials, with the real model, in either precision: too long for the
tests, which run the first in int8 and the second with the fake model.

    make conformance     or   python -m benchmarks.conformance --precision int8
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from ostraka_worker.build.builder import ensure_embedded
from ostraka_worker.build.catalog import DEFAULT_PRECISION, PRECISIONS
from ostraka_worker.build.progress import for_stderr
from tests.cluster import running
from tests.conformance.batch_trials import check_batch_trials

JEVCOMPAT = Path(sys.executable).with_name("jevcompat")
PATIENCE_S = 600
"""Of client and server: this asks whether answers are right, not whether they are quick."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=PRECISIONS, default=DEFAULT_PRECISION)
    values = parser.parse_args()
    folder = ensure_embedded(Path("~/.cache/ostraka").expanduser(), values.precision, for_stderr())
    flags = (f"--deadline-ms={PATIENCE_S * 1000}", "--queue-tokens=4000000")
    with running(folder.path, *flags) as cluster, tempfile.TemporaryDirectory() as scratch:
        trials = check_batch_trials(cluster.url, Path(scratch), "jevbench-mini")
        print(f"jevbench-mini, batch independence: all {sum(trials.values())} trials pass")
        command = [JEVCOMPAT, "test", cluster.url, f"--timeout={PATIENCE_S}"]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
