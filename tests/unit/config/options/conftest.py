"""Said before tests import the command line."""

import fakes.one_parser  # noqa: F401
