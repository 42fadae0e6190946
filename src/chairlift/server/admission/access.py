"""Checks of keys, limits, certificates and hosts when a server starts."""

import ssl
from collections.abc import Iterator

from chairlift.config.keys import MIN_LENGTH, ApiKeys, read_keys
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.limits import read_adapter_limits
from chairlift.server.admission.origins import is_loopback
from chairlift.server.sockets.handshake import server_context


def check_access(settings: Settings) -> list[str]:
    """What to warn of. Raises `InvalidConfig` for unusable keys, limits or certificates, and for admin routes open to
    other machines."""
    keys = keys_of(settings)
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
        raise InvalidConfig(f"--admin-host {settings.admin_host} can be reached from elsewhere: set --admin-key too")
    return list(_warnings(settings, keys))


def keys_of(settings: Settings) -> ApiKeys:
    """Short ones are for this machine alone: others could try them all."""
    min_length = 1 if is_local(settings) else MIN_LENGTH
    return read_keys(settings.api_key, settings.api_key_file, min_length=min_length)


def _warnings(settings: Settings, keys: ApiKeys) -> Iterator[str]:
    if not keys and not is_local(settings):
        yield f"any client that can reach {settings.host} may use this server: set CHAIRLIFT_API_KEY or --api-key-file"
    if short := [key.name for key in keys if key.is_short]:
        what = f"the API key {short[0]} has" if len(short) == 1 else f"the API keys {', '.join(short)} have"
        yield f"{what} fewer than {MIN_LENGTH} characters: refused where other machines can connect (--host)"


def is_local(settings: Settings) -> bool:
    return settings.uds is not None or is_loopback(settings.host)
