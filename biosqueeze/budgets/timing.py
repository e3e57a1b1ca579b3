"""Measure the latency of small models with random weights, as `bench` measures; the times are cached."""

import copy
import functools
import hashlib
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from biosqueeze.backends import canonical_spec, check_installed, parse_spec
from biosqueeze.budgets.counts import ShapeCounter
from biosqueeze.budgets.latency import LatencyTable
from biosqueeze.budgets.plausibility import TimedModel, contradiction
from biosqueeze.budgets.shapes import Shape, config_for, own_shape
from biosqueeze.checkpoint import Checkpoint
from biosqueeze.data.cache import cache_folder, load_or_build
from biosqueeze.environment import current_environment, package_version
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.files import read_json, write_json
from biosqueeze.measuring.session import MUCH_WAITING, MeasuredModel, MeasuringSettings, measure_models
from biosqueeze.measuring.table import percentile
from biosqueeze.models.loading.load import new_model
from biosqueeze.progress import counted, note, track

_FILE = "latency.json"
_ROUNDS, _SECONDS, _WARMUP = 5, 0.2, 3
_ATTEMPTS = 3  # to measure plausible times
_OVER_VOCABULARY = ("ForMaskedLM", "ForPreTraining")
_VOCABULARY = 2048
_WITHOUT_EFFECT = ("_name_or_path", "transformers_version", "dtype", "id2label", "label2id")


def check_backend(spec: str) -> None:
    """Check that a backend can be measured.

    Args:
        spec: runtime and precision.

    Raises:
        UsageError: there is no such backend, or its models need calibration text.
        SqueezeError: it is not installed.
    """
    if parse_spec(spec) == ("openvino", "int8"):
        raise UsageError(
            "--backend openvino:int8 needs models with fixed ranges, which random weights do not have; give "
            "onnxruntime:int8, or openvino"
        )
    check_installed(spec)


