"""What guides a cut: an importance, calibration data, and whether it is repaired; checked without any weights."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from biosqueeze.checkpoint import Checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.importance import Importance, open_importance, scores_width, width_importances
from biosqueeze.importance.options import ImportanceOptions
from biosqueeze.importance.sources import CalibrationRequest, check_loss, fine_tuning_data, has_loss, open_request
from biosqueeze.models.cuts.depth import whole_number
from biosqueeze.models.families import family_of
from biosqueeze.progress import note, warn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from biosqueeze.models.cuts.width import Widths

MAX_LENGTH = 128
"""Tokens of a line of calibration text."""
_MORE = "(more --calibration data, or --calibration-tokens)"
_TOKENS_PER_INPUT = 2
"""With fewer, the least-squares fit of a layer may be far worse on other text than what was cut."""


@dataclass(frozen=True)
class Guide:
    """How a cut is chosen and repaired."""

    name: str | None = None
    """Of the importance; None for the magnitudes and rules of a cut without data."""
    request: CalibrationRequest | None = None
    repairs: bool = False
    must_repair: bool = False
    """Whether --repair least-squares was given, so that a cut is repaired on however little data."""
    tries_layers: bool = False
    """Whether a number of layers is chosen by what is lost after repair, and not by the importance."""
    spreads_layers: bool = False
    """Whether they are spread evenly, where there are too few tokens to try that."""
    advice: str = ""
    """How a cut without data is chosen, and what would be better."""

    @property
    def importance(self) -> Importance | None:
        """The importance of that name."""
        return open_importance(self.name) if self.name else None

    def chooses_layers(self, layers: str | None) -> bool:
        """Return whether --layers is a number of layers that are chosen by data."""
        is_chosen = self.tries_layers or (self.name is not None and not self.spreads_layers)
        return is_chosen and _is_number(layers)

    def limited(self, config: "PreTrainedConfig", tokens: int) -> "Guide":
        """Return the guide without what so few tokens are too few for, which is said.

        Args:
            config: of the model that is cut.
            tokens: of the calibration data.
        """
        needed = _TOKENS_PER_INPUT * int(getattr(config, family_of(config).ffn_key))
        guide, few = self, f"{tokens:,} tokens are too few"
        if guide.tries_layers and tokens < 2 * needed:  # half of them are for the comparison
            note(f"layers are spread evenly: {few} to try removals on, which needs {2 * needed:,} {_MORE}")
            guide = replace(guide, tries_layers=False, spreads_layers=True)
        if not guide.repairs or tokens >= needed:
            return guide
        if guide.must_repair:
            warn(f"{few} for a repair, which needs {needed:,}: it may be worse than what was cut {_MORE}")
            return guide
        note(f"not repaired: {few} for that, which needs {needed:,} {_MORE}")
        return replace(guide, repairs=False, request=guide.request if guide.name else None)

    @property
    def steps(self) -> tuple[str, ...]:
        """Say for the plan how the cut is guided."""
        what = "heads, neurons and hidden dimensions " if self.tries_layers or self.spreads_layers else ""
        chosen = (f"choose {what}by {self.name}",) if self.name else ()
        data = (self.request.summary,) if self.request else ()
        repaired = ("repair by least squares",) if self.repairs else ()
        return (*((self.advice,) if self.advice else ()), *data, *chosen, *repaired)


def with_calibration(options: Any, source: Checkpoint, config: "PreTrainedConfig", *, narrows: bool) -> Any:
    """Return the options with the data of a fine-tuning, where they choose and repair what is kept of a width.

    Args:
        options: `ImportanceOptions` of a stage.
        source: that is cut.
        config: the source's.
        narrows: whether neurons, heads or hidden dimensions are chosen.
    """
    given = options.calibration or options.importance
    if given or not narrows or source.task is None or not family_of(config).supports_narrowing:
        return options
    if data := fine_tuning_data(source):
        return replace(options, calibration=data, sources={**options.sources, "calibration": "fine-tuning"})
    return options


def plan_guide(
    options: ImportanceOptions, source: Checkpoint, config: "PreTrainedConfig", widths: "Widths", layers: str | None
) -> Guide:
    """Check the options of a cut against the checkpoint.

    Args:
        options: with `field` and `seed` of the stage.
        source: that is cut.
        config: the source's.
        widths: that are kept.
        layers: the value of --layers.

    Raises:
        UsageError: the data have no labels, an importance does not score what is cut, or an option has no effect.
        SqueezeError: there are no such data.
    """
    name = options.importance_name
    if name is None and options.repair != "least-squares":
        return replace(_without_data(options), advice=_advice(source, config, widths, layers))
    _check_family(config)
    _check_something_is_cut(options, widths, layers)
    problem = _repair_problem(config, widths)
    may_repair = options.repair != "none" and not problem
    if options.importance is None and widths.empty and (may_repair or not _is_number(layers)):
        name = None  # --importance is not given, and no units of a layer are chosen
    importance = open_importance(name) if name else None
    if name and importance:
        _check_kinds(name, importance, config, widths, layers)
    if options.repair == "least-squares" and problem:
        raise UsageError(f"--repair least-squares {problem}; give --repair none, or another cut")
    needs_data = importance is not None and importance.NEEDS != "weights"
    if options.calibration and not needs_data and not may_repair:
        chosen = f"--importance {name}, which reads only weights" if name else "--layers that are listed"
        raise UsageError(f"--calibration has no effect with {chosen}, and without repair; leave it out")
    if not (needs_data or options.repair == "least-squares" or options.calibration):
        return _without_data(options, name)
    flag = f"--importance {name}" if needs_data else "--repair least-squares"
    request = open_request(options, source, flag, MAX_LENGTH)
    if name and importance and options.importance is None and not has_loss(source, request):
        name = "wanda" if family_of(config).supports_narrowing else "block-influence"
        note(f"{request.source} has no labels for {source.name}, so units are chosen by {name}")
    elif name and importance:
        check_loss(name, importance, source, request)
    if problem and options.repair == "auto":
        note(f"not repaired: least squares {problem}")
    tries = options.importance is None and may_repair and _is_number(layers)
    return Guide(name, request, may_repair, options.repair == "least-squares", tries).limited(config, request.tokens)


def is_guided(options: ImportanceOptions, config: "PreTrainedConfig", layers: str | None) -> bool:
    """Return whether an option chooses or repairs layers, so that calibration data serve not smaller embeddings alone.

    Args:
        options: of a cut that keeps all widths.
        config: of the model.
        layers: the value of --layers.
    """
    if options.importance or options.repair == "least-squares":
        return True
    uses_data = _is_number(layers) or (layers is not None and options.repair != "none")
    return bool(options.calibration) and uses_data and not family_of(config).shares_layers


def embedding_request(options: Any, source: Checkpoint) -> CalibrationRequest | None:
    """Return the data whose tokens count for smaller embeddings, by default those of the fine-tuning, if there are any.

    Args:
        options: `ImportanceOptions` with `field` and `seed`.
        source: that is cut.

    Raises:
        UsageError: an option has no effect.
        SqueezeError: there are no such data.
    """
    if options.calibration or fine_tuning_data(source):
        return open_request(options, source, "--embedding", MAX_LENGTH)
    _without_data(options)
    return None


def _without_data(options: Any, name: str | None = None) -> Guide:
    if options.is_given("calibration_tokens"):
        raise UsageError("--calibration-tokens has no effect on a cut that reads no data; give --calibration too")
    return Guide(name)


def _advice(source: Checkpoint, config: "PreTrainedConfig", widths: "Widths", layers: str | None) -> str:
    """Say how a cut without data is chosen, and which data would be better; "" where nothing is chosen."""
    data, family = source.task.data if source.task else None, family_of(config)
    if not widths.empty and family.supports_narrowing:
        missing = f" (those of the fine-tuning, {data}, are not here)" if data else ""
        return (
            "choose by magnitude, and do not repair: --calibration DATA, of the task or text, loses far less" + missing
        )
    if _is_number(layers) and not family.shares_layers:
        known = fine_tuning_data(source) or "DATA"
        return (
            "spread the layers evenly, and do not repair: where no long training follows, --calibration "
            f"{known} loses far less"
        )
    return ""


def _is_number(layers: str | None) -> bool:
    return layers is not None and whole_number(layers) is not None


def _check_family(config: "PreTrainedConfig") -> None:
    if family_of(config).shares_layers:
        raise UsageError(
            "all layers of an ALBERT share their weights, so there is nothing to choose by --importance or to repair; "
            "leave --importance, --calibration and --repair out"
        )


def _check_something_is_cut(options: ImportanceOptions, widths: "Widths", layers: str | None) -> None:
    if widths.empty and layers is None and not options.importance:
        flag = "--repair least-squares" if options.repair == "least-squares" else "--calibration"
        raise UsageError(
            f"{flag} has no effect where neither layers nor neurons, heads or hidden dimensions are cut; leave it out"
        )


def _check_kinds(
    name: str, importance: Importance, config: "PreTrainedConfig", widths: "Widths", layers: str | None
) -> None:
    """Check that the importance scores the units that are cut."""
    narrows, family = not widths.empty, family_of(config)
    if getattr(importance, "NARROWABLE_ONLY", False) and not family.supports_narrowing:
        raise UsageError(f"--importance {name} scores no layers of a {family.name}; leave it out, or give another one")
    if narrows and not scores_width(name):
        raise UsageError(
            f"--importance {name} scores layers alone, and not the neurons and heads that are cut here; give --layers "
            f"alone, and cut the width of what it writes with --importance {width_importances()}"
        )
    if not narrows and not _is_number(layers):
        raise UsageError(
            f"--importance {name} has nothing to choose here; give --layers a number of layers, or --ffn, --heads or "
            "--width"
        )


def _repair_problem(config: "PreTrainedConfig", widths: "Widths") -> str | None:
    """Return why a cut cannot be repaired; None if it can."""
    if family_of(config).has_bottleneck:
        return f"does not support the bottlenecks of a {family_of(config).name}"
    if widths.head_size is not None:
        return "does not support narrower heads, whose dimensions are not the original's"
    return None
