"""From the options of distillation and two models to a recipe that can be computed: what cannot is said here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from transformers import PreTrainedConfig

from biosqueeze import registry
from biosqueeze.data.output_types import OutputType
from biosqueeze.distillation.loss_presets import LossPreset, Projection, parse_losses
from biosqueeze.distillation.options import DistillationOptions, layer_weights
from biosqueeze.distillation.teachers import Question
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.models.layer_maps import LayerMap, layer_map
from biosqueeze.models.layers import attention_sizes
from biosqueeze.progress import note, warn

_PARTS = {
    "hidden": ("hidden",),
    "attention": ("query", "key"),
    "relations": ("query", "key", "value"),
}
EMBEDDINGS = ((0, 0),)


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """How to distil."""

    weights: Mapping[str, float]  # by loss
    question: Question
    temperature: float = 1.0
    layers: LayerMap = ()  # pairs (student layer, teacher layer), counted from 1
    layer_weights: tuple[float, ...] = ()  # one for each pair; 1 if left out
    projection: Projection = "shared"
    relation_heads: int = 0  # see objectives.Pair
    dropout: float | None = None  # the student's while it trains; None is its config's

    @property
    def losses(self) -> dict[str, ModuleType]:
        """The modules of the losses."""
        return {name: registry.load("objectives", name) for name in self.weights}

    def pairs_of(self, loss: ModuleType) -> LayerMap:
        """The pairs of depths on which a loss acts; none where it reads rows."""
        if loss.READS == "rows":
            return ()
        return {"all": self.layers, "last": (max(self.layers),), "embeddings": EMBEDDINGS}[loss.LAYERS]

    def wanted(self, side: int) -> dict[int, frozenset[str]]:
        """Parts by depth that the losses read of the student (side 0) or the teacher (side 1)."""
        found: dict[int, set[str]] = {}
        for loss in self.losses.values():
            for pair in self.pairs_of(loss):
                found.setdefault(pair[side], set()).update(_PARTS[loss.READS])
        return {depth: frozenset(parts) for depth, parts in found.items()}

    @property
    def needs_teacher(self) -> bool:
        """Whether any loss reads what the teacher says or has inside."""
        return self.question.logits or bool(self.wanted(1))

    @property
    def teaches_head(self) -> bool:
        """Whether any loss reads what the student's head says."""
        return any(loss.READS == "rows" for loss in self.losses.values())

    def weight_of(self, pair: tuple[int, int]) -> float:
        """How much a pair of layers counts."""
        return self.layer_weights[self.layers.index(pair)] if self.layer_weights and pair in self.layers else 1.0


def build_loss_config(
    options: DistillationOptions,
    kind: str,
    output_type: OutputType,
    models: tuple[PreTrainedConfig, PreTrainedConfig],
    origin: Sequence[int] | None = None,
) -> LossConfig:
    """The recipe that --loss and its companions ask for.

    Args:
        options: of the stage.
        kind: "mlm" or "task".
        output_type: of the task's head; TOKENS for mlm.
        models: the configs of the student and of the first teacher.
        origin: see `models.layer_maps`.

    Raises:
        UsageError: a loss does not fit the kind, the depths or the attention heads, or an option is not used.
    """
    mix = parse_losses(options.loss, kind)
    modules = {name: registry.load("objectives", name) for name in mix.weights}
    _check_kind(options, mix, modules, kind)
    student, teacher = models
    pairs = _layers(options, mix, modules, (student.num_hidden_layers, teacher.num_hidden_layers), origin)
    recipe = LossConfig(
        weights=mix.weights,
        question=Question(kind, output_type, logits=_reads_soft_labels(modules)),
        temperature=mix.temperature if options.temperature is None else options.temperature,
        layers=pairs,
        layer_weights=layer_weights(options.layer_weights, len(pairs)),
        projection=options.projection or mix.projection,
        relation_heads=options.relation_heads or 0,
        dropout=options.dropout,
    )
    _refuse_idle(options, modules)
    if options.projection and student.hidden_size == teacher.hidden_size:
        note("--projection: student and teacher are equally wide, and nothing is projected")
    _check_heads(recipe, modules, student, teacher)
    return recipe


def _layers(
    options: DistillationOptions,
    mix: LossPreset,
    modules: Mapping[str, ModuleType],
    depths: tuple[int, int],
    origin: Sequence[int] | None,
) -> LayerMap:
    """Layers that were cut from the teacher are compared with what they were, unless another map is asked for."""
    if options.layer_map or mix.layers != "uniform" or origin is None:
        return layer_map(options.layer_map or mix.layers, *depths, origin)
    pairs = layer_map("origin", *depths, origin)
    everywhere = any(module.READS != "rows" and module.LAYERS == "all" for module in modules.values())
    if everywhere and pairs != layer_map(mix.layers, *depths):
        said = ",".join(f"{mine}:{its}" for mine, its in pairs)
        note(f"layers learn from those that they were cut from ({said}); --layer-map {mix.layers} spreads them evenly")
    return pairs


def without(recipe: LossConfig, names: list[str]) -> LossConfig:
    """The recipe less some losses."""
    weights = {name: weight for name, weight in recipe.weights.items() if name not in names}
    logits = _reads_soft_labels({name: registry.load("objectives", name) for name in weights})
    return replace(recipe, weights=weights, question=replace(recipe.question, logits=logits))


