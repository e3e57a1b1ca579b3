"""Build the loss configuration of a distillation from its settings and two model configs, and check that they fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

from transformers import PreTrainedConfig

from biosqueeze import registry
from biosqueeze.data.output_types import OutputType
from biosqueeze.distillation.losses.presets import LossPreset, Projection, parse_losses
from biosqueeze.distillation.options import counted_weights
from biosqueeze.distillation.request import LossSettings
from biosqueeze.distillation.teachers.sources import OutputSpec
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.layer_maps import LayerMap, layer_map
from biosqueeze.models.layers import attention_sizes, attention_window
from biosqueeze.progress import note, warn

_PARTS = {
    "hidden": ("hidden",),
    "attention": ("query", "key", "bias"),
    "relations": ("query", "key", "value", "bias"),
}
EMBEDDINGS = ((0, 0),)
DEFAULT_HEAD_STEPS = 2000  # of a head that is fitted without --fit-head, and no more than the distillation has


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """Losses with their weights, and what they compare."""

    weights: Mapping[str, float]  # by loss
    output_spec: OutputSpec
    temperature: float = 1.0
    layer_map: LayerMap = ()  # pairs (student layer, teacher layer), counted from 1
    layer_weights: tuple[float, ...] = ()  # one for each pair; 1 if empty
    projection: Projection = "shared"
    relation_heads: int = 0  # see objectives.LayerPair
    windows: Mapping[tuple[int, int], int] = field(default_factory=dict)  # see loss_windows
    teacher_heads: tuple[tuple[int, ...], ...] = ()  # those that each layer of a student with fewer heads kept
    dropout: float | None = None  # the student's during this training; None keeps that of its config
    fits_heads: bool = False  # whether teachers without a masked-language-model head get a fitted one

    @property
    def losses(self) -> dict[str, ModuleType]:
        """The modules of the losses by name."""
        return {name: registry.load("objectives", name) for name in self.weights}

    def pairs_of(self, loss: ModuleType) -> LayerMap:
        """Return the pairs of depths that a loss compares; none where it reads rows."""
        if loss.READS == "rows":
            return ()
        return {"all": self.layer_map, "last": (max(self.layer_map),), "embeddings": EMBEDDINGS}[loss.LAYERS]

    @property
    def student_parts(self) -> dict[int, frozenset[str]]:
        """Parts of the student's layers that the losses read, by depth."""
        return self._parts_by_depth(0)

    @property
    def teacher_parts(self) -> dict[int, frozenset[str]]:
        """Parts of the teacher's layers that the losses read, by depth."""
        return self._parts_by_depth(1)

    def _parts_by_depth(self, side: int) -> dict[int, frozenset[str]]:
        parts: dict[int, set[str]] = {}
        for loss in self.losses.values():
            for pair in self.pairs_of(loss):
                parts.setdefault(pair[side], set()).update(_PARTS[loss.READS])
        return {depth: frozenset(names) for depth, names in parts.items()}

    @property
    def needs_teacher(self) -> bool:
        """Whether any loss reads the teacher's logits or layers."""
        return self.output_spec.logits or bool(self.teacher_parts)

    @property
    def reading_logits(self) -> list[str]:
        """The losses that read the logits of the teacher's head."""
        return [name for name, loss in self.losses.items() if loss.NEEDS_TEACHER_LOGITS]

    @property
    def trains_head(self) -> bool:
        """Whether any loss reads the logits of the student's head."""
        return any(loss.READS == "rows" for loss in self.losses.values())

    def weight_of(self, pair: tuple[int, int]) -> float:
        """Return the weight of a pair of layers."""
        return self.layer_weights[self.layer_map.index(pair)] if self.layer_weights and pair in self.layer_map else 1.0


@dataclass(frozen=True, kw_only=True)
class ModelTraits:
    """What the choice of losses depends on."""

    student: PreTrainedConfig
    teacher: PreTrainedConfig  # of the first teacher
    output_type: OutputType
    source_layers: Sequence[int] | None = None
    """For each student layer the teacher layer that it was cut from."""
    source_heads: tuple[tuple[int, ...], ...] | None = None
    """For each student layer the teacher's heads that it kept, see `heads_in_teacher`."""
    teachers_have_head: Sequence[bool] = ()
    cross_vocabulary: bool = False


