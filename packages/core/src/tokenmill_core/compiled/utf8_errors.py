"""Whether bytes are UTF-8 (RFC 3629), for compiled code, many at a time."""

import numpy as np
from numpy.typing import NDArray

from tokenmill_core.compiled.eight_bytes import trailing_zeros
from tokenmill_core.compiled.kernel import kernel
from tokenmill_core.compiled.wide import WIDTH, not_ascii, utf8_errors


@kernel
def find_utf8_error(text: NDArray[np.uint8], first: int, last: int) -> int:
    """Where `text[first:last]` is no UTF-8 any more; `last` or beyond if nowhere. A `wide.MARGIN` lies around it.

    A character that is cut short ends at the byte after it, which has to belong to the text too: a line end, say.
    """
    before = np.uint64(0)
    while first < last:
        here = not_ascii(text, first)
        # A character that begins in the last three bytes of a step ends in the next.
        if here | before >> np.uint64(WIDTH - 3) != 0:
            errors = utf8_errors(text, first)
            if errors != 0:
                return first + trailing_zeros(errors)
        before = here
        first += WIDTH
    return last