@dataclass(frozen=True, kw_only=True)
class TimingRequest:
    """Which models are measured, and how."""

    config: PreTrainedConfig
    """With the new vocabulary, where there is one."""
    original: PreTrainedConfig
    architecture: str
    shapes: tuple[Shape, ...]
    spec: str
    """Runtime and precision."""
    batch: int
    length: int
    threads: int

    @property
    def summary(self) -> str:
        """Say what is measured."""
        return (
            f"{len(self._configs)} small models on {canonical_spec(self.spec)} at {self.batch} x {self.length} "
            f"(batch x tokens) with {counted(self.threads, 'thread')}"
        )

    @functools.cached_property
    def _configs(self) -> tuple[PreTrainedConfig, ...]:
        """The models: first those of the shapes, then that of the original's vocabulary."""
        config, original = (self._measured(config) for config in (self.config, self.original))
        configs = [config_for(config, shape) for shape in self.shapes]
        if original.vocab_size != config.vocab_size:
            configs.append(config_for(original, max(shape for shape in self.shapes if shape.layers == 1)))
        return tuple(configs)

    def _measured(self, config: PreTrainedConfig) -> PreTrainedConfig:
        """Return a config with a small vocabulary where no head computes logits over it: its size costs no time."""
        changed = copy.deepcopy(config)
        if not self.architecture.endswith(_OVER_VOCABULARY):
            changed.vocab_size = min(config.vocab_size, max(_VOCABULARY, (config.pad_token_id or 0) + 1))
        return changed

    def cached(self) -> LatencyTable | None:
        """Return the times that were measured before, if there are any."""
        return self._load(self._folder())

    def measure(self) -> LatencyTable:
        """Return the times; measure them if they were not.

        Raises:
            SqueezeError: a measuring process failed, the times stay implausible, or the cache cannot be written.
        """
        folder = self._folder()
        loaded, is_new = load_or_build(folder, self._load, self._build, "latency table")
        if not is_new:
            note(f"latencies of {self.summary}: measured before; to measure them again, delete {folder}")
        return loaded

    def _folder(self) -> Path:
        runtime, _ = parse_spec(self.spec)
        facts = {
            "machine": asdict(current_environment()),
            "runtime": package_version(runtime),
            "spec": canonical_spec(self.spec),
            "run": [self.batch, self.length, self.threads],
            "architecture": self.architecture,
            "models": [_content(config) for config in self._configs],
        }
        return cache_folder() / "latency" / hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def _load(self, folder: Path) -> LatencyTable | None:
        try:
            stored = read_json(folder / _FILE)
            times = [float(ms) for ms in stored["milliseconds"]]
            is_good = stored["waited_share"] <= MUCH_WAITING and not self._contradiction(times)
            return self._table(times) if is_good else None
        except (SqueezeError, OSError, KeyError, TypeError, ValueError):
            return None

    def _build(self, folder: Path) -> None:
        note(f"measure {self.summary}")
        settings = MeasuringSettings(
            shapes=((self.batch, self.length),),
            threads=self.threads,
            device="cpu",
            rounds=_ROUNDS,
            seconds=_SECONDS,
            warmup=_WARMUP,
        )
        with tempfile.TemporaryDirectory() as directory:
            models = []
            with track("build the models to measure", len(self._configs)) as bar:
                for number, config in enumerate(self._configs):
                    models.append(self._write(config, Path(directory) / str(number)))
                    bar.advance()
            times, waited = self._measured_times(models, settings)
        write_json(folder / _FILE, {"milliseconds": times, "waited_share": waited, "measured": self.summary})

    def _measured_times(
        self, models: Sequence[MeasuredModel], settings: MeasuringSettings
    ) -> tuple[list[float], float]:
        """Measure until nothing disturbs it, and no times contradict each other.

        Returns:
            the smallest median of each model, and the largest share of the last attempt for which one waited.

        Raises:
            SqueezeError: they still do after some attempts.
        """
        smallest = [math.inf] * len(models)
        for _ in range(_ATTEMPTS):
            for model in models:
                model.clear()
            measure_models(models, settings)
            medians = [percentile(model.milliseconds[self.batch, self.length], 0.5) for model in models]
            smallest = [min(pair) for pair in zip(smallest, medians, strict=True)]
            waited = max(model.waited_share for model in models)
            problem = _waiting(waited) or self._contradiction(smallest)
            if problem is None:
                return smallest, waited
            note(f"these times cannot be used: {problem}")
        raise SqueezeError(
            f"measured {_ATTEMPTS} times, and the times still cannot be used ({problem}): other work on this machine "
            "disturbs them, and they are not stored; run it again when nothing else runs, or with fewer --threads, or "
            "give --flops, which needs no times"
        )

    def _contradiction(self, times: Sequence[float]) -> str | None:
        models = [TimedModel(*each, ms) for each, ms in zip(self._costs, times, strict=True)]
        return contradiction(models) or self._table(times).contradiction()

    def _table(self, times: Sequence[float]) -> LatencyTable:
        by_shape = dict(zip(self.shapes, times, strict=False))
        return LatencyTable(by_shape, *times[len(self.shapes) :])

    @functools.cached_property
    def _costs(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Sizes and operations of the models."""
        shapes = [(own_shape(config), config) for config in self._configs]
        return tuple(
            ((*shape, config.vocab_size), ShapeCounter(config, self.architecture, self.length).of(shape).flops)
            for shape, config in shapes
        )

    def _write(self, config: PreTrainedConfig, directory: Path) -> MeasuredModel:
        """Write a model with random weights in the form that the backend loads."""
        from biosqueeze.backends.onnx_export import write_onnx
        from biosqueeze.backends.onnxruntime import FILES

        runtime, precision = parse_spec(self.spec)
        model = new_model(config, self.architecture, seed=0, attention="sdpa" if runtime == "torch" else "eager")
        checkpoint = Checkpoint(directory, f"{config.num_hidden_layers} x {config.hidden_size}")
        if runtime == "torch":
            model.save_pretrained(directory)
        else:
            model.config.save_pretrained(directory)
            write_onnx(model, directory / FILES["fp32"])
        if precision == "int8":
            _quantize(checkpoint, directory / FILES["fp32"], directory / FILES["int8"])
        return MeasuredModel(checkpoint, self.spec)


def _waiting(share: float) -> str | None:
    return f"a model waited for a processor for {share:.0%} of the time" if share > MUCH_WAITING else None


def _quantize(checkpoint: Checkpoint, source: Path, target: Path) -> None:
    from biosqueeze.quantizers import QuantizationJob, onnx_dynamic

    job = QuantizationJob(checkpoint=checkpoint, source=source, target=target)
    onnx_dynamic.quantize(job)


def _content(config: PreTrainedConfig) -> Mapping[str, Any]:
    """Return what a model's speed depends on."""
    content = {key: value for key, value in config.to_dict().items() if key not in _WITHOUT_EFFECT}
    return {**content, "labels": config.num_labels}
