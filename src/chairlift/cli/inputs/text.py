"""Figures as commands print them."""


def size(amount: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(amount) >= unit:
            return f"{amount / unit:.1f} {name}"
    return f"{amount} B"