def build_loss_config(settings: LossSettings, kind: str, traits: ModelTraits) -> LossConfig:
    """Build the loss configuration from --loss and its companions.

    Args:
        settings: of the losses.
        kind: "mlm" or "task".
        traits: of the models.

    Raises:
        UsageError: a loss does not fit the kind, the depths or the attention heads, or an option is not used.
    """
    preset = parse_losses(settings.loss, kind, settings.default)
    kept = {name: weight for name, weight in preset.weights.items() if name not in settings.left_out}
    preset = replace(preset, weights=kept)
    modules = {name: registry.load("objectives", name) for name in preset.weights}
    _check_kind(settings, preset, modules, kind)
    student, teacher = configs = traits.student, traits.teacher
    depths = (student.num_hidden_layers, teacher.num_hidden_layers)
    pairs = _layer_pairs(settings, preset, modules, depths, traits.source_layers)
    loss_config = LossConfig(
        weights=preset.weights,
        output_spec=OutputSpec(kind, traits.output_type, logits=_reads_soft_labels(modules)),
        temperature=preset.temperature if settings.temperature is None else settings.temperature,
        layer_map=pairs,
        layer_weights=counted_weights("--layer-weights", settings.layer_weights, len(pairs), "pair of layers"),
        projection=settings.projection or preset.projection,
        relation_heads=settings.relation_heads or 0,
        windows=loss_windows(pairs, configs),
        teacher_heads=fewer_heads(configs, traits.source_heads),
        dropout=settings.dropout,
    )
    _check_unused_settings(settings, modules)
    if settings.projection and student.hidden_size == teacher.hidden_size:
        note("--projection has no effect: student and teacher have the same hidden size")
    _check_heads(loss_config, modules, student, teacher)
    return loss_config


def fewer_heads(
    configs: tuple[PreTrainedConfig, PreTrainedConfig], source_heads: tuple[tuple[int, ...], ...] | None
) -> tuple[tuple[int, ...], ...]:
    """Return the teacher's heads that each student layer has, where it has fewer and they are known; else none.

    Args:
        configs: of the student and of the first teacher.
        source_heads: as the manifests record them, see `layer_provenance.heads_in_teacher`.
    """
    (own, _), (all_heads, _) = (attention_sizes(config) for config in configs)
    known = source_heads is not None and {len(layer) for layer in source_heads} == {own}
    return source_heads if own < all_heads and source_heads and known else ()


def loss_windows(pairs: LayerMap, configs: tuple[PreTrainedConfig, PreTrainedConfig]) -> dict[tuple[int, int], int]:
    """Return the narrower window of each pair of layers: attention is compared where both layers attend."""
    windows: dict[tuple[int, int], int] = {}
    for pair in pairs:
        sides = [attention_window(config, depth) for config, depth in zip(configs, pair, strict=True)]
        known = [side for side in sides if side is not None]
        windows |= {pair: min(known)} if known else {}
    return windows


def _layer_pairs(
    settings: LossSettings,
    preset: LossPreset,
    modules: Mapping[str, ModuleType],
    depths: tuple[int, int],
    source_layers: Sequence[int] | None,
) -> LayerMap:
    """Pair layers by --layer-map, else by the preset; a uniform one yields to the teacher layers they were cut from."""
    if settings.layer_map or preset.layers != "uniform" or source_layers is None:
        return layer_map(settings.layer_map or preset.layers, *depths, source_layers)
    pairs = layer_map("source", *depths, source_layers)
    uses_all_layers = any(module.READS != "rows" and module.LAYERS == "all" for module in modules.values())
    if uses_all_layers and pairs != layer_map(preset.layers, *depths):
        listed = ",".join(f"{student}:{teacher}" for student, teacher in pairs)
        note(
            f"each student layer is compared with the teacher layer that it was cut from ({listed}); for evenly spread "
            f"layers give --layer-map {preset.layers}"
        )
    return pairs


