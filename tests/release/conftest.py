"""The built files in dist/, which `make wheel` makes; without those of this version the tests here are skipped."""

from pathlib import Path

import pytest

from chairlift.config.version import VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheels() -> dict[str, Path]:
    """By processor, as the last tag names it."""
    found = sorted((ROOT / "dist").glob(f"chairlift-{VERSION}-*.whl"))
    if not found:
        pytest.skip(f"needs dist/chairlift-{VERSION}-*.whl: make wheel")
    return {"x86_64" if path.stem.endswith("x86_64") else "aarch64": path for path in found}


@pytest.fixture(scope="session")
def sdist(wheels: dict[str, Path]) -> Path:
    return ROOT / "dist" / f"chairlift-{VERSION}.tar.gz"
