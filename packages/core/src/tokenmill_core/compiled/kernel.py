"""How functions over buffers are compiled, and how they read an array."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function that makes no arrays, into each compiled function that calls it.

    Numba then keeps no count of references to the arrays that it is handed. In short functions, called for each word
    or line, that count, and the call itself, cost more than all else they do.
    """
    compiled: Function = _compile(function)
    return compiled


_compile: Any = partial(numba.njit, cache=True, _nrt=False, forceinline=True)


def _at(typing_context: Any, array: Any, i: Any) -> Any:
    assert array.layout == "C", array

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.gep(data, [arguments[1]]))

    return array.dtype(array, types.int64), generate


at: Callable[[NDArray[Any], int], Any] = intrinsic(_at)  # type: ignore[assignment]
"""`at(array, i)`: `array[i]`, where `i` is not negative. For `array[i]` compiled code asks each time whether it is."""
