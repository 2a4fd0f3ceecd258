"""Connections are open files, of which a system lets a process have so many."""

import resource

from ostraka_shared.errors import ConfigError

CROWDED_CONNECTIONS = 32
"""Beyond the connections that are kept: as many are told so, and probes answered on them. Others are only closed."""
OTHER_FILES = 32
"""Sockets to workers, pipes, a model's files."""


def allow_open_files(connections: int) -> None:
    """For this process and its children. Raises ConfigError where the system does not allow it."""
    wanted = connections + CROWDED_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(f"--connections={connections} needs {wanted} open files; this system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
