from http.server import BaseHTTPRequestHandler

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.probe import find_target
from chairlift.lab.bench.target import Address
from fakes.http_server import serving


class Locked(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_that_wants_a_key_is_told_with_the_way_out() -> None:
    with serving(Locked) as url, pytest.raises(InvalidConfig, match=r"wants an API key \(HTTP 401\); give --api-key"):
        find_target(Address.parse(url), None, None, "", True)
