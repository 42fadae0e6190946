"""A report's lines in a terminal: a name on the left, then words or columns of numbers."""


def line(name: str, text: str) -> str:
    return f"{name:<14}{text}"


def columns(name: str, *cells: str, first: int = 14, width: int = 12) -> str:
    return f"{name:<{first}}" + "".join(f"{cell:>{width}}" for cell in cells)
