"""Repair: against numpy's least squares, equal models after cutting nothing, and better outputs for every family."""

import copy
import functools

import numpy as np
import pytest
import torch

from biosqueeze.models.cuts import partial_runs, repair
from biosqueeze.models.cuts.depth import keep_layers
from biosqueeze.models.cuts.layer_gaps import gap_errors
from biosqueeze.models.cuts.normal_equations import NormalEquations
from biosqueeze.models.cuts.partial_runs import PartialRuns
from biosqueeze.models.cuts.repair import DAMPING, Targets, repair_depth, repair_width
from biosqueeze.models.cuts.streams import CalibrationText
from biosqueeze.models.cuts.unit_scores import KeptUnits
from biosqueeze.models.cuts.width import Widths, narrow
from biosqueeze.models.families import FAMILIES
from biosqueeze.models.layers import encoder_layers
from tests import pico

BEGIN = PartialRuns.__init__
NARROWING = [f for f in pico.FAMILIES if FAMILIES[f].supports_narrowing and not pico.ROWS[f].same_code_as]


def text_of(model, batches=4):
    return CalibrationText(
        [pico.padded_batch(model, rows=8, length=24, seed=seed) for seed in range(batches)],
        lambda each, batch: each(**batch),
    )


def states(model, batch):
    with torch.no_grad():
        return model.base_model(**batch).last_hidden_state[batch["attention_mask"].bool()]


def total_error(model, original, text, hidden=None):
    """The summed squared distance from the original's last states, at the dimensions that are kept."""
    kept = slice(None) if hidden is None else hidden
    return sum((states(model, b) - states(original, b)[:, kept]).square().sum().item() for b in text.batches)


def fewer_heads(family):
    return 3 if family == "electra" else 2  # with 2, its layers would be as wide as its embeddings


@pytest.mark.parametrize("damping", [0.0, 1e-2])
@pytest.mark.parametrize("size", [6, 600])  # of one block of the Gram matrix, and of several
def test_normal_equations_are_least_squares(damping, size):
    rng, count = np.random.default_rng(0), 50 + size
    inputs, outputs = rng.normal(size=(count, size)), rng.normal(size=(count, 3))
    equations = NormalEquations(size, 3)
    for rows in np.array_split(np.arange(count), 7):
        equations.add(torch.from_numpy(inputs[rows]), torch.from_numpy(outputs[rows]))
    ridge = np.sqrt(damping * np.square(inputs).sum(0).mean()) * np.eye(size, size + 1)
    extended = np.vstack([np.hstack([inputs, np.ones((count, 1))]), ridge])
    expected = np.linalg.lstsq(extended, np.vstack([outputs, np.zeros((size, 3))]), rcond=None)[0]
    weight, bias = equations.solve(damping)
    assert np.allclose(weight.numpy(), expected[:size].T) and np.allclose(bias.numpy(), expected[size])
    left = outputs - np.hstack([inputs, np.ones((count, 1))]) @ expected
    assert equations.squared_error(damping) == pytest.approx(np.square(left).sum())


def test_gap_errors_are_those_of_a_fit():
    """The stream behind layer 2 of a BERT, which its last norm reads, fitted by changing the FFN of layer 1."""
    model = pico.model_of("bert", 200, "base")
    text, (_, fitted, removed, _) = text_of(model), encoder_layers(model)
    seen = {module: [] for module in (fitted.output.dense, fitted.output.LayerNorm, removed.output.LayerNorm)}
    handles = [
        module.register_forward_pre_hook(lambda _m, args, rows=rows: rows.append(args[0]))
        for module, rows in seen.items()
    ]
    for batch in text.batches:
        states(model, batch)
    for handle in handles:
        handle.remove()
    real = [batch["attention_mask"].bool() for batch in text.batches]
    inputs, stream, goal = (
        torch.cat([each[mask] for each, mask in zip(rows, real, strict=True)]).double() for rows in seen.values()
    )
    missing = goal - stream
    ridge = (DAMPING * inputs.square().sum(0).mean()).sqrt() * torch.eye(64, 65)
    extended = torch.cat([inputs, torch.ones(len(inputs), 1)], 1)
    padded = torch.cat([missing, torch.zeros(64, 32)])
    solution = np.linalg.lstsq(torch.cat([extended, ridge]).numpy(), padded.numpy(), rcond=None)[0]
    left = (missing - extended @ torch.from_numpy(solution)).square().sum() / (goal - goal.mean(0)).square().sum()
    assert gap_errors(model, text)[1] == pytest.approx(left.item(), rel=1e-5)


