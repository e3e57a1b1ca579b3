"""Keep freed memory in the process: by default glibc returns large blocks to the system at every step."""

import ctypes
import sys

# Parameter numbers of mallopt, from malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Set glibc to keep large freed blocks; return False where the C library is another one.

    A dense gradient of a word embedding (30,522 x 384 floats are 47 MB) is above the size from which glibc maps each
    block anew, so that the kernel clears every page of it again at every step.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _NEVER))
