"""Check the options that change the loss against the head and the labels, before anything is loaded. Torch-free."""

from biosqueeze.data.output_types import OutputType
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.tasks.formulation import Formulation


def check_loss_options(options: FineTuningOptions, formulation: Formulation, output_type: OutputType) -> None:
    """Check that the loss has what --class-weights and --smart need.

    Args:
        options: of the training.
        formulation: of the task, which decides the head.
        output_type: of the labels.

    Raises:
        UsageError: the loss lacks it.
    """
    if formulation.tagger == "crf":
        unfit = {"--class-weights": options.class_weights != "none", "--smart": options.smart > 0}
        for flag in (flag for flag, is_set in unfit.items() if is_set):
            raise UsageError(
                f"{flag} needs a loss over single labels, and this head is trained on whole label sequences; "
                "leave it out"
            )
    if options.smart and formulation.representation == "cosine":
        raise UsageError("--smart needs both texts in one input, and --representation cosine encodes them separately")
    if options.class_weights == "balanced" and not output_type.has_classes:
        raise UsageError("--class-weights balanced needs labels that are classes; leave it out for this task")
