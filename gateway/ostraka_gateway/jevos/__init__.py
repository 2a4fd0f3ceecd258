"""The dialect of feder-cr/jev, a server for one machine: its statuses, bodies, limits and order of checks."""
