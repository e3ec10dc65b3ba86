"""Types of Arrow with microseconds for nanoseconds, which are no type of Python's own.

Arrow makes objects of pandas of them where pandas is installed: what is written must not depend on that.
"""

import pyarrow as pa
from pyarrow import types


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """`kind` itself if it holds no nanoseconds; otherwise what to cast to, lists and dictionaries in plain form."""
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if kind == pa.duration("ns"):
        return pa.duration("us")
    if kind == pa.time64("ns"):
        return pa.time64("us")
    if types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if types.is_dictionary(kind) or _is_list(kind):
        value = in_microseconds(kind.value_type)
        if value != kind.value_type:
            return pa.large_list(value) if _is_list(kind) else value
    return kind


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(in_microseconds(field.type))


def _is_list(kind: pa.DataType) -> bool:
    plain = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(plain or types.is_list_view(kind) or types.is_large_list_view(kind))
