"""What runs, asked while processes come and go: one that ends between two questions is one that is gone."""

import psutil


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def children(pid: int, name: str, is_deep: bool = False) -> dict[int, str]:
    """Names by process id: those that a process started (`is_deep`: and they in turn) with `name` a part of theirs, and
    those among them that ended and nobody has waited for."""
    found = {}
    for child in psutil.Process(pid).children(recursive=is_deep):
        try:
            if name in (own := child.name()):
                found[child.pid] = own
        except psutil.NoSuchProcess:
            pass
    return found
