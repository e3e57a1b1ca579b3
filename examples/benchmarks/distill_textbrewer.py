"""TextBrewer 0.2.1 (PyPI) on the teacher, student, sentences and losses of distill_throughput.py.

    pip install textbrewer==0.2.1

It runs unchanged with transformers 5 and torch 2.13, if its batches are plain dicts: it treats a BatchEncoding as a
tuple. Its mixed precision is Apex's fp16 on CUDA; without it everything is fp32, unless the forward passes run under
autocast. Its gradients equal those of the plain loop; its losses differ:

- `kd_loss_type="ce"` is the cross entropy with the teacher's distribution instead of KL: larger by the teacher's
  entropy, with the same gradient; it has no factor temperature squared, so the weight includes it;
- `attention_ce` likewise; it applies a softmax to its input, which is the logarithm of the attention maps;
- the vocabulary's rows are selected by its logits mask before the softmax, as in `reference-masked`;
- both models get the same batch, so the teacher computes its masked-language-model loss too.
"""

import logging
import tempfile
from typing import Any

from distill_reference import load_pair, padded_batches
from distill_setting import CLIP, LEARNING_RATE, WARM_UP, Setting, StepTimes, StudentLosses


def run(setting: Setting, *, autocast: bool = False) -> StepTimes:
    """Train with GeneralDistiller, in fp32, or with both forward passes under autocast."""
    import torch
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    logging.getLogger("Distillation").setLevel(logging.ERROR)
    student, teacher = load_pair(setting)
    widths = student.config.hidden_size, teacher.config.hidden_size
    if autocast and setting.precision == "bf16":
        for model in (student, teacher):
            model.forward = torch.autocast(setting.device, torch.bfloat16)(model.forward)
    config = DistillationConfig(
        temperature=setting.losses.temperature,
        kd_loss_type="ce",
        kd_loss_weight=setting.losses.kl * setting.losses.temperature**2,
        hard_label_weight=setting.losses.mlm,
        intermediate_matches=_matches(setting.losses, *widths),
    )
    times = StepTimes()
    steps = WARM_UP + setting.steps + 1
    with tempfile.TemporaryDirectory() as directory:
        training = TrainingConfig(output_dir=directory, device=torch.device(setting.device), ckpt_steps=10**9)
        distiller = GeneralDistiller(training, config, teacher, student, _adaptor, _adaptor)
        with distiller:
            distiller.train(
                torch.optim.AdamW(student.parameters(), lr=LEARNING_RATE),
                padded_batches(setting),
                num_steps=steps,
                max_grad_norm=CLIP,
                batch_postprocessor=_recording(times),
                output_hidden_states=True,
                output_attentions=bool(setting.losses.layers),
            )
    return _shifted(times)


def _matches(losses: StudentLosses, student_width: int, teacher_width: int) -> list[dict[str, Any]]:
    """Return the layer losses; the attention of layer i has index i-1."""
    same_width = student_width == teacher_width
    projection = {} if same_width else {"proj": ["linear", student_width, teacher_width]}
    matches: list[dict[str, Any]] = []
    for student_layer, teacher_layer in losses.pairs:
        layers, weight = {"layer_S": student_layer, "layer_T": teacher_layer}, losses.layers or losses.cosine
        matches.append({**layers, "feature": "hidden", "loss": "cos", "weight": weight, **projection})
        if losses.layers:
            layers = {"layer_S": student_layer - 1, "layer_T": teacher_layer - 1}
            matches.append({**layers, "feature": "attention", "loss": "attention_ce", "weight": weight})
    return matches


def _adaptor(batch: dict[str, Any], output: Any) -> dict[str, Any]:
    """Convert a model's output to TextBrewer's features."""
    features = {
        "logits": output.logits.float(),
        "logits_mask": batch["labels"] >= 0,
        "losses": output.loss,
        "inputs_mask": batch["attention_mask"],
        "hidden": [states.float() for states in output.hidden_states],
    }
    if output.attentions:
        features["attention"] = [attention.float().clamp_min(1e-9).log() for attention in output.attentions]
    return features


def _recording(times: StepTimes) -> Any:
    """Return a batch postprocessor that records the start of a step and its real tokens."""

    def record(batch: dict[str, Any]) -> dict[str, Any]:
        times.step(int(batch["attention_mask"].sum()))
        return batch

    return record


def _shifted(starts: StepTimes) -> StepTimes:
    """Convert starts of steps to ends: a step ends where the next starts; the last is dropped."""
    return StepTimes(starts.ended[1:], starts.tokens[:-1])