def test_layers_after_a_gap_are_fitted():
    model = pico.model_of("bert", 200, "base")
    shallow, _ = keep_layers(model, (0, 2, 3))
    before = copy.deepcopy(shallow.state_dict())
    repair_depth(shallow, Targets(model, text_of(model)), (0, 2, 3))
    changed = {name for name, tensor in shallow.state_dict().items() if not torch.equal(tensor, before[name])}
    written = {f"encoder.layer.{n}.{part}output.dense" for n in (1, 2) for part in ("attention.", "")}
    fitted = {f"{path}.{kind}" for path in {*written, "encoder.layer.0.output.dense"} for kind in ("weight", "bias")}
    assert changed == fitted | {f"encoder.layer.0.output.LayerNorm.{kind}" for kind in ("weight", "bias")}


def test_first_ffn_is_the_weighted_least_squares_solution():
    """The error of a token counts relative to the standard deviation of its stream, which the layer's norm reads."""
    model = pico.model_of("bert", 200, "base")
    cut = narrow(model, Widths(ffn=32))
    text = text_of(model)
    seen, wanted, streams = [], [], []
    module = cut.model.encoder.layer[0].output.dense
    before = copy.deepcopy(module)
    handles = [
        module.register_forward_pre_hook(lambda _m, args: seen.append(args[0])),
        model.encoder.layer[0].output.dense.register_forward_hook(lambda _m, _a, out: wanted.append(out)),
        model.encoder.layer[0].output.LayerNorm.register_forward_pre_hook(lambda _m, args: streams.append(args[0])),
    ]
    for batch in text.batches:
        states(cut.model, batch), states(model, batch)
    for handle in handles:
        handle.remove()
    real = [batch["attention_mask"].bool() for batch in text.batches]
    inputs, outputs, stream = (
        torch.cat([each[mask] for each, mask in zip(rows, real, strict=True)]).double()
        for rows in (seen, wanted, streams)
    )
    scale = stream.std(dim=1, keepdim=True)
    missing = (outputs - before.double()(inputs)) / scale
    ridge = (DAMPING * (inputs / scale).square().sum(0).mean()).sqrt() * torch.eye(32, 33)
    extended = torch.cat([torch.cat([inputs, torch.ones(len(inputs), 1)], 1) / scale, ridge])
    goal = torch.cat([missing, torch.zeros(32, 32)])
    expected = np.linalg.lstsq(extended.detach().numpy(), goal.detach().numpy(), rcond=None)[0]
    repair_width(cut.model, model, cut.kept, text)
    assert np.allclose((module.weight - before.weight.float()).detach(), expected[:32].T, atol=1e-5)
    assert np.allclose((module.bias - before.bias.float()).detach(), expected[32], atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "modernbert", "eurobert", "distilbert"])
def test_nothing_cut_is_nothing_changed(family):
    model = pico.model_of(family, 200)
    same = copy.deepcopy(model)
    whole = KeptUnits(heads=None, neurons=None, hidden=list(range(32)))
    repair_width(same, model, whole, text_of(model, 2))
    batch = pico.padded_batch(model)
    assert torch.allclose(same(**batch)[0], model(**batch)[0], atol=1e-5)


@pytest.mark.parametrize("family", NARROWING)
def test_every_family_is_nearer_to_the_original(family):
    model = pico.model_of(family, 200, "base")
    text = text_of(model)
    cut = narrow(model, Widths(ffn=48, heads=fewer_heads(family)))
    before = total_error(cut.model, model, text, cut.kept.hidden)
    repair_width(cut.model, model, cut.kept, text)
    assert total_error(cut.model, model, text, cut.kept.hidden) < 0.98 * before


@pytest.mark.parametrize(
    ("head", "batches", "is_fitted"),
    [("sequence-classification", 3, False), ("sequence-classification", 4, True), ("token-classification", 1, True)],
)
def test_few_sequences_leave_their_classifier(head, batches, is_fitted):
    model = pico.model_of("distilbert", 200, head)
    cut = narrow(model, Widths(heads=2))  # 16 inputs of the classifier; a batch has 8 sequences
    before = cut.model.classifier.weight.detach().clone()
    repair_width(cut.model, model, cut.kept, text_of(model, batches))
    assert torch.equal(cut.model.classifier.weight, before) != is_fitted