def without_losses(loss_config: LossConfig, names: list[str]) -> LossConfig:
    """Return the configuration without some of its losses."""
    weights = {name: weight for name, weight in loss_config.weights.items() if name not in names}
    logits = _reads_soft_labels({name: registry.load("objectives", name) for name in weights})
    return replace(loss_config, weights=weights, output_spec=replace(loss_config.output_spec, logits=logits))


def drop_losses_without_head(loss_config: LossConfig, headless: Sequence[str], *, requested: bool) -> LossConfig:
    """Drop the losses that read a head that a teacher lacks; an error if --loss names them.

    Args:
        loss_config: the configuration.
        headless: names of the teachers without a head.
        requested: whether --loss was given.

    Raises:
        SqueezeError: it was, or no other loss is left.
    """
    blocked = loss_config.reading_logits
    if not headless or not blocked:
        return loss_config
    cause = f"{_lacks_head(headless)}, and a newly initialized one would give random distributions"
    ways = "give --fit-head 2000, or a teacher with the head (for BioBERT: dmis-lab/biobert-base-cased-v1.2)"
    if requested or len(blocked) == len(loss_config.weights):
        raise SqueezeError(f"--loss {', '.join(blocked)} cannot be computed: {cause}; leave it out, or {ways}")
    reduced = without_losses(loss_config, blocked)
    warn(f"{cause}; distilling with {' + '.join(reduced.weights)} and without {', '.join(blocked)}. For all: {ways}")
    return reduced


def with_fitted_heads(loss_config: LossConfig, headless: Sequence[str]) -> LossConfig:
    """Return the configuration with heads to fit, where a loss reads one that a teacher lacks.

    Args:
        loss_config: the losses of the student's paper, which are not complete without the teacher's distribution.
        headless: names of the teachers without a head.
    """
    blocked = loss_config.reading_logits
    if not headless or not blocked:
        return loss_config
    rest = [f"--loss {name}={weight:g}" for name, weight in loss_config.weights.items() if name not in blocked]
    without = f"; without {', '.join(blocked)}: {' '.join(rest)}" if rest else ""
    note(
        f"{_lacks_head(headless)}, which the student's losses read ({', '.join(blocked)}): one is fitted first, in at "
        f"most {DEFAULT_HEAD_STEPS:,} steps (--fit-head sets their number{without}). A teacher with its own is better: "
        "for BioBERT, dmis-lab/biobert-base-cased-v1.2"
    )
    return replace(loss_config, fits_heads=True)


def _lacks_head(headless: Sequence[str]) -> str:
    return f"{' and '.join(headless)} has no masked-language-model head"


def check_fit_head(loss_config: LossConfig, teachers: Sequence[str], headless: Sequence[str]) -> None:
    """Check that --fit-head, which was given, has an effect.

    Args:
        loss_config: the configuration.
        teachers: their names.
        headless: names of those without a masked-language-model head.

    Raises:
        UsageError: every teacher has its head, or no loss reads it.
    """
    if not loss_config.reading_logits:
        raise UsageError(
            f"--fit-head: none of the losses {', '.join(loss_config.weights)} reads a teacher's head; leave it out, or "
            "add --loss kl"
        )
    if not headless:
        has = "has its" if len(teachers) == 1 else "have their"
        raise UsageError(f"{' and '.join(teachers)} {has} own head; leave --fit-head out")


def check_several_teachers(loss_config: LossConfig, teachers: Sequence[str]) -> None:
    """Note what is read of several teachers: soft labels of all, layer states of the first.

    Args:
        loss_config: the configuration.
        teachers: their names.

    Raises:
        UsageError: nothing is read of the others.
    """
    layered = [name for name, module in loss_config.losses.items() if loss_config.pairs_of(module)]
    if len(teachers) < 2:
        return
    first, others = teachers[0], " and ".join(teachers[1:])
    if not loss_config.output_spec.logits:
        read = f"the layers of the first teacher, {first}" if layered else "no teacher outputs"
        raise UsageError(
            f"--loss {', '.join(loss_config.weights)} reads {read}, so {others} would not be used; leave it out, or "
            "add --loss kl, which averages the soft labels of all"
        )
    if layered:
        of_first = f"{', '.join(layered)} compares with the layers of {first} alone"
        note(f"soft labels are the mean over all teachers; {of_first}")


