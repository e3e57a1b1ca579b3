"""Pretrain an encoder on plain text, from random weights or from a checkpoint."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from biosqueeze.checkpoint import Checkpoint, locate, open_checkpoint
from biosqueeze.checkpoint_files import check_files
from biosqueeze.errors import UsageError
from biosqueeze.options import Argument, OnDisk, Outcome, Plan, Purpose, flag_of
from biosqueeze.output import StageRecord, check_output, derive_out, inputs_of, open_output
from biosqueeze.pretraining.options import PretrainingOptions
from biosqueeze.pretraining.request import NewModel, PretrainingRequest
from biosqueeze.pretraining.shapes import ShapeChanges, find_shape
from biosqueeze.summaries import pretrained_summary
from biosqueeze.system import processes
from biosqueeze.training.resuming.finished import recorded_hashes, resume_where_saved, take_over

if TYPE_CHECKING:
    from biosqueeze.pretraining.pipeline import PretrainingResult

PURPOSE = Purpose.TRAIN
EXAMPLES = (
    (
        "Continue a model on your own text",
        "biosqueeze pretrain dmis-lab/biobert-base-cased-v1.2 --corpus pubmed --steps 20000 --lr 5e-5",
    ),
    (
        "Train a named shape from random weights, with a vocabulary of its own",
        "biosqueeze pretrain --shape bioformer-8l --tokenizer vocabulary --corpus pubmed --objective mlm+nsp "
        "--mask-unit word --maskings 20 --steps 2000000 --batch-size 256",
    ),
    (
        "A small shape: other sizes in place of the named ones",
        "biosqueeze pretrain --shape bert-base --layers 4 --hidden 256 --tokenizer vocabulary --corpus pubmed",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options(PretrainingOptions):
    """Train an encoder on plain text: masked tokens, pairs of texts.

    From a checkpoint, or from random weights with --shape and --tokenizer. The weights of the last step are kept,
    with their head. Loss and accuracy on held-out text are logged in OUT/metrics.jsonl and drawn by report.
    """

    checkpoint: Annotated[
        str | None,
        "The model to continue: directory, Hub id, demo:minilm, or - for the path on standard input; or give --shape.",
        Argument(unless="shape"),
        OnDisk(may_be_name=True),
    ] = None


def _open_start(options: Options, *, weights: bool) -> Checkpoint | NewModel:
    """Open the checkpoint, or shape and tokenizer.

    Raises:
        SqueezeError: the checkpoint or the tokenizer cannot be opened.
        UsageError: the checkpoint is fine-tuned, or there is no such shape.
    """
    from biosqueeze.models.custom_heads.files import is_fine_tuned

    if options.shape:
        changes = ShapeChanges(
            layers=options.layers,
            hidden=options.hidden,
            heads=options.heads,
            ffn=options.ffn,
            positions=options.positions,
            embedding=options.embedding,
        )
        shape = find_shape(options.shape, changes)
        name = str(options.tokenizer)
        path = locate(name, weights=False)
        check_files(path)
        return NewModel(shape, Checkpoint(path, name))
    checkpoint = open_checkpoint(str(options.checkpoint), weights=weights)
    if checkpoint.task or checkpoint.custom_head or is_fine_tuned(checkpoint):
        raise UsageError(
            f"{checkpoint.name} is fine-tuned on a task, and pretraining would drop its head; give the model that it "
            "was fine-tuned from"
        )
    return checkpoint


def _request(options: Options, *, weights: bool = True) -> PretrainingRequest:
    """Open what is read, and check the options that depend on it."""
    from biosqueeze.data.text.corpus import check_field, held_out_files
    from biosqueeze.models.device import select_device
    from biosqueeze.pretraining.objectives import head_of_objective
    from biosqueeze.pretraining.pipeline import check_pipes, family_name
    from biosqueeze.pretraining.probe import check_probe_steps, parse_probes, probe_steps
    from biosqueeze.training.option_checks import check_training_options

    _check_sharding(options)
    if options.maskings and ":" in options.mask_rate:
        raise UsageError("--maskings repeats maskings, and a --mask-rate that climbs never does; give one of the two")
    start = _open_start(options, weights=weights)
    head_of_objective(options.objective, family_name(start))
    if options.generator:
        open_checkpoint(options.generator, weights=weights)
    if options.is_given("field"):
        check_field("--field", options.corpus)
    check_pipes(options)
    of_corpora = [held_out_files(source) for source in options.corpus]
    is_scored = bool(options.held_out or any(of_corpora))
    if options.eval_every and not is_scored:
        raise UsageError("--eval-every needs held-out text; give --held-out 0.01 too, or leave --eval-every out")
    check_training_options(options, evaluated=is_scored)
    parse_probes(options.probe)
    check_probe_steps(probe_steps(options.probe_at), options.steps)
    select_device(options.device)
    return PretrainingRequest(start, options)


def _check_sharding(options: Options) -> None:
    """Check that no option is given that sharded models do not support.

    With --adversarial a step takes gradients twice, and a batch that does not fit in one process, or a compiled model
    in which weights come and go, would have to be followed by all others.
    """
    if not processes.sharding():
        return
    for name in ("adversarial", "auto_batch", "compile"):
        if getattr(options, name):
            raise UsageError(
                f"{flag_of(name)} does not work with sharded models (--use_fsdp); leave out one of the two"
            )


def _output(options: Options, start: Checkpoint | NewModel) -> Path:
    """Return the output directory: --out, or a name derived from the checkpoint or the shape."""
    if options.out:
        return Path(options.out)
    return derive_out(start, "pretrained") if isinstance(start, Checkpoint) else Path(f"{start.name}-pretrained")


def _inputs(options: Options, start: Checkpoint | NewModel) -> tuple[Path, ...]:
    return inputs_of(options, start if isinstance(start, Checkpoint) else start.tokenizer)


def plan(options: Options) -> Plan:
    """Describe the pretraining and its costs; read configs, the tokenizer and some text, and no weights."""
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.families import FAMILIES, longest_input
    from biosqueeze.models.loading.load import load_config
    from biosqueeze.pretraining.cost import cost_lines
    from biosqueeze.pretraining.models import new_parameters
    from biosqueeze.pretraining.objectives import head_of_objective
    from biosqueeze.pretraining.pipeline import family_name
    from biosqueeze.training.option_checks import check_family

    request = _request(options, weights=False)
    start = request.start
    check_family(options, FAMILIES[family_name(start)])
    inputs = _inputs(options, start)
    out = check_output(_output(options, start), inputs, force=options.force, resume=options.resume is True)
    head = head_of_objective(options.objective, family_name(start))
    positions = start.shape.positions if isinstance(start, NewModel) else longest_input(load_config(start))
    length = min(options.max_length, positions)
    from_where = f"{start.name} from random weights" if isinstance(start, NewModel) else f"{start.name} further"
    return Plan(
        out=out,
        steps=(
            f"pretrain {from_where}: {options.objective}, {options.mask_unit} masking at {options.mask_rate}",
            *([f"shape: {start.shape}; {start.shape.source}"] if isinstance(start, NewModel) else []),
            f"train on {', '.join(options.corpus)}: {options.length}, batch {options.batch_size} x "
            f"{options.accumulate} sequences of {length}{_long_part(options)}, lr {options.lr:g}",
            *cost_lines(request),
        ),
        parameters_before=parameters_of(start) if isinstance(start, Checkpoint) else None,
        parameters_after=new_parameters(start, head) if isinstance(start, NewModel) else parameters_of(start, head),
    )


def _long_part(options: Options) -> str:
    if not options.long_length:
        return ""
    return f", of {options.long_length} in the last {options.long_share:.0%} of the steps"


def run(options: Options) -> Outcome:
    """Load or build the model, train it, write it."""
    from biosqueeze.pretraining.pipeline import pretrain

    if options.gpu:
        raise UsageError("--gpu is for --dry-run, which computes the time there; give that too, or leave --gpu out")
    request = _request(options)
    out = _output(options, request.start)
    if done := take_over(out, "pretrain", options):
        return done
    options, hashes = resume_where_saved(out, options), recorded_hashes(options)
    request = PretrainingRequest(request.start, options)
    inputs = _inputs(options, request.start)
    with open_output(out, inputs, force=options.force, resume=bool(options.resume)) as output:
        result = pretrain(request, output.path)
        if processes.is_main():
            result.save(output.path)
        written = output.finish(replace(_record(options, request.start, result), inputs=hashes))
    summary = pretrained_summary(written, result.metrics) if processes.is_main() else None
    return Outcome(written.path, {"metrics": result.metrics}, summary=summary)


def _record(options: Options, start: Checkpoint | NewModel, result: "PretrainingResult") -> StageRecord:
    """Collect what the manifest records."""
    return StageRecord(
        stage="pretrain",
        parent=start if isinstance(start, Checkpoint) else None,
        options=options,
        metrics=result.metrics,
        notes={"shape": str(start.shape), "source": start.shape.source} if isinstance(start, NewModel) else {},
    )
