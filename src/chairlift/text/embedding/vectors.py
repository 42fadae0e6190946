"""Vectors and scores as they go out: numbers from an engine's bytes, cut, encoded and compared."""

import base64
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chairlift.core.errors import InvalidRequest

Vectors = NDArray[np.float32]  # [N, dimensions]


def vectors_of(made: Sequence[bytes], dimensions: int | None = None, normalizes: bool | None = None) -> Vectors:
    """Cut to so many dimensions; None: whole. `normalizes`: None: those that are cut, as models for it are trained."""
    whole = np.frombuffer(b"".join(made), np.float32).reshape(len(made), -1)
    cut = whole[:, :dimensions]
    if not (cut.shape != whole.shape if normalizes is None else normalizes):
        return cut
    normalized: Vectors = (cut / np.maximum(_lengths(cut), 1e-12)).astype(np.float32)
    return normalized


def check_dimensions(dimensions: int | None, most: int) -> None:
    if dimensions is not None and not 1 <= dimensions <= most:
        raise InvalidRequest("dimensions", f"must be 1 to {most}, as many as this model makes, got {dimensions}")


def base64_of(vector: Vectors, endianness: str | None = None) -> str:
    form = {"big": ">f4", "native": "=f4"}.get(endianness or "", "<f4")
    return base64.b64encode(vector.astype(form).tobytes()).decode()


def similarities(first: Vectors, second: Vectors, kind: str) -> list[float]:
    """Of each row with the one of the same index."""
    products = np.einsum("nd,nd->n", first, second)
    if kind == "cosine":
        products = products / np.maximum(_lengths(first)[:, 0] * _lengths(second)[:, 0], 1e-12)
    found: list[float] = products.tolist()
    return found


def _lengths(vectors: Vectors) -> NDArray[np.floating]:
    """[N, 1]"""
    lengths: NDArray[np.floating] = np.linalg.norm(vectors, axis=1, keepdims=True)
    return lengths