def check_losses_on_labels(loss_config: LossConfig, *, labelled: bool, unlabelled: bool) -> None:
    """Check that the training data have what the losses of a task read.

    Args:
        loss_config: the configuration.
        labelled: whether there are labelled data.
        unlabelled: whether there is unlabelled text.

    Raises:
        UsageError: all losses read labels, and there are none, or some data have none.
    """
    if not unlabelled or any(module.UNIT != "labelled" for module in loss_config.losses.values()):
        return
    way = "leave --corpus out" if labelled else "give --data with labels"
    raise UsageError(
        f"--loss {', '.join(loss_config.weights)} reads labels, and the text of --corpus has none: it would not be "
        f"used; {way}, or add --loss kl"
    )


def _reads_soft_labels(modules: Mapping[str, ModuleType]) -> bool:
    return any(module.NEEDS_TEACHER_LOGITS for module in modules.values())


def _check_kind(settings: LossSettings, preset: LossPreset, modules: Mapping[str, ModuleType], kind: str) -> None:
    unfit = [name for name, module in modules.items() if kind not in module.KINDS]
    if not unfit:
        return
    cause = "a task has no masked tokens" if kind == "task" else "plain text has no labels"
    rest = [f"--loss {name}={weight:g}" for name, weight in preset.weights.items() if name not in unfit]
    if rest:
        way = f"leave it out: {' '.join(rest)}"
    else:
        fit = [name for name in registry.names("objectives") if kind in registry.load("objectives", name).KINDS]
        way = f"losses that fit: {', '.join(fit)}"
    raise UsageError(f"--loss {', '.join(settings.loss)}: {', '.join(unfit)} does not fit, because {cause}; {way}")


def _check_unused_settings(settings: LossSettings, modules: Mapping[str, ModuleType]) -> None:
    """Raise if an option has no effect on the losses."""
    layers = {module.LAYERS for module in modules.values() if module.READS != "rows"}
    uses_map, uses_all_layers = bool(layers - {"embeddings"}), "all" in layers
    uses_hidden = any(module.READS == "hidden" for module in modules.values())
    for flag, value, used in (
        ("--layer-map", settings.layer_map, uses_map),
        ("--layer-weights", settings.layer_weights, uses_all_layers),
        ("--projection", settings.projection, uses_hidden),
        ("--relation-heads", settings.relation_heads, "minilmv2" in modules),
    ):
        if value is not None and not used:
            raise UsageError(_no_effect(flag, modules))


def check_temperature(temperature: float | None, loss_config: LossConfig) -> None:
    """Check that --temperature, if given, has an effect.

    Raises:
        UsageError: no loss reads soft labels.
    """
    spec = loss_config.output_spec
    if temperature is not None and not (spec.logits and spec.output_type.has_probabilities):
        raise UsageError(_no_effect("--temperature", loss_config.weights))


def _no_effect(flag: str, losses: Iterable[str]) -> str:
    return f"{flag} has no effect on the losses {', '.join(losses)}; leave it out"


def _check_heads(
    loss_config: LossConfig, modules: Mapping[str, ModuleType], student: PreTrainedConfig, teacher: PreTrainedConfig
) -> None:
    student_heads, student_size = attention_sizes(student)
    teacher_heads, teacher_size = attention_sizes(teacher)
    bound = [name for name, module in modules.items() if getattr(module, "SAME_HEADS", False)]
    if bound and student_heads != teacher_heads and not loss_config.teacher_heads:
        raise UsageError(
            f"--loss {', '.join(bound)} compares attention head by head, but the student has {student_heads} heads and "
            f"the teacher {teacher_heads}; use minilmv2, which needs no equal heads, or a student with {teacher_heads}"
        )
    heads = loss_config.relation_heads or teacher_heads
    student_width, teacher_width = student_heads * student_size, teacher_heads * teacher_size
    if "minilmv2" in modules and (student_width % heads or teacher_width % heads):
        raise UsageError(
            f"--relation-heads {heads} does not divide both widths, {student_width} of the student and {teacher_width} "
            "of the teacher; give a number that does"
        )
