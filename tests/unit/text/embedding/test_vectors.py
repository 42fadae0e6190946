"""Vectors as they go out: cut, normalised, encoded."""

import base64

import numpy as np

from chairlift.text.embedding.vectors import base64_of, vectors_of

MADE = [np.array([3, 4, 12], np.float32).tobytes()]


def test_vectors_are_normalised_where_they_are_cut_or_the_body_asks() -> None:
    assert vectors_of(MADE).tolist() == vectors_of(MADE, 3).tolist() == [[3, 4, 12]]
    np.testing.assert_allclose(vectors_of(MADE, 2), [[0.6, 0.8]], atol=1e-6)
    np.testing.assert_allclose(vectors_of(MADE, normalizes=True), [[3 / 13, 4 / 13, 12 / 13]], atol=1e-6)
    assert vectors_of(MADE, 2, normalizes=False).tolist() == [[3, 4]]


def test_bytes_have_the_order_that_the_body_asks_for() -> None:
    [vector] = vectors_of(MADE)
    little, big = (base64.b64decode(base64_of(vector, order)) for order in (None, "big"))
    assert np.frombuffer(little, "<f4").tolist() == np.frombuffer(big, ">f4").tolist() == [3, 4, 12]
    assert base64_of(vector, "native") == base64.b64encode(vector.tobytes()).decode()
