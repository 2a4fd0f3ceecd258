"""Which cores each worker is pinned to and over which the gateway floats.

`read_machine` reads affinity, cgroup limits, NUMA nodes and SMT siblings; `plan_cores` is pure. Nothing here pins
anything, and nothing asks how many cores the machine has: in a container that number is not ours to use.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ostraka_shared.errors import ConfigError

# The gateway needs under 1 ms of CPU a request, the model 50 to 100 ms: a core of its own is paid for by its quiet only
# where it costs at most an eighth of the workers.
GATEWAY_CORE_FROM_WORKERS = 8


@dataclass(frozen=True, slots=True, order=True)
class Core:
    """A physical core; `threads` are those of its CPU numbers that we may use, two or more with SMT."""

    node: int
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use. `quota` is CPU time per wall time, in cores; None is unlimited."""

    cores: tuple[Core, ...]
    quota: float | None = None

    @property
    def usable(self) -> int:
        """Physical cores we can keep busy. Rounded down: a thread too many is one that the kernel stops mid-call."""
        if self.quota is None:
            return len(self.cores)
        return min(len(self.cores), max(1, int(self.quota)))

    @property
    def is_ours(self) -> bool:
        """A quota below the CPUs we see means others run on them too; pinned, all such neighbours meet on CPU 0."""
        return self.quota is None or self.quota >= len(self.cpus)

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(thread for core in self.cores for thread in core.threads))


@dataclass(frozen=True, slots=True)
class CoreLayout:
    """CPU numbers. `nodes` has the NUMA node of each worker, whose weights can be shared within it.

    Where `is_pinned` is false the core sets say how many workers and threads there are, and the kernel places them.
    """

    workers: tuple[tuple[int, ...], ...]
    nodes: tuple[int, ...]
    gateway: tuple[int, ...]
    is_pinned: bool
    notes: str


def plan_cores(machine: Machine, *, workers: int | None, cores_per_worker: int, gateways: int = 1) -> CoreLayout:
    """One SMT thread of each physical core at most. `workers` None means as many as is sensible. Raises ConfigError."""
    if cores_per_worker < 1:
        raise ConfigError(f"--cores-per-worker is {cores_per_worker}: give 1 or more")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers is {workers}: give 1 or more, or leave it out")
    fit = _most_workers(machine, cores_per_worker)
    count = _default_workers(machine, fit, cores_per_worker, gateways) if workers is None else workers
    if count > fit:
        raise ConfigError(
            f"--workers {count} with {cores_per_worker} core(s) each do not fit: {_describe(machine)} hold {fit}; "
            f"lower --workers to {fit}" + (" or lower --cores-per-worker" if cores_per_worker > 1 else "")
        )
    placed = _place(machine.cores, count, cores_per_worker)
    held = {core for cores in placed for core in cores}
    gateway = _gateway_cpus(machine, held)
    placing = "gateway on all of them" if gateway == machine.cpus else f"gateway on {_format_list(gateway)}"
    if not machine.is_ours:
        placing = "nothing pinned, for others may run on them too"
    return CoreLayout(
        workers=tuple(tuple(core.threads[0] for core in cores) for cores in placed),
        nodes=tuple(cores[0].node for cores in placed),
        gateway=gateway,
        is_pinned=machine.is_ours,
        notes=f"{count} worker(s) of {cores_per_worker} core(s) on {_describe(machine)}; {placing}",
    )


def read_machine(root: Path = Path("/"), available: Iterable[int] | None = None) -> Machine:
    """`available` are the CPU numbers of the affinity mask, this process's own by default."""
    cpus = set(os.sched_getaffinity(0) if available is None else available)
    quotas = []
    for folder in _cgroup_folders(root):
        # The kernel keeps the mask within the cpuset; a runtime that emulates either may not
        cpus = cpus & _parse_list(_read(folder / "cpuset.cpus.effective")) or cpus
        if (quota := _read_quota(folder)) is not None:
            quotas.append(quota)
    return Machine(tuple(_read_cores(root / "sys/devices/system", cpus)), min(quotas, default=None))