def drop_losses_without_head(recipe: LossConfig, headless: Sequence[str], *, asked: bool) -> LossConfig:
    """Leave out the losses that need a head that a teacher lacks, unless they were asked for: that is an error.

    Args:
        recipe: what is learned.
        headless: names of the teachers without a head.
        asked: whether the losses are the user's choice.

    Raises:
        SqueezeError: they are, or nothing else is left.
    """
    blocked = [name for name, module in recipe.losses.items() if module.NEEDS_TEACHER_LOGITS]
    if not headless or not blocked:
        return recipe
    why = (
        f"{' and '.join(headless)} was saved without its masked-language-model head, and a fresh one would give random "
        "distributions"
    )
    ways = "give --fit-head 2000, or a teacher with the head (for BioBERT: dmis-lab/biobert-base-cased-v1.2)"
    if asked or len(blocked) == len(recipe.weights):
        raise SqueezeError(f"--loss {', '.join(blocked)} cannot be computed: {why}; leave it out, or {ways}")
    kept = without(recipe, blocked)
    warn(f"{why}; distilling with {' + '.join(kept.weights)} and without {', '.join(blocked)}. To have all: {ways}")
    return kept


def check_several_teachers(recipe: LossConfig, teachers: Sequence[str]) -> None:
    """Say what is learned from whom: soft labels from all teachers, inner states from the first.

    Args:
        recipe: what is learned.
        teachers: their names.

    Raises:
        UsageError: nothing is learned from the others.
    """
    inside = [name for name, module in recipe.losses.items() if recipe.pairs_of(module)]
    if len(teachers) < 2 or not inside:
        return
    first, others = teachers[0], " and ".join(teachers[1:])
    if not recipe.question.logits:
        raise UsageError(
            f"--loss {', '.join(recipe.weights)} reads what is inside of the first teacher, {first}, and {others} "
            "would not be asked; leave it out, or add --loss kl, the mean of their soft labels"
        )
    note(f"soft labels are the mean of all teachers'; for {', '.join(inside)} the student looks at {first} alone")


def _reads_soft_labels(modules: Mapping[str, ModuleType]) -> bool:
    return any(module.NEEDS_TEACHER_LOGITS for module in modules.values())


def _check_kind(options: DistillationOptions, mix: LossPreset, modules: Mapping[str, ModuleType], kind: str) -> None:
    unfit = [name for name, module in modules.items() if kind not in module.KINDS]
    if not unfit:
        return
    why = "a task has no masked tokens" if kind == "task" else "plain text has no labels"
    rest = [f"--loss {name}={weight:g}" for name, weight in mix.weights.items() if name not in unfit]
    if rest:
        way = f"what is left is {' '.join(rest)}"
    else:
        fit = [name for name in registry.names("objectives") if kind in registry.load("objectives", name).KINDS]
        way = f"fit: {', '.join(fit)}"
    raise UsageError(f"--loss {', '.join(options.loss)}: {', '.join(unfit)} does not fit, for {why}; {way}")


def _refuse_idle(options: DistillationOptions, modules: Mapping[str, ModuleType]) -> None:
    """No option is ignored in silence."""
    acting = {module.LAYERS for module in modules.values() if module.READS != "rows"}
    mapped, everywhere = bool(acting - {"embeddings"}), "all" in acting
    hidden = any(module.READS == "hidden" for module in modules.values())
    for flag, given, used in (
        ("--layer-map", options.layer_map, mapped),
        ("--layer-weights", options.layer_weights, everywhere),
        ("--projection", options.projection, hidden),
        ("--relation-heads", options.relation_heads, "minilmv2" in modules),
    ):
        if given is not None and not used:
            raise UsageError(_acts_on_none(flag, modules))


def refuse_idle_temperature(options: DistillationOptions, recipe: LossConfig) -> None:
    """No option is ignored in silence.

    Raises:
        UsageError: --temperature is given, and there are no soft labels to soften further.
    """
    if options.temperature is not None and not (
        recipe.question.logits and recipe.question.output_type.has_probabilities
    ):
        raise UsageError(_acts_on_none("--temperature", recipe.weights))


def _acts_on_none(flag: str, losses: Iterable[str]) -> str:
    return f"{flag} acts on none of the losses {', '.join(losses)}; leave it out"


def _check_heads(
    recipe: LossConfig, modules: Mapping[str, ModuleType], student: PreTrainedConfig, teacher: PreTrainedConfig
) -> None:
    (mine, size), (its, its_size) = attention_sizes(student), attention_sizes(teacher)
    bound = [name for name, module in modules.items() if getattr(module, "SAME_HEADS", False)]
    if bound and mine != its:
        raise UsageError(
            f"--loss {', '.join(bound)} compares attention head by head, but the student has {mine} heads and the "
            f"teacher {its}; take minilmv2, whose relations need no equal heads, or a student with {its}"
        )
    heads = recipe.relation_heads or its
    if "minilmv2" in modules and (mine * size % heads or its * its_size % heads):
        raise UsageError(
            f"--relation-heads {heads} does not divide both widths, {mine * size} of the student and {its * its_size} "
            "of the teacher; give a number that does"
        )
