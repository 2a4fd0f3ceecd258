import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.cores import Core, CoreLayout, Machine, plan_cores, read_machine
from ostraka_shared.errors import ConfigError

V1_HOST = "31 23 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
V2_HOST = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def flat(cores: int, quota: float | None = None) -> Machine:
    """One node, no SMT."""
    return Machine(tuple(Core(0, (n,)) for n in range(cores)), quota)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        pytest.param({}, None, id="no cgroup at all"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/app.slice/ostraka.service\n",
                "proc/self/mountinfo": V2_HOST,
                "sys/fs/cgroup/app.slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/app.slice/ostraka.service/cpu.max": "max 100000\n",
            },
            1.5,
            id="v2, limit on an ancestor",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "proc/self/mountinfo": V2_HOST,
                "sys/fs/cgroup/a/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "25000 10000\n",
            },
            2.5,
            id="v2, the tightest counts",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_HOST, "sys/fs/cgroup/cpu.max": "max 100000\n"},
            None,
            id="v2, unlimited",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo": V2_HOST,
                "sys/fs/cgroup/cpu.max": "75000 100000\n",
            },
            0.75,
            id="v2, container with a cgroup namespace",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/../../other\n",
                "proc/self/mountinfo": V2_HOST,
                "sys/fs/cgroup/cpu.max": "200000 100000\n",
            },
            2.0,
            id="v2, our cgroup lies outside the namespace",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "2:cpuacct:/\n1:cpu:/docker/61\n0::/docker/61\n",
                "proc/self/mountinfo": V1_HOST.replace(" / /", " /docker/61 /"),
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "75000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.75,
            id="v1, container without a cgroup namespace: the mount's top is ours",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/61\n",
                "proc/self/mountinfo": V1_HOST.replace("rw,cpu", "rw,cpu,cpuacct"),
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            3.0,
            id="v1, container whose path does not exist below the mount",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "1:cpu:/kubepods/pod1/c1\n",
                "proc/self/mountinfo": V1_HOST,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/kubepods/pod1/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/kubepods/pod1/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/kubepods/pod1/c1/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/kubepods/pod1/c1/cpu.cfs_period_us": "100000\n",
            },
            4.0,
            id="v1, host, limit on the pod",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "1:cpu:/\n0::/\n",
                "proc/self/mountinfo": V1_HOST + V2_HOST.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
            id="hybrid host without limits",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo": V2_HOST,
                "sys/fs/cgroup/cpu.max": "garbage\n",
            },
            None,
            id="unreadable figures are no limit",
        ),
    ],
)
def test_quota_is_read(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert read_machine(tree(tmp_path, files), available=range(4)).quota == quota


def test_effective_cpuset_narrows_the_affinity(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod\n",
            "proc/self/mountinfo": V2_HOST,
            "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
            "sys/fs/cgroup/pod/cpuset.cpus.effective": "2-3,6\n",
        },
    )
    assert read_machine(root, available=range(8)).cpus == (2, 3, 6)


def test_cpuset_that_shares_nothing_with_the_affinity_is_disbelieved(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_HOST,
            "sys/fs/cgroup/cpuset.cpus.effective": "8-9\n",
        },
    )
    assert read_machine(root, available=[0, 1]).cpus == (0, 1)


def test_nodes_and_siblings_are_read(tmp_path: Path) -> None:
    files = {"node/node0/cpulist": "0-1,4-5\n", "node/node1/cpulist": "2-3,6-7\n"}
    files |= {f"cpu/cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n" for n in range(8)}
    tree(tmp_path / "sys/devices/system", files)
    machine = read_machine(tmp_path, available=[0, 2, 3, 4, 6, 7])
    assert machine.cores == (Core(0, (0, 4)), Core(1, (2, 6)), Core(1, (3, 7)))


def test_siblings_outside_the_affinity_are_not_ours(tmp_path: Path) -> None:
    topology = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": "0-1\n" for n in range(2)}
    assert read_machine(tree(tmp_path, topology), available=[1]).cores == (Core(0, (1,)),)


def test_this_machine_stays_within_its_affinity() -> None:
    machine = read_machine()
    assert set(machine.cpus) <= os.sched_getaffinity(0)
    assert plan_cores(machine, workers=None, cores_per_worker=1).workers


