"""The software versions and the processor that a stage ran with. Torch-free: no package is imported for its version."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from biosqueeze import __version__

_PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "onnx",
    "onnxruntime",
    "torch-pruning",
    "neural-compressor",
)
# The instruction sets that the runtimes choose their kernels by.
_CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimddp",
    "i8mm",
)
_VNNI_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


@dataclass(frozen=True)
class Environment:
    """Versions and processor; a package that is not installed has the version None."""

    biosqueeze: str
    python: str
    system: str
    cpu: str
    cpu_flags: tuple[str, ...]
    packages: Mapping[str, str | None]


def current_environment() -> Environment:
    """Return the versions and the processor of this process."""
    return Environment(
        biosqueeze=__version__,
        python=platform.python_version(),
        system=platform.platform(terse=True),
        cpu=cpu_name(),
        cpu_flags=cpu_flags(),
        packages={name: package_version(name) for name in _PACKAGES},
    )


def cpu_name() -> str:
    """Return the processor's name, or its architecture where the system does not give one."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def is_intel() -> bool:
    """Return whether the processor is one of Intel's."""
    return "intel" in (_cpuinfo("vendor_id") or platform.processor()).lower()


def cpu_flags() -> tuple[str, ...]:
    """Return those of the processor's instruction sets that matter for speed."""
    present = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    return tuple(flag for flag in _CPU_FLAGS if flag in present)


def lacks_vnni() -> bool:
    """Return whether this is an x86 processor without VNNI.

    It adds two products of an 8-bit activation and an 8-bit weight in 16 bits, where they can overflow. With weights
    of 7 bits they cannot.
    """
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return is_x86 and not _VNNI_FLAGS & set(cpu_flags())


def package_version(package: str) -> str | None:
    """Return the version of a package; None where no package of that name is installed."""
    import importlib.metadata  # takes 15 ms, which --help should not spend

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpuinfo(key: str) -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
