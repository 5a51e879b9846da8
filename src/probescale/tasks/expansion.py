"""How much memory Arrow data takes once it is unpacked and turned into Python values, computed before either is done.

Dictionaries, runs, views and compression let a file of a kilobyte stand for gigabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyarrow import compute, ipc, types

from probescale.utils.files import format_size

CELL = 8  # bytes: a value's place in a list
LETTERS = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
DICTIONARY_BATCH, RECORD_BATCH = 2, 3  # types of messages in a stream


def refuse_expansion(size: int, most: int) -> None:
    """Raise a ValueError where so many bytes are more than a file may expand to."""
    if size > most:
        raise ValueError(f"it expands to more than {format_size(most)}, out of proportion to its size")


def measure_columns(columns: Iterable[pa.ChunkedArray], size: int, most: int) -> int:
    """`size` and the bytes of these columns: of all texts, and of the lists of values; refused above `most`."""
    for column in columns:
        for chunk in column.chunks:
            size += int(_value_sizes(chunk, most).sum())
            refuse_expansion(size, most)
    return size


def _value_sizes(array: pa.Array, most: int) -> np.ndarray:
    """(values,) bytes of every value."""
    kind = array.type
    refuse_expansion(len(array) * CELL, most)
    if isinstance(array, pa.ExtensionArray):
        return _value_sizes(array.storage, most)
    if types.is_dictionary(kind):
        sizes = np.append(_value_sizes(array.dictionary, most), CELL)  # the last is that of a missing value
        return sizes[compute.fill_null(array.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)  # length, and where the letters are
        return CELL + views[array.offset : array.offset + len(array), 0].astype(np.int64)
    if any(is_kind(kind) for is_kind in LETTERS):
        lengths = compute.fill_null(compute.call_function("binary_length", [array]), 0)
        return CELL + lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    if types.is_struct(kind):
        return sum((_value_sizes(part, most) for part in array.flatten()), np.full(len(array), CELL))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        ends = np.concatenate([[0], np.cumsum(_value_sizes(array.values, most))])[array.offsets.to_numpy()]
        return CELL + np.diff(ends)
    if types.is_fixed_size_list(kind):
        inner = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return CELL + _value_sizes(inner, most).reshape(len(array), kind.list_size).sum(1)
    if types.is_fixed_size_binary(kind):
        return np.full(len(array), CELL + kind.byte_width)
    if any(is_kind(kind) for is_kind in (types.is_null, types.is_primitive, types.is_decimal, types.is_interval)):
        return np.full(len(array), CELL)
    raise ValueError(f"columns of type {kind} are not supported")  # such as runs and unions


def measure_stream(messages: Iterable[ipc.Message], most: int) -> int:
    """Bytes that the compressed buffers of an Arrow stream say they unpack to; refused above `most`."""
    size = 0
    for message in messages:
        try:
            size += _unpacked_size(message.metadata.to_pybytes(), message.body)
        except struct.error as error:
            raise ValueError("a message of the stream is damaged") from error
        refuse_expansion(size, most)
    return size


def _unpacked_size(metadata: bytes, body: pa.Buffer | None) -> int:
    """The sum of the sizes that stand before the compressed buffers of a message; 0 where nothing is compressed.

    The fields of Message and RecordBatch are numbered as in Arrow's format/Message.fbs.
    """
    message = _follow(metadata, 0)
    place, header = _find_field(metadata, message, 1), _find_field(metadata, message, 2)
    kind = metadata[place] if place else None
    if body is None or header is None or kind not in (DICTIONARY_BATCH, RECORD_BATCH):
        return 0
    batch = _follow(metadata, header)
    if kind == DICTIONARY_BATCH:
        inner = _find_field(metadata, batch, 1)
        batch = _follow(metadata, inner) if inner else batch
    buffers = _find_field(metadata, batch, 2)
    if buffers is None or _find_field(metadata, batch, 3) is None:  # no field "compression"
        return 0
    first = _follow(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, first)
    places = struct.iter_unpack("<qq", metadata[first + 4 : first + 4 + 16 * count])
    return sum(struct.unpack_from("<q", body, offset)[0] for offset, length in places if length)


def _follow(data: bytes, place: int) -> int:
    """Where the offset at a place of a flatbuffer leads to."""
    return place + struct.unpack_from("<I", data, place)[0]


def _find_field(data: bytes, table: int, number: int) -> int | None:
    """The place of a field of a flatbuffer's table; None where it is absent."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, fields)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", data, fields + 4 + 2 * number)
    return table + offset if offset else None
