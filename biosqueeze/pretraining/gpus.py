"""Peak speeds of accelerators. Torch-free."""

from dataclasses import dataclass

from biosqueeze.errors import UsageError
from biosqueeze.registry import closest

PEAK_FLOPS = {
    "A100": 312e12,
    "H100": 989e12,
    "H200": 989e12,
    "L4": 121e12,
    "L40S": 362e12,
    "RTX4090": 165e12,
    "TPUv4": 275e12,
    "TPUv5e": 197e12,
    "V100": 125e12,
}
"""Dense bf16 FLOPs per second (V100: fp16), of the SXM version where there are several.

By the data sheets of NVIDIA; those of H100, H200 (1,979 TFLOPS) and L4 (242) give numbers with sparsity, which are
halved. RTX 4090: the whitepaper of Ada, with sums in fp32. TPU: Google Cloud's documentation, per chip.
"""


@dataclass(frozen=True)
class Gpus:
    """Some accelerators of one kind."""

    name: str
    count: int

    @property
    def peak(self) -> float:
        """FLOPs per second of all of them."""
        return PEAK_FLOPS[self.name] * self.count

    def __str__(self) -> str:
        return f"{self.count} x {self.name}"


def parse_gpus(text: str) -> Gpus:
    """Parse --gpu, such as h100:8.

    Raises:
        UsageError: there is no such accelerator in the table.
        ValueError: the number is not positive.
    """
    name, _, count = text.partition(":")
    known = {key.lower(): key for key in PEAK_FLOPS}
    if name.lower() not in known:
        raise UsageError(
            f"--gpu: there is no {name!r} in the table.{closest(name, PEAK_FLOPS)} Known: {', '.join(PEAK_FLOPS)}"
        )
    number = int(count or 1)
    if number < 1:
        raise ValueError(text)
    return Gpus(known[name.lower()], number)