@pytest.mark.parametrize("family", ["bert", "eurobert"])
def test_fewer_neurons_and_layers_are_repaired(family, tmp_path):
    model = pico.model_of(family, 200, "base")
    text = text_of(model)
    cut = narrow(model, Widths(ffn=32))
    before = total_error(cut.model, model, text)
    repair_width(cut.model, model, cut.kept, text)
    assert total_error(cut.model, model, text) < 0.9 * before
    shallow, _ = keep_layers(model, (0, 2))
    before = total_error(shallow, model, text)
    repair_depth(shallow, Targets(model, text), (0, 2))
    assert total_error(shallow, model, text) < 0.9 * before
    shallow.save_pretrained(tmp_path)
    stock, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    batch = text.batches[0]
    assert torch.allclose(states(stock.eval(), batch), states(shallow, batch), atol=1e-6)


def hooks_of(*models):
    """The number of hooks of every module: transformers has some of its own."""
    modules = [module for model in models for module in model.modules()]
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules]


def test_padding_and_hooks_leave_no_trace():
    model = pico.model_of("bert", 200)
    repaired = []
    for fill in (0, 7):
        cut = narrow(model, Widths(ffn=32))
        text = text_of(model, 2)
        batches = [{**b, "input_ids": b["input_ids"].masked_fill(b["attention_mask"] == 0, fill)} for b in text.batches]
        before = hooks_of(cut.model, model)
        repair_width(cut.model, model, cut.kept, CalibrationText(batches, text.run))
        repaired.append(cut.model.bert.encoder.layer[3].output.dense.weight)
        assert hooks_of(cut.model, model) == before
    assert torch.allclose(*repaired, atol=1e-5)


@pytest.mark.parametrize("family", NARROWING)
@pytest.mark.parametrize("are_heads_cut", [False, True])
def test_kept_states_change_nothing(family, are_heads_cut, monkeypatch):
    widths = Widths(ffn=32, heads=fewer_heads(family) if are_heads_cut else None)
    model = pico.model_of(family, 200, "base")
    text, layers = text_of(model, 2), (0, model.config.num_hidden_layers - 1)
    cut = narrow(model, widths)
    repaired = []
    for most_bytes in (0, 30_000, partial_runs.MOST_BYTES):  # the states of no batch, of one, of both
        monkeypatch.setattr(PartialRuns, "__init__", functools.partialmethod(BEGIN, most_bytes=most_bytes))
        monkeypatch.setattr(repair, "MOST_BYTES", most_bytes)
        narrowed = copy.deepcopy(cut.model)
        repair_width(narrowed, model, cut.kept, text)
        shallow, _ = keep_layers(narrowed, layers)
        repair_depth(shallow, Targets(narrowed, text), layers)
        repaired.append(shallow.state_dict())
    first, *others = repaired
    assert all(torch.equal(first[name], other[name]) for name in first for other in others)


def test_a_pass_begins_behind_known_layers():
    model, batch = pico.model_of("bert", 200, "base"), pico.padded_batch(pico.model_of("bert", 200, "base"))
    layers, ran = encoder_layers(model), []
    runs = PartialRuns(model)
    handles = [
        layer.attention.register_forward_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(layers)
    ]
    expected = model(**batch).last_hidden_state
    passes = []
    for layer in range(len(layers) + 1):
        ran.clear()
        with runs.beginning_at(layer, 0):
            assert torch.equal(model(**batch).last_hidden_state, expected)
        passes.append(list(ran))
    for handle in handles:
        handle.remove()
    last = len(layers) - 1
    assert passes == [list(range(max(0, layer - 1), last + 1)) for layer in range(last + 2)]
    assert all("forward" not in vars(layer) for layer in layers)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_dimensions_that_a_norm_silences_stay_finite(family):
    original = pico.model_of(family, 200, "base")
    with torch.no_grad():
        for name, module in original.named_modules():
            if "norm" in name.lower() and hasattr(module, "weight"):
                module.weight[:8] = 0
    cut = narrow(original, Widths(heads=2))
    repaired = repair_width(cut.model, original, cut.kept, text_of(original))
    assert all(parameter.isfinite().all() for parameter in repaired.parameters())
