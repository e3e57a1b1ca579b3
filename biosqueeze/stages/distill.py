"""Distil a teacher into a student: task-agnostic on plain text, or task-specific with a fine-tuned teacher."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from biosqueeze import registry
from biosqueeze.checkpoint import Checkpoint, Record, derive_out, drafting, open_checkpoint
from biosqueeze.errors import SqueezeError, UsageError
from biosqueeze.manifest import head_of
from biosqueeze.models.own_head import refuse_own_head
from biosqueeze.options import Argument, Outcome, Plan
from biosqueeze.progress import note, track, warn
from biosqueeze.training.options import Training, fitting_length

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from biosqueeze.data.blocks import Blocks
    from biosqueeze.tasks import Dataset, Task

EXAMPLE = "biosqueeze distill --teacher dmis-lab/biobert-v1.1 --student tiny --corpus pubmed.txt.gz"
SAMPLE_TEXT = "demo:text"
TASK_HEADS = {"token-classification": "ner"}

# Task-agnostic: DistilBERT's weights (Sanh et al. 2019), which the compact-transformers paper takes over in equation 4.
WEIGHTS = {"mlm": {"mlm": 2.0, "kl": 5.0, "cosine": 1.0}, "task": {"kl": 1.0, "cosine": 1.0}}


@dataclass(frozen=True, kw_only=True)
class Options(Training):
    """Distil a teacher into a student.

    With a plain encoder as the teacher this is task-agnostic: masked language modelling, the teacher's
    distribution over masked tokens, and the cosine of the last hidden states. With a teacher that was fine-tuned
    on a task it is task-specific: the teacher's soft labels and hidden states, on labelled data (--data) and on
    any amount of unlabelled text (--corpus).
    """

    checkpoint: Annotated[
        str | None,
        "The student: directory, Hub id, or - ; or make one with --student.",
        Argument(unless="student"),
    ] = None
    teacher: Annotated[str, "The teacher: directory, Hub id, or demo:minilm."]
    student: Annotated[str | None, "Make the student from the teacher by a preset; `shrink --help` lists them."] = None
    corpus: Annotated[tuple[str, ...], "Text (.txt, .jsonl, .gz) or a directory of it; repeatable."] = ()
    field: Annotated[str, "Which field of a JSONL corpus holds the text."] = "text"
    data: Annotated[str | None, "Labelled data of the teacher's task; its dev split picks the best checkpoint."] = None
    loss: Annotated[
        tuple[str, ...],
        f"NAME=WEIGHT, repeatable; replaces the default mix. Names: {', '.join(registry.names('objectives'))}.",
    ] = ()
    temperature: Annotated[float, "Softens both distributions in kl."] = 2.0
    mask_rate: Annotated[float, "Share of the tokens that are masked without a task."] = 0.15
    unlabelled: Annotated[float, "Corpus sentences per labelled one, drawn afresh in each epoch."] = 1.0
    dropout: Annotated[float | None, "The student's dropout while it trains; its config's if left out."] = None
    lr: Annotated[float, "Peak learning rate."] = 5e-4
    batch_size: Annotated[int, "Sequences in a batch."] = 32

    def __post_init__(self) -> None:
        """Refuse what cannot be distilled with.

        Raises:
            UsageError: a number is out of its range.
        """
        super().__post_init__()
        if not self.temperature > 0:
            raise UsageError(f"--temperature must be positive, not {self.temperature:g}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise UsageError(f"--dropout is a share from 0 to below 1, not {self.dropout:g}")
        if not 0 < self.mask_rate < 1:
            raise UsageError(f"--mask-rate is a share between 0 and 1, not {self.mask_rate:g}")
        if self.unlabelled < 0:
            raise UsageError(f"--unlabelled must not be negative, and was {self.unlabelled:g}")


@dataclass(frozen=True)
class _Setting:
    """What is decided before anything heavy is loaded."""

    teacher: Checkpoint
    student: Checkpoint | None
    kind: str
    weights: dict[str, float]
    out: Path


def _settle(options: Options, *, weights: bool = True) -> _Setting:
    if (options.checkpoint is None) == (options.student is None):
        raise UsageError("name the student: either a checkpoint (or - in a pipe), or --student PRESET, and not both")
    teacher = open_checkpoint(options.teacher, weights=weights)
    student = open_checkpoint(options.checkpoint, weights=weights) if options.checkpoint else None
    for checkpoint in (teacher, *([student] if student else [])):
        refuse_own_head(checkpoint, "distill")  # a CRF's logits alone are not its answers
    kind = "task" if head_of(teacher.config) in TASK_HEADS else "mlm"
    if kind == "mlm" and options.data:
        raise UsageError(
            f"--data needs a teacher that was fine-tuned on it, and {teacher.name} has no task head; "
            f"first: biosqueeze finetune {teacher.name} --data {options.data}"
        )
    if kind == "task" and not options.data and not options.corpus:
        raise UsageError(
            f"{teacher.name} is fine-tuned on a task: give its labelled data with --data, text with --corpus, or both"
        )
    _find_corpora(options)
    suffix = "distilled" if student else str(options.student)
    out = Path(options.out) if options.out else derive_out(student or teacher, suffix)
    return _Setting(teacher, student, kind, _weights(options.loss, kind), out)


def _find_corpora(options: Options) -> None:
    """What is not there is said before anything is loaded."""
    from biosqueeze.data.corpus import find

    for source in options.corpus:
        find(source)


def _weights(asked: tuple[str, ...], kind: str) -> dict[str, float]:
    """The losses and their weights: the kind's default mix, or what --loss asks for."""
    if not asked:
        return dict(WEIGHTS[kind])
    weights: dict[str, float] = {}
    for item in asked:
        name, _, value = item.partition("=")
        if name not in registry.names("objectives"):
            registry.load("objectives", name)
        try:
            weights[name] = float(value or "nan")
        except ValueError:
            weights[name] = float("nan")
        if not 0 < weights[name] < float("inf"):
            raise UsageError(f"--loss {item!r} does not read NAME=WEIGHT with a positive weight, like kl=5")
    return weights


