"""Makes the GPU's driver ready while torch is imported: either takes its time, and they do not need each other.

Without torch. Nothing here may fail a start: whoever needs the driver makes it ready, or says why it cannot.
"""

import ctypes
import threading


def preload() -> None:
    """Begins, beside whatever comes next."""
    threading.Thread(target=_preload, name="preload", daemon=True).start()


def _preload() -> None:
    """Of the first GPU that is visible, which is the one that torch takes; its context stays for good."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
