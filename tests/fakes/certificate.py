"""A certificate for 127.0.0.1 that nobody but a test believes in."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")


class Certificate(NamedTuple):
    cert: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    subprocess.run([*command, "-keyout", made.key, "-out", made.cert], check=True, capture_output=True)
    return made
