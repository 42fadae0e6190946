"""Checks of keys, limits, certificates and hosts when a server starts."""

import ssl

from chairlift.config.adapters.limits import read_adapter_limits
from chairlift.config.keys import read_keys
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.server.admission.origins import is_loopback
from chairlift.server.sockets.handshake import server_context


def check_access(settings: Settings) -> None:
    """Raises `InvalidConfig` for unusable keys, limits or certificates, and for admin routes open to other machines."""
    read_keys(settings.api_key, settings.api_key_file)
    read_keys(settings.admin_key, None, "admin_key")
    read_adapter_limits(settings.lora_limits)
    if settings.tls_cert is not None:
        try:
            server_context(settings.tls_cert, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror or getattr(error, "reason", None) or error
            raise InvalidConfig(
                f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key}: {why}; "
                "the first must be a certificate in PEM, the other its private key"
            ) from None
    if settings.admin_port is not None and settings.admin_key is None and not is_loopback(settings.admin_host):
        raise InvalidConfig(f"admin_host {settings.admin_host} can be reached from elsewhere: set admin_key too")


def warning_of(settings: Settings) -> str | None:
    """For a server that other machines can use without a key."""
    if (
        settings.uds is not None
        or is_loopback(settings.host)
        or settings.api_key is not None
        or settings.api_key_file is not None
    ):
        return None
    return f"any client that can reach {settings.host} may use this server: set CHAIRLIFT_API_KEY or --api-key-file"
