"""Said before anything imports torch, and to every process that the tests start."""

import os

# Threads that wait for each other must sleep, not spin: on a busy machine spinning turns seconds into minutes.
os.environ["OMP_WAIT_POLICY"] = "passive"
