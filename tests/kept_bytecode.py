"""Compiled modules are kept, also where PYTHONDONTWRITEBYTECODE is set, as in containers: pytest rewrites every assertion
of 270 modules, which are 5 s of CPU time a process, and hundreds of processes are started that import ours."""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
