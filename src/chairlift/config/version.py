"""The version, in one place: the package metadata is built from it."""

VERSION = "0.1.0"
