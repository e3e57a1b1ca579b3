"""Options that do not fit a head or an output type are refused."""

import pytest

from biosqueeze.data.output_types import MULTI, SCORE, SINGLE, SPAN, TOKENS, OutputType
from biosqueeze.errors import UsageError
from biosqueeze.finetuning.loss_checks import check_loss_options
from biosqueeze.finetuning.options import FineTuningOptions
from biosqueeze.tasks.formulation import Formulation

SMART, BALANCED = FineTuningOptions(smart=1.0), FineTuningOptions(class_weights="balanced")


@pytest.mark.parametrize(
    ("options", "formulation", "output_type", "says"),
    [
        (SMART, Formulation(tagger="crf"), TOKENS, "--smart needs a loss over single labels"),
        (BALANCED, Formulation(tagger="crf"), TOKENS, "--class-weights needs a loss over single labels"),
        (SMART, Formulation(representation="cosine"), SCORE, "--smart needs both texts in one input"),
        (BALANCED, Formulation(), SCORE, "--class-weights balanced needs labels that are classes"),
        (BALANCED, Formulation(), SPAN, "--class-weights balanced needs labels that are classes"),
    ],
)
def test_refused(options: FineTuningOptions, formulation: Formulation, output_type: OutputType, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_loss_options(options, formulation, output_type)


@pytest.mark.parametrize("output_type", [TOKENS, SINGLE, MULTI])
@pytest.mark.parametrize("options", [SMART, BALANCED])
def test_classes_fit_both(options: FineTuningOptions, output_type: OutputType) -> None:
    check_loss_options(options, Formulation(tagger="bilstm"), output_type)
