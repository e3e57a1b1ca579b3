"""Choose the losses that a distillation runs with: --loss, or the defaults as far as they can be computed.

The run and --dry-run choose in the same way: the one from loaded models, the other from configs.
"""

from dataclasses import replace

from biosqueeze import registry
from biosqueeze.distillation.losses.config import (
    LossConfig,
    ModelTraits,
    build_loss_config,
    check_fit_head,
    check_losses_on_labels,
    check_several_teachers,
    check_temperature,
    drop_losses_without_head,
    fewer_heads,
    with_fitted_heads,
)
from biosqueeze.distillation.losses.presets import WITHOUT_ATTENTION, parse_losses
from biosqueeze.distillation.request import DistillationRequest, LossSettings
from biosqueeze.distillation.teachers.cache.plan import build_cache_spec
from biosqueeze.distillation.teachers.cross_vocabulary import check_cross_vocabulary
from biosqueeze.errors import UsageError
from biosqueeze.models.layers import attention_sizes
from biosqueeze.progress import note
from biosqueeze.system import processes


def choose_losses(request: DistillationRequest, traits: ModelTraits) -> LossConfig:
    """Build the loss configuration, and check it against the models and the options.

    Raises:
        UsageError: losses and options do not fit together or to the models, or a cache cannot store what they read.
        SqueezeError: a loss of --loss needs a head that a teacher lacks.
    """
    names = [teacher.name for teacher in request.models.teachers]
    losses = _with_defaults(request, traits)
    loss_config = build_loss_config(losses, request.models.kind, traits)
    headless = [name for name, has_head in zip(names, traits.teachers_have_head, strict=True) if not has_head]
    if request.head_steps is not None:
        check_fit_head(loss_config, names, headless)
        loss_config = replace(loss_config, fits_heads=True)
    elif _has_paper_losses(request):
        loss_config = with_fitted_heads(loss_config, headless)
    headless = [] if loss_config.fits_heads else headless
    loss_config = drop_losses_without_head(loss_config, headless, requested=bool(request.losses.loss))
    check_several_teachers(loss_config, names)
    if request.models.kind == "task":
        data = request.data
        check_losses_on_labels(loss_config, labelled=data.data is not None, unlabelled=bool(data.corpus))
    check_temperature(request.losses.temperature, loss_config)
    if traits.cross_vocabulary:
        check_cross_vocabulary(loss_config, traits.output_type, request.models.student_name, names[0])
    _check_cache(request, loss_config, cross_vocabulary=traits.cross_vocabulary)
    return loss_config


def _check_cache(request: DistillationRequest, loss_config: LossConfig, *, cross_vocabulary: bool) -> None:
    """Check that --cache-teacher can store the outputs that the losses read.

    Raises:
        UsageError: it cannot, or it is unknown how many there will be.
    """
    if request.cache is None:
        return
    if cross_vocabulary:
        raise UsageError(
            "--cache-teacher stores outputs by token, and teacher and student have different tokens; leave it out: "
            "the teacher runs only once, before the training"
        )
    if request.training.ends_by_time:
        raise UsageError(
            "--cache-teacher stores the outputs of all steps before the first one, and with --hours their number "
            "is unknown; give --steps too, or leave one of the two out"
        )
    build_cache_spec(loss_config, request.cache.top)


def _has_paper_losses(request: DistillationRequest) -> bool:
    """Return whether the losses are those of the student's paper, of which none is to be lost for want of a head.

    Sharded teachers cannot be fitted a head, so --use_fsdp drops these losses with a warning.
    """
    return bool(request.losses.default and not request.losses.loss and not processes.sharding())


def _with_defaults(request: DistillationRequest, traits: ModelTraits) -> LossSettings:
    """Replace or leave out the default losses that cannot be computed."""
    losses = request.losses
    if losses.loss:
        return losses
    is_task = request.models.kind == "task"
    if is_task and traits.cross_vocabulary:
        note("teacher and student have different vocabularies: training on soft labels alone, by word or by text")
        return replace(losses, loss=("kl",))
    cause = _attention_is_missing(request, traits)
    if is_task and not cause and fewer_heads((traits.student, traits.teacher), traits.source_heads):
        cause = "the student has fewer heads than the teacher"  # for attention alone, see examples/benchmarks
    if cause and is_task:
        note(f"{cause}: training on soft labels and hidden states")
        return replace(losses, loss=WITHOUT_ATTENTION)
    weights = parse_losses((), request.models.kind, losses.default).weights
    blocked = tuple(name for name in weights if getattr(registry.load("objectives", name), "SAME_HEADS", False))
    if cause and blocked:
        note(f"{cause}: training without {', '.join(blocked)}")
        return replace(losses, left_out=blocked)
    return losses


def _attention_is_missing(request: DistillationRequest, traits: ModelTraits) -> str:
    """Return why losses on attention cannot be computed, "" if they can."""
    if request.cache is not None:
        return "--cache-teacher stores no attention"
    configs = (traits.student, traits.teacher)
    student_heads, teacher_heads = (attention_sizes(config)[0] for config in configs)
    if student_heads != teacher_heads and not fewer_heads(configs, traits.source_heads):
        return f"the attention of {student_heads} heads cannot be compared with that of {teacher_heads}"
    return ""
