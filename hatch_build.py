"""Compiles the kernels into the wheel, or beside their source for an editable install; without a compiler, neither."""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "ostraka_worker/kernels"


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        folder = Path(self.root, "worker", KERNELS)
        compiled = runpy.run_path(str(folder / "build.py"))
        if failure := compiled["compile_kernels"]():
            self.app.display_warning(f"ostraka: {failure}; the runtime's own operators serve, 2 to 5 times slower")
            return
        build_data["force_include"][str(compiled["LIBRARY"])] = f"{KERNELS}/{compiled['LIBRARY'].name}"
        build_data["pure_python"] = False
        # Not a module of Python's: any version of it will do.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
