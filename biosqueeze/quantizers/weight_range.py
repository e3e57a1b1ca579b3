"""Whether int8 weights are restricted to 7 bits, for x86 processors without VNNI."""

import platform

from biosqueeze import environment
from biosqueeze.progress import note

_VNNI_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def reduces_range(setting: str) -> bool:
    """Return whether weights get 7 bits; without VNNI, the sum of two 8-bit products can overflow its 16 bits.

    Args:
        setting: yes, no, or auto for what this processor needs.
    """
    if setting != "auto":
        return setting == "yes"
    flags = set(environment.cpu_flags())
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    needed = is_x86 and not flags & _VNNI_FLAGS
    if needed:
        note("this processor has no VNNI: weights get 7 bits (--reduce-range no if it will run where there is VNNI)")
    return needed