def plan(options: Options) -> Plan:
    """Who learns what from whom; reads configs and no weights."""
    from biosqueeze.models.count import parameters_of
    from biosqueeze.models.students import student_parameters

    setting = _settle(options, weights=False)
    mix = " + ".join(f"{weight:g} {name}" for name, weight in setting.weights.items())
    text = [*options.corpus, *([options.data] if options.data else [])] or ["the generated sample"]
    length = f"{options.steps} steps" if options.steps else f"{options.epochs:g} epochs"
    return Plan(
        out=setting.out,
        steps=(
            f"distil {setting.teacher.name} into {options.checkpoint or options.student} ({setting.kind}: {mix}, "
            f"temperature {options.temperature:g})",
            f"train on {', '.join(text)}: {length}, lr {options.lr:g}",
        ),
        parameters_before=parameters_of(setting.teacher),
        parameters_after=parameters_of(setting.student)
        if setting.student
        else student_parameters(setting.teacher, str(options.student)),
    )


@dataclass(frozen=True)
class _Pair:
    """Teacher and student, loaded, with the tokenizer that they share."""

    teacher: "PreTrainedModel"
    student: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    teacher_has_head: bool
    labels: tuple[str, ...]
    length: int


def run(options: Options) -> Outcome:
    """Load both, train the student, write it."""
    setting = _settle(options)
    inputs = [c for c in (setting.teacher, setting.student) if c is not None]
    with drafting(setting.out, inputs, force=options.force, resume=options.resume) as draft:
        pair = _load(options, setting)
        metrics = _train(options, setting, pair, draft.path)
        pair.student.save_pretrained(draft.path)
        pair.tokenizer.save_pretrained(draft.path)
        made = draft.finish(_record(options, setting, pair, metrics))
    return Outcome(made.path, {"metrics": metrics})


def _train(options: Options, setting: _Setting, pair: _Pair, directory: Path) -> dict[str, Any]:
    from biosqueeze.training.learners import Distiller, Recipe
    from biosqueeze.training.loop import Job, train

    weights = _possible_weights(options, setting, pair)
    recipe = Recipe(setting.kind, weights, options.temperature, options.dropout)
    source, data = _source(options, setting, pair)
    summary = train(
        Job(
            what="distil",
            learner=Distiller(pair.student, pair.teacher, recipe, teacher_has_head=pair.teacher_has_head),
            source=source,
            options=options,
            directory=directory,
            judge=_judge(options, setting, pair, data),
            judge_by=_task_of(setting.teacher).METRIC if data else "f1",
        )
    )
    return {**summary.as_metrics(), "losses": weights, "temperature": options.temperature}


def _load(options: Options, setting: _Setting) -> _Pair:
    from biosqueeze.models.load import load_model, load_tokenizer

    head = "mlm" if setting.kind == "mlm" else head_of(setting.teacher.config)
    teacher = load_model(setting.teacher, head)
    tokenizer = load_tokenizer(setting.teacher)
    labels = setting.teacher.labels
    if setting.student is None:
        from biosqueeze.models.students import build_student

        built = build_student(setting.teacher, str(options.student), options.seed, head=head)
        note(built.sentence)
        length = fitting_length(options.max_length, min(tokenizer.model_max_length, built.tokenizer.model_max_length))
        return _Pair(teacher.model, built.model, built.tokenizer, teacher.has_head, labels, length)
    student = load_model(setting.student, head, labels=labels or None, seed=options.seed)
    own = load_tokenizer(setting.student)
    if own.get_vocab() != tokenizer.get_vocab():
        raise SqueezeError(
            f"{setting.student.name} and {setting.teacher.name} have different vocabularies, so their tokens cannot be "
            "compared; make the student from the teacher (biosqueeze shrink), or give --student PRESET"
        )
    length = fitting_length(options.max_length, min(tokenizer.model_max_length, own.model_max_length))
    return _Pair(teacher.model, student.model, own, teacher.has_head, labels, length)


