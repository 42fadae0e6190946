"""Packages that may be missing: those that only some commands need, by the extra of the project that brings them, and
those of an incomplete installation."""

from importlib.util import find_spec

from chairlift.core.errors import InvalidConfig

# The modules that are imported and the packages they are in.
EXTRAS = {
    "otel": {
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    },
    "ray": {"ray": "ray"},
    "transformers": {"transformers": "transformers"},
    "tune": {"optuna": "optuna"},
}


def check_extra(what: str, extra: str) -> None:
    """Refuse what needs packages that are not installed, and say how to install them."""
    missing = [package for module, package in EXTRAS[extra].items() if not _is_installed(module)]
    if missing:
        raise InvalidConfig(f"{what} needs {' and '.join(missing)}: pip install 'chairlift[{extra}]'")


def not_installed(error: ModuleNotFoundError) -> str | None:
    """What to do about a missing package, in one line; None for a module of ours, which is no user's mistake."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "chairlift"):
        return None
    return f"the module {package} is not installed, which chairlift needs: pip install chairlift, without --no-deps"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package around it
        return False
