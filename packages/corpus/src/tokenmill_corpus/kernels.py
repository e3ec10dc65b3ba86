"""How functions over buffers are compiled."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function that makes no arrays.

    Numba then keeps no count of references to the arrays that it is handed. In short functions, called for each word
    or line, that count costs more than all else they do.
    """
    compiled: Function = _compile(function)
    return compiled


_compile: Any = partial(numba.njit, cache=True, _nrt=False)
