"""The teacher's outputs in memory: the same losses as of a live teacher, and when they are computed at all."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.collate import Features
from biosqueeze.data.output_types import OUTPUT_TYPES
from biosqueeze.distillation.learner import Distiller
from biosqueeze.distillation.losses.config import LossConfig
from biosqueeze.distillation.teachers import memory_cache
from biosqueeze.distillation.teachers.memory_cache import MemoryCachedTeacher, cached_in_memory
from biosqueeze.distillation.teachers.sources import LiveTeacher, OutputSpec
from biosqueeze.errors import SqueezeError
from biosqueeze.models.loading.load import load_model
from biosqueeze.training.sources import Mixture
from tests import pico

LOSSES = LossConfig(
    weights={"kl": 1.0, "hidden": 1.0, "attention-kl": 1.0, "minilmv2": 1.0},
    output_spec=OutputSpec("task", OUTPUT_TYPES["tokens"], logits=True),
    temperature=2.0,
    layer_map=((1, 2), (2, 4)),
)
HEADS = {"tokens": "token-classification", "single": "sequence-classification", "multi": "sequence-classification"}


def model_of(path, head: str, **changes):
    model = load_model(open_checkpoint(str(path)), head, attention="sdpa", labels=("a", "b", "c"), **changes).model
    return model.double().eval()


def live(teacher, config: LossConfig = LOSSES) -> LiveTeacher:
    return LiveTeacher([teacher], config.output_spec, config.teacher_parts, temperature=config.temperature)


def examples(batch: dict[str, Tensor], rows: list[int]) -> list[Features]:
    lengths = batch["attention_mask"].sum(dim=1)
    return [{"input_ids": batch["input_ids"][row, : lengths[row]].numpy()} for row in rows]


def cached(
    teacher, labelled: list[Features], epochs: float = 3, was_cached: bool | None = None
) -> LiveTeacher | MemoryCachedTeacher:
    return cached_in_memory(live(teacher), Mixture(labelled, None, 0.0, 0), 2, epochs, was_cached=was_cached)


@pytest.mark.parametrize("output_type", HEADS)
@pytest.mark.parametrize("rows", [[], [2, 0], [0, 1, 2]])
def test_losses_equal_those_of_a_live_teacher(output_type: str, rows: list[int], pico_bert) -> None:
    spec = OutputSpec("task", OUTPUT_TYPES[output_type], logits=True)
    config = replace(LOSSES, output_spec=spec)
    student = model_of(pico_bert, HEADS[output_type], seed=1, num_hidden_layers=2)
    teacher = model_of(pico_bert, HEADS[output_type], seed=2)
    batch = pico.padded_batch(teacher)
    size = len(batch["input_ids"])
    labels = {
        "tokens": {"labels": torch.where(batch["attention_mask"].bool(), batch["input_ids"] % 3, -100)},
        "single": {"labels": torch.arange(size) % 3},
        "multi": {"targets": torch.eye(size, 3)},
    }[output_type]
    in_memory = MemoryCachedTeacher(live(teacher, config))
    if rows:
        in_memory.store({name: tensor[rows] for name, tensor in batch.items()})
    computed = []
    for source in (live(teacher, config), in_memory):
        learner = Distiller(student, source, config, teacher_width=teacher.config.hidden_size).double().eval()
        losses = learner(**batch, **labels)
        student.zero_grad()
        sum(losses.values()).backward()
        gradient = torch.cat([p.grad.flatten() for p in student.parameters() if p.grad is not None])
        computed.append((torch.stack(list(losses.values())), gradient))
    for one, other in zip(*computed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert computed[0][0].min() > 0


def test_the_teacher_is_run_on_what_is_not_in_memory(pico_bert) -> None:
    teacher = model_of(pico_bert, "token-classification")
    batch = pico.padded_batch(teacher)
    source = cached(teacher, examples(batch, [2, 1]))
    with mock.patch.object(LiveTeacher, "outputs", autospec=True, side_effect=LiveTeacher.outputs) as run:
        source.outputs(batch)
        source.outputs({name: tensor[[1, 2]] for name, tensor in batch.items()})
    ((_, given), _), *others = run.call_args_list
    assert not others
    assert given["input_ids"].shape == (1, int(batch["attention_mask"][0].sum()))


@pytest.mark.parametrize(
    ("epochs", "available", "is_cached"), [(3, 2**40, True), (2.9, 2**40, False), (9, 2**10, False), (9, None, False)]
)
def test_when_outputs_are_kept(
    epochs: float, available: int | None, is_cached: bool, pico_bert, monkeypatch, capsys
) -> None:
    teacher = model_of(pico_bert, "token-classification")
    monkeypatch.setattr(memory_cache, "available_memory", lambda: available)
    source = cached(teacher, examples(pico.padded_batch(teacher), [0, 1, 2]), epochs)
    assert isinstance(source, MemoryCachedTeacher) == is_cached
    assert ("3 labelled examples" in capsys.readouterr().err) == is_cached


@pytest.mark.parametrize(("was_cached", "available"), [(True, 2**10), (False, 2**40)])
def test_a_resumed_training_keeps_them_as_before(was_cached: bool, available: int, pico_bert, monkeypatch) -> None:
    teacher = model_of(pico_bert, "token-classification")
    labelled = examples(pico.padded_batch(teacher), [0, 1, 2])
    monkeypatch.setattr(memory_cache, "available_memory", lambda: available)
    assert isinstance(cached(teacher, labelled, was_cached=was_cached), MemoryCachedTeacher) == was_cached
    if was_cached:
        with (
            mock.patch.object(LiveTeacher, "outputs", side_effect=MemoryError()),
            pytest.raises(SqueezeError, match="free some memory, or start over with --force"),
        ):
            cached(teacher, labelled, was_cached=True)


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [(MemoryError(), False), (RuntimeError("can't allocate memory: 9 bytes"), False), (RuntimeError("other"), True)],
)
def test_a_batch_that_does_not_fit_is_left_to_the_training(error: Exception, is_raised: bool, pico_bert) -> None:
    teacher = model_of(pico_bert, "token-classification")
    labelled = examples(pico.padded_batch(teacher), [0, 1, 2])
    with mock.patch.object(LiveTeacher, "outputs", side_effect=error):
        if is_raised:
            with pytest.raises(RuntimeError, match="other"):
                cached(teacher, labelled)
        else:
            assert isinstance(cached(teacher, labelled), LiveTeacher)


def test_token_types_are_part_of_the_key(pico_bert) -> None:
    teacher = model_of(pico_bert, "sequence-classification")
    ids = np.arange(5, 12)
    pairs = [{"input_ids": ids, "token_type_ids": types} for types in (np.zeros_like(ids), np.ones_like(ids))]
    config = replace(LOSSES, output_spec=OutputSpec("task", OUTPUT_TYPES["single"], logits=True))
    source = cached_in_memory(live(teacher, config), Mixture(pairs, None, 0.0, 0), 2, 3)
    batch = {name: torch.from_numpy(np.stack([pair[name] for pair in pairs])) for name in pairs[0]}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    rows, expected = (each.outputs(batch).rows(slice(None)) for each in (source, live(teacher, config)))
    torch.testing.assert_close(rows, expected)
    assert not torch.allclose(rows[0], rows[1])
