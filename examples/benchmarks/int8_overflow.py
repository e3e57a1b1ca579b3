"""int8 graphs on a processor without VNNI: difference from float32 and time, see results/latency.md.

    biosqueeze quantize CHECKPOINT --out int8
    python int8_overflow.py int8 TEXT

Compared are the graph of `biosqueeze quantize`, the same without a division of inputs, and what ONNX
Runtime's own `quantize_dynamic` makes of the same float graph: weights of 8 bits, whose sums of two products overflow
without VNNI, the same computed exactly with the session option `session.x64quantprecision`, and weights of 7 bits. The
graphs run in turns on each batch, on one thread; the times are the least of all rounds.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic

from biosqueeze import environment
from biosqueeze.backends.onnx_files import FLOAT, INT8
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.quantizers import QuantizationJob, onnx_dynamic
from biosqueeze.quantizers.calibration import CalibrationText, text_batches
from biosqueeze.text_table import markdown

if TYPE_CHECKING:
    from biosqueeze.quantizers.calibration import TokenBatch


def main() -> None:
    """Print a table of the graphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="what `biosqueeze quantize` wrote, not --slim")
    parser.add_argument("text")
    parser.add_argument("--lines", type=int, default=1000, help="of the text")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    checkpoint = open_checkpoint(str(options.checkpoint))
    text = CalibrationText(source=options.text, field="text", lines=options.lines, max_length=128, seed=0)
    batches, _ = text_batches(text, checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        sessions = make_sessions(options.checkpoint, Path(folder))
        rounds = [run(sessions, batches) for _ in range(options.rounds)]
    print(f"{environment.cpu_name()}, {'no ' if environment.lacks_vnni() else ''}VNNI, {options.lines} lines\n")
    print(markdown(["weights", "RMSE of the outputs", "same predictions", "s"], rows(rounds)))


def make_sessions(checkpoint: Path, folder: Path) -> dict[str, onnxruntime.InferenceSession]:
    """Return the sessions to compare by name, the float graph first."""
    graph = checkpoint / FLOAT
    bits = {number: folder / f"{number}.onnx" for number in (8, 7)}
    for number, path in bits.items():
        quantize_dynamic(
            graph,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=number == 7,
            weight_type=QuantType.QInt8,
        )
    whole = folder / "whole.onnx"
    onnx_dynamic.quantize(QuantizationJob(checkpoint=open_checkpoint(str(checkpoint)), source=graph, target=whole))
    return {
        "float32": session_of(graph),
        "biosqueeze quantize": session_of(checkpoint / INT8),
        "the same, inputs not divided": session_of(whole),
        "8 bits": session_of(bits[8]),
        "8 bits, computed exactly": session_of(bits[8], exact=True),
        "7 bits": session_of(bits[7]),
    }


def session_of(path: Path, *, exact: bool = False) -> onnxruntime.InferenceSession:
    """Return a session of one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(
    sessions: Mapping[str, onnxruntime.InferenceSession], batches: Sequence["TokenBatch"]
) -> dict[str, tuple[NDArray[np.float32], float]]:
    """Return the outputs (tokens or texts, labels) of each session without padding, and the seconds that they took."""
    names = [value.name for value in next(iter(sessions.values())).get_inputs()]
    outputs = {name: list[NDArray[np.float32]]() for name in sessions}
    seconds = dict.fromkeys(sessions, 0.0)
    for batch in batches:
        feed = {name: batch.get(name, np.zeros_like(batch["input_ids"])) for name in names}
        for name, session in sessions.items():
            started = time.perf_counter()
            values = session.run(None, feed)[0]
            seconds[name] += time.perf_counter() - started
            outputs[name].append(values[feed["attention_mask"] == 1] if values.ndim == 3 else values)
    return {name: (np.concatenate(outputs[name]), seconds[name]) for name in sessions}


def rows(rounds: Sequence[Mapping[str, tuple[NDArray[np.float32], float]]]) -> list[list[str]]:
    """Return a row for each graph: its outputs compared with the float graph's, and its least time."""
    expected, _ = rounds[0]["float32"]
    table = []
    for name, (outputs, _) in rounds[0].items():
        error = float(np.sqrt(np.square(outputs - expected).mean()))
        same = float((outputs.argmax(-1) == expected.argmax(-1)).mean())
        table.append([name, f"{error:.4f}", f"{same:.3%}", f"{min(each[name][1] for each in rounds):.2f}"])
    return table


if __name__ == "__main__":
    main()
