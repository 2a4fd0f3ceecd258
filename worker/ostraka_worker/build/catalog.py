"""Which models there are and where they lie: all that a process needs to find one, without the builder's packages."""

from dataclasses import dataclass
from pathlib import Path

from ostraka_shared.errors import ModelDamaged, ModelMissing
from ostraka_shared.model_folder import ModelFolder, open_folder

# Raised whenever the same source would give another folder.
BUILDER_VERSION = "11"
PRECISIONS = ("fp32", "int8")
# int8 is 2 to 4 times faster, but moved P(yes) by up to 0.20 on 600 held-out questions; right answers come first.
DEFAULT_PRECISION = "fp32"


@dataclass(frozen=True, slots=True)
class ShippedAdapter:
    """A file of ADAPTERS_DIR, used only if its SHA-256 is this one."""

    file_name: str
    sha256: str

    @property
    def path(self) -> Path:
        return ADAPTERS_DIR / self.file_name


ADAPTERS_DIR = Path(__file__).with_name("adapters")
# The embedded model: its name, and what is added to the fetched checkpoint. They change together, and here alone.
EMBEDDED_NAME = "ostraka-135m"
EMBEDDED_ADAPTER: ShippedAdapter | None = ShippedAdapter(
    "ostraka-135m.safetensors", "34957e7f390ca06e43e8bf2a140e65b3c2b1c697a1737da1370188f0b626ecf1"
)
# Before it was tuned, " No" and " Yes" ranked held-out answers no better: AUC +0.031 on 600 examples, +0.003 on 1,500
# others, each +-0.02.
EMBEDDED_ANSWERS = ("0", "1")


def models_dir(cache_dir: Path) -> Path:
    return cache_dir / "models"


def model_path(cache_dir: Path, name: str, precision: str) -> Path:
    return models_dir(cache_dir) / f"{name}-{precision}"


def find_embedded(cache_dir: Path, precision: str) -> ModelFolder | None:
    """The embedded model's folder, if this version of the builder made it, with this version's adapter."""
    try:
        folder = open_folder(model_path(cache_dir, EMBEDDED_NAME, precision))
    except (ModelMissing, ModelDamaged):
        return None
    spec = folder.spec
    wanted = EMBEDDED_ADAPTER.sha256 if EMBEDDED_ADAPTER else None
    is_current = (spec.builder_version, spec.source.get("adapter_sha256")) == (BUILDER_VERSION, wanted)
    return folder if is_current else None
