"""TextBrewer 0.2.1 (PyPI) on the teacher, student, sentences and losses of distill_throughput.py.

    pip install textbrewer==0.2.1

It runs with transformers 5 and torch 2.13 as it is, if its batches are plain dicts: a BatchEncoding is taken for a
tuple. Its mixed precision is Apex's fp16 on CUDA; without it everything is fp32, unless the forward passes are put
under autocast from outside. Its gradients are those of the plain loop; what differs in the losses:

- `kd_loss_type="ce"` is the cross entropy with the teacher's distribution and not KL: the teacher's entropy more, the
  same gradient; it has no factor temperature squared, so the weight holds it;
- `attention_ce` likewise, and it takes a softmax of what it is given: the logarithms of the attention maps;
- the vocabulary's rows are selected by its logits mask before the softmax, as in `reference-masked`;
- one batch is fed to both models, so the teacher computes its own masked-language-model loss too.
"""

import logging
import tempfile
from typing import Any

from distill_reference import load_pair, padded_batches
from distill_setting import CLIP, LEARNING_RATE, WARM_UP, LossPreset, Setting, Watch


def run(setting: Setting, *, autocast: bool = False) -> Watch:
    """Train by GeneralDistiller, in fp32, or with both forward passes under autocast."""
    import torch
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    logging.getLogger("Distillation").setLevel(logging.ERROR)
    student, teacher = load_pair(setting)
    widths = student.config.hidden_size, teacher.config.hidden_size
    if autocast and setting.precision == "bf16":
        for model in (student, teacher):
            model.forward = torch.autocast(setting.device, torch.bfloat16)(model.forward)
    config = DistillationConfig(
        temperature=setting.mix.temperature,
        kd_loss_type="ce",
        kd_loss_weight=setting.mix.kl * setting.mix.temperature**2,
        hard_label_weight=setting.mix.mlm,
        intermediate_matches=_matches(setting.mix, *widths),
    )
    watch = Watch()
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
                batch_postprocessor=_noting(watch),
                output_hidden_states=True,
                output_attentions=bool(setting.mix.layers),
            )
    return _shifted(watch)


def _matches(mix: LossPreset, narrow: int, wide: int) -> list[dict[str, Any]]:
    """The inner losses; the attention of layer i is the list's i-1."""
    projection = {"proj": ["linear", narrow, wide]} if narrow != wide else {}
    matches: list[dict[str, Any]] = []
    for ours, theirs in mix.pairs:
        layers, weight = {"layer_S": ours, "layer_T": theirs}, mix.layers or mix.cosine
        matches.append({**layers, "feature": "hidden", "loss": "cos", "weight": weight, **projection})
        if mix.layers:
            layers = {"layer_S": ours - 1, "layer_T": theirs - 1}
            matches.append({**layers, "feature": "attention", "loss": "attention_ce", "weight": weight})
    return matches


def _adaptor(batch: dict[str, Any], output: Any) -> dict[str, Any]:
    """What TextBrewer reads of a model's output."""
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


def _noting(watch: Watch) -> Any:
    """Note when a step begins, its batch being made, and how many real tokens it holds."""

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        watch.step(int(batch["attention_mask"].sum()))
        return batch

    return note


def _shifted(begun: Watch) -> Watch:
    """From the beginnings of steps to their ends: each ends where the next begins, and the last is left out."""
    return Watch(begun.ended[1:], begun.tokens[:-1])
