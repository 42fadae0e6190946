"""Packages that only some commands need, by the extra of the project that brings them."""

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


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package around it
        return False