@pytest.mark.parametrize(
    ("machine", "workers", "gateway"),
    [
        pytest.param(flat(1), 1, (0,), id="one core is shared"),
        pytest.param(flat(2), 2, (0, 1), id="two are shared"),
        pytest.param(flat(7), 7, tuple(range(7)), id="seven are shared"),
        pytest.param(flat(8), 7, (7,), id="from eight on the gateway has one"),
        pytest.param(flat(2, 0.75), 1, (0, 1), id="a quota below one is one worker"),
        pytest.param(flat(8, 3.9), 3, tuple(range(8)), id="the quota is rounded down"),
        pytest.param(flat(4, 64.0), 4, (0, 1, 2, 3), id="a quota above the cores adds none"),
        pytest.param(flat(16, 8.0), 7, tuple(range(16)), id="the gateway's core counts against the quota"),
        pytest.param(
            Machine((Core(0, (0, 2)), Core(0, (1, 3)))), 2, (0, 1, 2, 3), id="small with SMT: shared, siblings included"
        ),
        pytest.param(
            Machine(tuple(Core(0, (n, n + 8)) for n in range(8))),
            7,
            (7, 8, 9, 10, 11, 12, 13, 14, 15),
            id="large with SMT: one core and the idle siblings",
        ),
    ],
)
def test_default_layout(machine: Machine, workers: int, gateway: tuple[int, ...]) -> None:
    layout = plan_cores(machine, workers=None, cores_per_worker=1)
    assert layout.workers == tuple((n,) for n in range(workers))
    assert layout.gateway == gateway


