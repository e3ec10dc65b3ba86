"""Memory of the host that is freed and wanted again many times a step.

glibc gives every large block back to the system when it is freed. The next one then comes in pages that do not exist
yet: each costs a fault and is filled with zeros first. In a training step on a CPU that was a tenth of all time.
"""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""mallopt(3), from malloc.h."""
NEVER, LARGEST_KEPT = -1, 1 << 30
"""Blocks of up to 1 GiB come from the heap, and the heap is not made smaller."""


def keep_freed_memory() -> bool:
    """Have the process keep what it frees, for its own next use; whether the C library can (glibc alone can)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT) and mallopt(M_TRIM_THRESHOLD, NEVER))
