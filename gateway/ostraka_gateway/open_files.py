"""Connections are open files, of which a system lets a process have so many."""

import resource

from ostraka_shared.errors import ConfigError

CROWDED_CONNECTIONS = 32
"""Beyond the connections that are kept: as many are told so, and probes answered on them. Others are only closed."""
OTHER_FILES = 32
"""A gateway that serves nobody yet, without workers, has 24: pipes, event descriptors, listening sockets. A rollout
takes a few more."""
WORKER_FILES = 2
"""Its link, and the pidfd by which its end is seen."""
GATEWAY_FILES = 2
"""Each other one asks for our figures, and is asked for its own."""


def allow_open_files(connections: int, workers: int = 0, gateways: int = 1) -> None:
    """For this process and its children. Raises ConfigError where the system does not allow it."""
    known = WORKER_FILES * (workers + 1) + GATEWAY_FILES * (gateways - 1)  # one worker more while one is relieved
    wanted = connections + CROWDED_CONNECTIONS + OTHER_FILES + known
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(f"--connections={connections} needs {wanted} open files; this system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
