"""fp32 in compiled functions: bf16, which NumPy lacks, as the upper halves of fp32, and exponentials that vectorise.

Products may be fused with sums in what `compiled` compiles, but nothing is reordered, and NaN stays NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

F32 = np.float32
_FLOAT, _BITS = ir.FloatType(), ir.IntType(32)

_LOWEST, _HIGHEST = F32(-87.0), F32(88.0)
"""Below, an exponential is taken for 0, above, for infinity: about where fp32 ends."""
_LOG2_E, _LN_2, _LN_2_REST, _HALF = F32(math.log2(math.e)), F32(0.693145751953125), F32(1.428606765330187e-06), F32(0.5)
_C0, _C2, _C3, _C4, _C5, _C6, _C7 = (F32(1 / math.factorial(power)) for power in (0, 2, 3, 4, 5, 6, 7))


def compiled(function: Callable[..., Any]) -> Any:
    """`function` in machine code, kept beside its source where that can be. Division by 0 is NumPy's."""
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no place for the cache can be written: compile for this process alone
        return njit(**options)(function)


def _wide(_context: Any, x: Any) -> Any:  # pragma: no cover
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if x == types.float32:
            return arguments[0]
        return builder.bitcast(builder.shl(builder.zext(arguments[0], _BITS), _BITS(16)), _FLOAT)

    return types.float32(x), generate


def _narrowed(_context: Any, _x: Any, like: Any) -> Any:  # pragma: no cover
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        x = arguments[0]
        if like.dtype == types.float32:
            return x
        bits = builder.bitcast(x, _BITS)
        is_odd = builder.and_(builder.lshr(bits, _BITS(16)), _BITS(1))
        nearest = builder.lshr(builder.add(builder.add(bits, _BITS(0x7FFF)), is_odd), _BITS(16))
        is_nan = builder.fcmp_unordered("uno", x, x)
        return builder.trunc(builder.select(is_nan, _BITS(0x7FC0), nearest), ir.IntType(16))

    return like.dtype(types.float32, like), generate


def _power(_context: Any, _n: Any) -> Any:  # pragma: no cover
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.shl(builder.add(arguments[0], _BITS(127)), _BITS(23)), _FLOAT)

    return types.float32(types.int32), generate


wide: Callable[[Any], Any] = intrinsic(_wide)  # type: ignore[assignment]
"""The fp32 of an element that is fp32, or the uint16 of a bf16."""
narrowed: Callable[[Any, Any], Any] = intrinsic(_narrowed)  # type: ignore[assignment]
"""`narrowed(x, like)`: fp32 as the array `like` holds it: as it is, or the uint16 of the nearest bf16, ties to even."""
_power_of_two: Callable[[Any], Any] = intrinsic(_power)  # type: ignore[assignment]
"""The fp32 2^n of an int32 from -126 to 127."""


@compiled
def exp(x: Any) -> Any:  # pragma: no cover
    """The exponential, to 2e-7 of itself, in operations that vectorise: 2^n times the series of the rest."""
    n = np.floor(x * _LOG2_E + _HALF)
    r = x - n * _LN_2 - n * _LN_2_REST
    series = _C0 + r * (_C0 + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))))
    inside = series * _power_of_two(np.int32(n))
    return F32(0) if x < _LOWEST else F32(np.inf) if x > _HIGHEST else inside
