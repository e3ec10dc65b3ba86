"""Where the threads of this process are."""

import os
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

import torch

TORCH = str(Path(torch.__file__).parent)
STANDARD_LIBRARY = os.path.dirname(os.__file__)


def describe_place(thread: int) -> str:
    """The innermost function of `thread` that belongs neither to torch nor to the standard library."""
    frames = _frames_of(sys._current_frames().get(thread))
    if not frames:
        return ""
    frame = next((frame for frame in frames if not _is_library(frame.f_code.co_filename)), frames[0])
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"


def is_in_collective(thread: int) -> bool:
    """Whether `thread`, or one of autograd's, is inside torch.distributed."""
    known = {other.ident for other in threading.enumerate()} - {thread}
    innermost = (frame for ident, frame in sys._current_frames().items() if ident not in known)
    return any(frame.f_code.co_filename.startswith(os.path.join(TORCH, "distributed")) for frame in innermost)


def format_stacks() -> str:
    """The stacks of all threads but the one that asks, innermost function last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            stack = "".join(traceback.format_stack(frame))
            parts.append(f"Thread {names.get(ident, f'{ident} (of torch)')}:\n{stack}")
    return "\n".join(parts)


def _frames_of(frame: FrameType | None) -> list[FrameType]:
    """Innermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _is_library(file: str) -> bool:
    in_standard = file.startswith(STANDARD_LIBRARY) and "site-packages" not in file and "dist-packages" not in file
    return in_standard or file.startswith((TORCH, "<"))
