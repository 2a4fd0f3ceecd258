"""Where gateway and workers meet: the endpoint's form and who may reach it. No sockets."""

import ipaddress
import os
import stat
from pathlib import Path

from ostraka_shared.errors import ConfigError

SOCKET_STEM = "workers"
FIGURES_STEM = "figures"
METRICS_FOLDER = "metrics"
COUNT_KINDS = ("counter", "histogram")
FRONT_FOLDER = "model"
MAX_IPC_PATH_BYTES = 107
"""sockaddr_un.sun_path less its closing NUL, on Linux."""


def ipc_endpoint(run_dir: Path, gateway: int = 0) -> str:
    """Of the first gateway, or of another one by its number."""
    return f"ipc://{run_dir}/{SOCKET_STEM}{gateway or ''}.sock"


def figures_path(run_dir: Path, gateway: int = 0) -> str:
    """Where that gateway tells its figures."""
    return f"{run_dir}/{FIGURES_STEM}{gateway or ''}.sock"


def gateway_name(number: int) -> str:
    """As logs and figures have it: the first of several is named like an only one."""
    return f"gateway{number or ''}"


def count_paths(folder: Path, name: str) -> list[Path]:
    """Where the gateway of that name, one of several, counts."""
    return [folder / f"{kind}_{name}.db" for kind in COUNT_KINDS]


def folder_of(endpoint: str) -> Path | None:
    """The run directory that holds it, if one does."""
    scheme, _, place = endpoint.partition("://")
    return Path(place).parent if scheme == "ipc" else None


def host_id() -> str:
    """Names this kernel's boot and this PID namespace: where two are equal, a pid means the same process to both."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def check_endpoint(endpoint: str) -> None:
    """Raises ConfigError unless it is this machine's alone: ipc in a 0700 directory, which only its owner can reach, or
    loopback tcp, which every user of the machine can.

    A socket path follows the umask, so its directory is what protects it.
    """
    scheme, _, place = endpoint.partition("://")
    if scheme == "ipc":
        _check_ipc(Path(place))
    elif scheme == "tcp":
        host = place.rpartition(":")[0].strip("[]")
        if not _is_loopback(host):
            raise ConfigError(f"{endpoint} can be reached from other machines: use ipc:// or a loopback address")
    else:
        raise ConfigError(f"{endpoint} is neither ipc:// nor tcp://")


def _check_ipc(path: Path) -> None:
    if not path.is_absolute():  # ZeroMQ takes @name for an abstract socket, which any user can reach, and * for /tmp
        raise ConfigError(f"ipc://{path} must be an absolute path")
    if "," in str(path):
        raise ConfigError(f"{path} must have no comma: a worker is given its gateways with commas between them")
    if len(str(path).encode()) > MAX_IPC_PATH_BYTES:
        raise ConfigError(f"{path} is longer than {MAX_IPC_PATH_BYTES} bytes: set a shorter --run-dir")
    try:
        folder = path.parent.stat()
    except OSError as bad:
        raise ConfigError(f"{path.parent} cannot be used for sockets: {bad.strerror}") from bad
    mode = stat.S_IMODE(folder.st_mode)
    if mode & 0o077:
        raise ConfigError(f"{path.parent} must be for its owner alone (mode 0700), not {mode:04o}")
    if folder.st_uid != os.geteuid():
        raise ConfigError(f"{path.parent} belongs to user {folder.st_uid}, not to user {os.geteuid()} who runs this")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
