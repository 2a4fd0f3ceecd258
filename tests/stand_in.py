"""An interpreter that is none: what a command starts in its place, told by the test how to go on."""

import sys
from pathlib import Path

STAND_IN = """#!{python}
import os, signal, sys
try:
    print(os.getpid(), *sys.argv[1:], sorted(n for n in os.environ if n.startswith("OSTRAKA_")), flush=True)
    {body}
except KeyboardInterrupt:
    print("its line", flush=True)
    sys.exit(130)
"""


def write_stand_in(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(STAND_IN.format(python=sys.executable, body=body))
    path.chmod(0o755)
    return str(path)
