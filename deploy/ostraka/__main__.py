"""`ostraka`, and `python -m ostraka`."""

import sys

from ostraka.interrupts import ending_at_once
from ostraka.standard_streams import escape_unknown, open_closed_ones

open_closed_ones()
escape_unknown()
with ending_at_once():
    from ostraka.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