def test_fewer_workers_spread_over_the_nodes() -> None:
    machine = Machine(tuple(Core(n // 4, (n,)) for n in range(8)))
    layout = plan_cores(machine, workers=3, cores_per_worker=1)
    assert (layout.workers, layout.nodes) == (((0,), (1,), (4,)), (0, 0, 1))
    assert layout.gateway == (2, 3, 5, 6, 7)


def test_wide_worker_leaves_the_odd_core_rather_than_cross_a_node() -> None:
    machine = Machine(tuple(Core(n // 3, (n,)) for n in range(6)))
    layout = plan_cores(machine, workers=None, cores_per_worker=2)
    assert layout.workers == ((0, 1), (3, 4))
    assert layout.gateway == (2, 5)


def test_gateway_core_never_costs_a_wide_worker_more_than_an_eighth() -> None:
    assert len(plan_cores(flat(8), workers=None, cores_per_worker=4).workers) == 2
    assert len(plan_cores(flat(32), workers=None, cores_per_worker=4).workers) == 7


@pytest.mark.parametrize(
    ("cores", "cores_per_worker", "gateways", "workers"),
    [(8, 1, 3, 5), (7, 1, 3, 7), (16, 2, 3, 6), (17, 2, 1, 8), (8, 1, 20, 1)],
)
def test_each_of_several_gateways_has_a_core_where_one_would(cores, cores_per_worker, gateways, workers) -> None:
    layout = plan_cores(flat(cores), workers=None, cores_per_worker=cores_per_worker, gateways=gateways)
    assert len(layout.workers) == workers
    if workers > 1 and cores >= 8:
        assert len(layout.gateway) >= gateways


def test_asked_for_workers_may_take_the_gateways_core() -> None:
    layout = plan_cores(flat(8), workers=8, cores_per_worker=1)
    assert len(layout.workers) == 8
    assert layout.gateway == tuple(range(8))


@pytest.mark.parametrize(
    ("machine", "workers", "cores_per_worker", "message"),
    [
        (flat(2), 3, 1, r"--workers 3 .* hold 2; lower --workers to 2$"),
        (flat(2, 1.5), 2, 1, r"CPU quota of 1\.5 hold 1; lower --workers to 1$"),
        (flat(4), 3, 2, r"hold 2; lower --workers to 2 or lower --cores-per-worker$"),
        (flat(2), None, 3, r"lower --cores-per-worker to 2$"),
        (flat(8, 2.0), 1, 4, r"lower --cores-per-worker to 2$"),
        (Machine((Core(0, (0,)), Core(1, (1,)))), 1, 2, r"never crosses a NUMA node.* lower --cores-per-worker to 1$"),
        (flat(2), 0, 1, r"--workers is 0"),
        (flat(2), None, 0, r"--cores-per-worker is 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    machine: Machine, workers: int | None, cores_per_worker: int, message: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan_cores(machine, workers=workers, cores_per_worker=cores_per_worker)
    assert re.search(message, str(refusal.value))


@pytest.mark.parametrize(
    ("machine", "notes"),
    [
        (flat(8), "7 worker(s) of 1 core(s) on 8 physical core(s) (0-7) with no CPU quota; gateway on 7"),
        (flat(2), "2 worker(s) of 1 core(s) on 2 physical core(s) (0-1) with no CPU quota; gateway on all of them"),
        (
            flat(8, 3.9),
            "3 worker(s) of 1 core(s) on 8 physical core(s) (0-7) with a CPU quota of 3.9; nothing pinned, for others may run on them too",
        ),
    ],
)
def test_notes_are_one_line_with_the_reasons(machine: Machine, notes: str) -> None:
    assert plan_cores(machine, workers=None, cores_per_worker=1).notes == notes


@pytest.mark.parametrize(
    ("machine", "is_pinned"),
    [
        pytest.param(flat(4), True, id="no quota"),
        pytest.param(flat(4, 4.0), True, id="a quota of all we see: an exclusive cpuset"),
        pytest.param(flat(4, 3.0), False, id="a share of cores that others see as well"),
        pytest.param(Machine((Core(0, (0, 2)), Core(0, (1, 3))), 2.0), False, id="SMT threads are seen by others too"),
    ],
)
def test_only_cores_of_our_own_are_pinned(machine: Machine, is_pinned: bool) -> None:
    assert plan_cores(machine, workers=1, cores_per_worker=1).is_pinned == is_pinned


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    nodes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    threads = draw(st.integers(1, 2))
    numbers = iter(draw(st.permutations(range(sum(nodes) * threads))))
    cores = tuple(
        Core(node, tuple(sorted(next(numbers) for _ in range(threads))))
        for node, n in enumerate(nodes)
        for _ in range(n)
    )
    return Machine(cores, draw(st.none() | st.floats(0.05, 64)))


def plan_or_none(machine: Machine, workers: int | None, cores_per_worker: int) -> CoreLayout | None:
    try:
        return plan_cores(machine, workers=workers, cores_per_worker=cores_per_worker)
    except ConfigError:
        return None


@given(machines(), st.none() | st.integers(1, 50), st.integers(1, 6))
def test_every_layout_holds_its_promises(machine: Machine, workers: int | None, cores_per_worker: int) -> None:
    layout = plan_or_none(machine, workers, cores_per_worker)
    if layout is None:
        return
    core_of = {thread: core for core in machine.cores for thread in core.threads}
    used = [cpu for cpus in layout.workers for cpu in cpus]
    physical = [core_of[cpu] for cpu in used]  # a KeyError here is a core that is not ours
    assert len(set(physical)) == len(used), "a physical core in two workers"
    assert all(len(cpus) == cores_per_worker for cpus in layout.workers)
    assert all({core_of[cpu].node for cpu in cpus} == {n} for cpus, n in zip(layout.workers, layout.nodes, strict=True))
    assert workers is None or len(layout.workers) == workers
    assert machine.quota is None or len(used) <= max(1, int(machine.quota))
    assert layout.gateway
    assert set(layout.gateway) == set(core_of) or set(layout.gateway) == set(core_of) - set(used)
    assert "\n" not in layout.notes


@given(machines())
def test_default_is_one_worker_a_core_less_the_gateways_from_eight_on(machine: Machine) -> None:
    cores = len(machine.cores) if machine.quota is None else min(len(machine.cores), max(1, int(machine.quota)))
    layout = plan_cores(machine, workers=None, cores_per_worker=1)
    assert len(layout.workers) == (cores if cores < 8 else cores - 1)


@given(machines(), st.integers(1, 6))
def test_as_many_fit_as_the_refusal_says(machine: Machine, cores_per_worker: int) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan_cores(machine, workers=1000, cores_per_worker=cores_per_worker)
    fits = re.search(r"lower --workers to (\d+)", str(refusal.value))
    if fits is None:
        assert plan_or_none(machine, 1, cores_per_worker) is None
    else:
        assert plan_or_none(machine, int(fits[1]), cores_per_worker)
        assert plan_or_none(machine, int(fits[1]) + 1, cores_per_worker) is None


@given(machines())
def test_nodes_are_filled_evenly_while_they_have_room(machine: Machine) -> None:
    layout = plan_cores(machine, workers=None, cores_per_worker=1)
    sizes = {core.node: sum(other.node == core.node for other in machine.cores) for core in machine.cores}
    left = sorted(size - layout.nodes.count(node) for node, size in sizes.items() if layout.nodes.count(node))
    assert all(wider - narrower <= 1 for narrower, wider in pairwise(left))


@given(machines())
def test_layout_does_not_depend_on_the_order_of_the_cores(machine: Machine) -> None:
    reversed_machine = Machine(machine.cores[::-1], machine.quota)
    assert plan_cores(machine, workers=None, cores_per_worker=1) == plan_cores(
        reversed_machine, workers=None, cores_per_worker=1
    )
