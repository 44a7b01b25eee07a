"""Which Arrow types hold texts, messages or labels, and how their values are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def is_read(type: pa.DataType, *, is_nested: bool = False) -> bool:
    """Whether a column holds texts, numbers, truth values, or lists and structs of them.

    Moments are read inside of messages only, as numbers: Python has none of nanoseconds or beyond
    the year 9999.
    """
    from pyarrow import types

    if types.is_dictionary(type):
        return is_read(type.value_type, is_nested=is_nested)
    if types.is_nested(type) and not types.is_union(type):
        return all(is_read(child.type, is_nested=True) for child in _children(type))
    is_text = types.is_string(type) or types.is_large_string(type) or types.is_string_view(type)
    is_number = types.is_integer(type) or types.is_floating(type) or types.is_decimal(type)
    is_other = types.is_boolean(type) or types.is_null(type)
    return is_text or is_number or is_other or (is_nested and types.is_temporal(type))


def plain_type(type: pa.DataType) -> pa.DataType:
    """What values are decoded as: no dictionaries and views, moments as numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(type):
        return plain_type(type.value_type)
    if pa.types.is_string_view(type):
        return pa.large_string()
    if pa.types.is_temporal(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    if pa.types.is_struct(type):
        return pa.struct([child.with_type(plain_type(child.type)) for child in _children(type)])
    if pa.types.is_map(type):
        return pa.map_(plain_type(type.key_type), plain_type(type.item_type))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(plain_type(type.value_type), type.list_size)
    if pa.types.is_large_list(type):
        return pa.large_list(plain_type(type.value_type))
    return pa.list_(plain_type(type.value_type)) if pa.types.is_list(type) else type


def _children(type: pa.DataType) -> list[pa.Field]:
    return [type.field(place) for place in range(type.num_fields)]


def longest_entry(array: pa.Array) -> int:
    """Bytes that a value may have beyond its share of the array's: many may point at one text."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(array, pa.DictionaryArray):
        texts = array.dictionary
        if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
            return 0
        return compute.max(compute.binary_length(texts)).as_py() or 0
    if pa.types.is_string_view(array.type):
        return sum(buffer.size for buffer in array.buffers() if buffer is not None)
    if isinstance(array, pa.StructArray):
        return max(map(longest_entry, array.flatten()), default=0)
    if pa.types.is_nested(array.type):
        return longest_entry(array.values)
    return 0
