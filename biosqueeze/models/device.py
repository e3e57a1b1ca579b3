"""The device that PyTorch computes on in this process: the one of --device, or else an accelerator, or else the CPU."""

from dataclasses import dataclass

import torch

from biosqueeze.environment import is_intel
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.options.values import AUTO_DEVICE
from biosqueeze.progress import warn
from biosqueeze.system import processes


@dataclass
class _Selection:
    device: torch.device | None = None


_selected = _Selection()


def select_device(name: str) -> None:
    """Set the device of this process.

    Args:
        name: auto, cpu, or the kind of an accelerator with or without a number, such as cuda or cuda:1.

    Raises:
        SqueezeError: there is no such device.
        UsageError: several processes were started, of which each has a device of its own.
    """
    if name == AUTO_DEVICE:
        _selected.device = None
        return
    if processes.count() > 1 and name != "cpu":
        raise UsageError(f"--device {name}: each of the processes has a device of its own; leave it out")
    device = torch.device(name)
    if device.type != "cpu":
        _check_present(device)
        device = torch.device(device.type, device.index or 0)
    _selected.device = device


def own_device() -> torch.device:
    """Return the selected device; else the accelerator of this process's LOCAL_RANK, else the CPU."""
    if _selected.device is not None:
        return _selected.device
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device(kind.type, processes.local_index()) if kind else torch.device("cpu")


def has_bf16() -> bool:
    """Return whether the GPU, or else the CPU, computes matrix products faster in bf16 than in fp32.

    A CPU does with AMX, or with the AVX-512 BF16 of AMD. Intel's without AMX, which a virtual machine may hide,
    computes them more slowly than fp32: examples/benchmarks/results/fine_tuning.md has the figures.
    """
    if own_device().type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if torch.cpu._is_amx_tile_supported():
        return True
    return torch.cpu._is_avx512_bf16_supported() and not is_intel()


def warn_of_slow_bf16(instead: str) -> None:
    """Warn if bf16 takes longer than fp32 on this device.

    Args:
        instead: the option that is faster here.
    """
    if not has_bf16():
        warn(f"this processor has no fast units for bf16, which takes longer than fp32 here; give {instead}")


def is_selected() -> bool:
    """Return whether --device named a device."""
    return _selected.device is not None


def _check_present(device: torch.device) -> None:
    present = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    count = torch.accelerator.device_count() if present else 0
    if present is None or present.type != device.type or (device.index or 0) >= count:
        found = ", ".join(f"{present.type}:{number}" for number in range(count)) if present else "no accelerator"
        raise SqueezeError(f"--device {device}: PyTorch finds {found} on this machine; leave it out, or give cpu")
