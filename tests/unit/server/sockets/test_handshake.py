"""A certificate is renewed while connections come."""

import logging
import shutil
from pathlib import Path

import pytest

from chairlift.server.sockets import handshake
from chairlift.server.sockets.handshake import RenewedContext
from fakes.certificate import make_certificate, needs_openssl


@needs_openssl
def test_a_renewed_certificate_is_used_once_its_files_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(handshake, "_LOOK_S", 0.0)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = (make_certificate(tmp_path / name) for name in ("old", "new"))
    shutil.copy(old.cert, cert)
    shutil.copy(old.key, key)
    renewed = RenewedContext(cert, key)
    first = renewed.get()
    assert renewed.get() is first
    shutil.copy(new.cert, cert)
    assert renewed.get() is first
    assert renewed.get() is first
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    shutil.copy(new.key, key)
    second = renewed.get()
    assert second is not first
    assert renewed.get() is second
    assert "it is another certificate now" in caplog.text
