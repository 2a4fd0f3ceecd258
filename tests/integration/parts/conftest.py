"""Real processes, compilers and packages of one part alone. No cluster, so these may run beside one (tests/conftest.py)."""

from tests.unit.worker.build.conftest import quick_check, steps, tiny_gguf

__all__ = ["quick_check", "steps", "tiny_gguf"]