def _possible_weights(options: Options, setting: _Setting, pair: _Pair) -> dict[str, float]:
    """Drop the losses that need a head that the teacher lacks, unless they were asked for: that is an error."""
    modules = {name: registry.load("objectives", name) for name in setting.weights}
    unfit = [name for name, module in modules.items() if setting.kind not in module.KINDS]
    if unfit:
        fit = [n for n in registry.names("objectives") if setting.kind in registry.load("objectives", n).KINDS]
        raise UsageError(f"--loss {', '.join(unfit)} does not fit this kind of distillation; fit: {', '.join(fit)}")
    blocked = [name for name, module in modules.items() if module.NEEDS_TEACHER_LOGITS and not pair.teacher_has_head]
    if not blocked:
        return setting.weights
    why = (
        f"{setting.teacher.name} was saved without its masked-language-model head, and a fresh one would give random "
        "distributions"
    )
    if options.loss:
        raise SqueezeError(
            f"--loss {', '.join(blocked)} cannot be computed: {why}; leave it out, or take a teacher with the head "
            "(for BioBERT: dmis-lab/biobert-base-cased-v1.2)"
        )
    kept = {name: weight for name, weight in setting.weights.items() if name not in blocked}
    warn(
        f"{why}; distilling with {' + '.join(kept)} and without {', '.join(blocked)}. A teacher with the head "
        "(for BioBERT: dmis-lab/biobert-base-cased-v1.2) brings it back."
    )
    return kept


def _source(options: Options, setting: _Setting, pair: _Pair) -> tuple[Any, "Dataset | None"]:
    from biosqueeze.training.sources import Masked, Mixture

    tokenizer = pair.tokenizer
    blocks = _read_corpus(options, setting.kind, pair)
    if setting.kind == "mlm":
        if blocks is None or tokenizer.mask_token_id is None:
            raise SqueezeError(f"the tokenizer of {setting.teacher.name} has no mask token, so no text can be masked")
        special = tuple(tokenizer.all_special_ids)
        source = Masked(
            blocks,
            tokenizer.pad_token_id,
            tokenizer.mask_token_id,
            special,
            len(tokenizer),
            options.mask_rate,
        )
        return source, None
    labelled: list[Any] = []
    data: Dataset | None = None
    if options.data:
        task = _task_of(setting.teacher)
        data = task.read(options.data, ("train", "dev"))
        windows = task.encode(data.splits["train"], pair.labels, tokenizer, pair.length)
        labelled = [window.features for window in windows]
    return Mixture(labelled, blocks, options.unlabelled, tokenizer.pad_token_id), data


def _task_of(teacher: Checkpoint) -> "Task":
    """The task that the teacher was fine-tuned on, posed as it was for the teacher."""
    from biosqueeze.tasks import open_task
    from biosqueeze.tasks._formulation import Formulation

    noted = (teacher.manifest or {}).get("task")
    name = teacher.task or TASK_HEADS[head_of(teacher.config)]
    return open_task(name, Formulation.noted(noted), str((noted or {}).get("scheme") or ""))


def _read_corpus(options: Options, kind: str, pair: _Pair) -> "Blocks | None":
    from itertools import chain

    from biosqueeze.data.blocks import encode_corpus
    from biosqueeze.data.corpus import read_lines

    if not options.corpus and kind == "task":
        return None
    if not options.corpus:
        warn(
            "no --corpus was given: training on a small sample that biosqueeze generates, which shows that everything "
            "runs and teaches next to nothing; give your own text for a student that you can use"
        )
    sources = options.corpus or (SAMPLE_TEXT,)
    lines = chain.from_iterable(read_lines(source, options.field) for source in sources)
    with track("read the corpus") as progress:
        blocks = encode_corpus(lines, pair.tokenizer, pair.length, progress)
    note(f"corpus: {len(blocks):,} sequences, {int(blocks.lengths.sum()):,} tokens")
    return blocks


def _judge(options: Options, setting: _Setting, pair: _Pair, data: "Dataset | None") -> Any:
    if data is None:
        return None
    from biosqueeze.training.judge import DevSet
    from biosqueeze.training.loop import precision_of

    task = _task_of(setting.teacher)
    windows = task.encode(data.splits["dev"], pair.labels, pair.tokenizer, pair.length)
    dev = DevSet(task, data.splits["dev"], windows, pair.labels, pair.tokenizer.pad_token_id)
    return dev.judge(precision_of(options))


def _record(options: Options, setting: _Setting, pair: _Pair, metrics: dict[str, Any]) -> Record:
    task = None
    if setting.kind == "task":
        earlier = (setting.teacher.manifest or {}).get("task") or {}
        task = {
            "name": setting.teacher.task or TASK_HEADS[head_of(setting.teacher.config)],
            "data": options.data,
            "labels": list(pair.labels),
        }
        task = {**earlier, **{key: value for key, value in task.items() if value}}
    return Record(
        stage="distill",
        parent=setting.student or setting.teacher,
        also=(("teacher", setting.teacher),),
        options=options,
        task=task,
        metrics=metrics,
    )
