"""Makes the GPU's driver ready while torch is imported: both take long and are independent.

Without torch. Nothing here may fail a start: later uses of the driver make it ready, or say why not.
"""

import ctypes
import threading


def preload() -> None:
    """Begins, in a thread."""
    threading.Thread(target=_preload, name="preload", daemon=True).start()


def _preload() -> None:
    """Of the first visible GPU, which torch takes too; its context stays for good."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
