"""The version, in one place: the package metadata is built from it."""

VERSION = "0.2.0"
