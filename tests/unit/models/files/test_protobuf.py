import pytest

from chairlift.models.files.protobuf import fields
from fakes.protobuf import bytes_field, number_field, varint


def test_fields_come_with_their_places() -> None:
    message = (
        number_field(1, 300)
        + bytes_field(2, b"text")
        + varint(3 << 3 | 5)
        + b"\1\0\0\0"
        + varint(4 << 3 | 1)
        + b"\2" * 8
    )
    found = list(fields(memoryview(message), base=1000))
    assert [field.number for field in found] == [1, 2, 3, 4]
    assert (found[0].integer, found[0].at) == (300, 1001)
    assert (found[1].text, found[1].at) == ("text", 1005)
    assert bytes(found[2].data) == b"\1\0\0\0"


def test_negative_numbers_are_written_in_64_bits() -> None:
    (field,) = fields(memoryview(number_field(1, -1)))
    assert field.signed == -1


def test_repeated_numbers_may_be_packed() -> None:
    (packed,) = fields(memoryview(bytes_field(1, varint(3) + varint(-1) + varint(500))))
    assert list(packed.numbers()) == [3, -1, 500]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (bytes_field(1, b"12345")[:-1], "a field at byte 2 runs past the end"),
        (varint(1 << 3 | 2) + varint(2**63), "runs past the end"),
        (b"\x08\x80", "ends at byte 2, in the middle of a number"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "longer than 64 bits"),
        (b"\x08" + b"\xff" * 11, "longer than 64 bits"),
        (varint(1 << 3 | 3), "unknown wire type 3"),
        (varint(1 << 3 | 1) + b"1234", "runs past the end"),
    ],
)
def test_what_no_message_can_hold_is_refused_with_its_place(message: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        list(fields(memoryview(message)))


def test_a_number_is_no_message() -> None:
    (field,) = fields(memoryview(number_field(1, 5)))
    with pytest.raises(ValueError, match="a number stands at byte 1, where bytes belong"):
        list(field.fields())
