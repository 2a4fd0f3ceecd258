"""One thread for numpy's products, set before anything imports numpy: pytest's plugins do, so this is the first of them.

The tests' products are small, and threads would only wait for each other: a build of the smallest model takes 0.15 s of
CPU time, with two threads 0.55 to 1.46.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"
