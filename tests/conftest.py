"""Said before anything imports torch or triton, and to every process that the tests start."""

import os
from pathlib import Path

# Threads that wait for each other must sleep, not spin: on a busy machine spinning turns seconds into minutes.
os.environ["OMP_WAIT_POLICY"] = "passive"

# Triton reads this when it is imported, and some test that needs no kernels may be the first to do so.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
