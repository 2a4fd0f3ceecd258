"""`ostraka`, and `python -m ostraka`."""

import sys

from ostraka.interrupts import ending_at_once

with ending_at_once():
    from ostraka.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
