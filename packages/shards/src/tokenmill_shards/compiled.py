"""Python functions compiled to machine code on their first call.

numba takes most of a second to import, so it is imported by the first call and not with the package. The machine code
is cached beside the source, or in the user's cache folder where the package's own cannot be written.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function` as numba compiles it. It must be a leaf: it can call no other compiled function."""

    @cache
    def machine_code() -> Any:
        from numba import njit

        try:
            return njit(cache=True, nogil=True)(function)
        except RuntimeError:  # neither place for the cache can be written: compile for this process alone
            return njit(nogil=True)(function)

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return machine_code()(*args, **kwargs)  # type: ignore[no-any-return]

    return call