def _most_workers(machine: Machine, cores_per_worker: int) -> int:
    per_node: dict[int, int] = {}
    for core in machine.cores:
        per_node[core.node] = per_node.get(core.node, 0) + 1
    fit = min(sum(n // cores_per_worker for n in per_node.values()), machine.usable // cores_per_worker)
    if not fit:
        largest = min(machine.usable, max(per_node.values()))
        raise ConfigError(
            f"--cores-per-worker {cores_per_worker} does not fit: a worker never crosses a NUMA node, and "
            f"{_describe(machine)} hold at most {largest} for one; lower --cores-per-worker to {largest}"
        )
    return fit


def _default_workers(machine: Machine, fit: int, cores_per_worker: int, gateways: int) -> int:
    """All that fit, less those in whose place each gateway has a core of its own, where gateways are worth that."""
    if fit < GATEWAY_CORE_FROM_WORKERS:
        return fit
    missing = max(0, gateways - (machine.usable - fit * cores_per_worker))
    return max(1, fit - math.ceil(missing / cores_per_worker))


def _place(cores: Iterable[Core], count: int, cores_per_worker: int) -> list[tuple[Core, ...]]:
    """Each worker goes to the node with most cores free: memory bandwidth is the wall, so every node's is used."""
    free: dict[int, list[Core]] = {}
    for core in sorted(cores):
        free.setdefault(core.node, []).append(core)
    placed = []
    for _ in range(count):
        roomiest = max(sorted(free), key=lambda node: len(free[node]))
        placed.append(tuple(free[roomiest][:cores_per_worker]))
        del free[roomiest][:cores_per_worker]
    return sorted(placed)


def _gateway_cpus(machine: Machine, held: set[Core]) -> tuple[int, ...]:
    """What no worker is pinned to, idle SMT siblings too, if that includes a whole core; else everything."""
    if not machine.is_ours or len(held) == len(machine.cores):
        return machine.cpus
    pinned = {core.threads[0] for core in held}
    return tuple(cpu for cpu in machine.cpus if cpu not in pinned)


def _describe(machine: Machine) -> str:
    quota = "no CPU quota" if machine.quota is None else f"a CPU quota of {machine.quota:g}"
    return f"{len(machine.cores)} physical core(s) ({_format_list(machine.cpus)}) with {quota}"


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """Our cgroup and its ancestors, as far as they are mounted: any of them may be the one with the limit.

    In a container the path in /proc/self/cgroup is often the host's, and the mount shows our own folder as its top.
    """
    paths: dict[str, PurePosixPath] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, place = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), PurePosixPath(place)))
    for line in _read(root / "proc/self/mountinfo").splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        if kind not in ("cgroup", "cgroup2") or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        top, point = mount.split(" ")[3:5]
        path = paths.get("cpu" if kind == "cgroup" else "", PurePosixPath("/"))
        below = path.relative_to(top).parts if path.is_relative_to(top) and ".." not in path.parts else ()
        for depth in range(len(below), -1, -1):
            yield root.joinpath(point.lstrip("/"), *below[:depth])


def _read_quota(folder: Path) -> float | None:
    """Of cgroup v2 (`75000 100000`, or `max 100000`) or v1 (two files, -1 for unlimited)."""
    words = _read(folder / "cpu.max").split()
    words = words or [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
    try:
        quota_us, period_us = (float(word) for word in words)
    except ValueError:
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _read_cores(system: Path, cpus: set[int]) -> list[Core]:
    """Machines that hide their topology count as one node without SMT."""
    nodes = {
        cpu: int(folder.name.removeprefix("node"))
        for folder in system.glob("node/node[0-9]*")
        for cpu in _parse_list(_read(folder / "cpulist"))
    }
    cores, seen = [], set[int]()
    for cpu in sorted(cpus):
        if cpu in seen:
            continue
        siblings = _parse_list(_read(system / f"cpu/cpu{cpu}/topology/thread_siblings_list"))
        threads = tuple(sorted((siblings & cpus - seen) | {cpu}))
        seen.update(threads)
        cores.append(Core(nodes.get(cpu, 0), threads))
    return sorted(cores)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _parse_list(text: str) -> set[int]:
    """`0-2,8` -> {0, 1, 2, 8}."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _format_list(cpus: Iterable[int]) -> str:
    """The reverse of `_parse_list`, for the log."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], cpu]
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
