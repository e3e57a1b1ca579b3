"""Importances against naive float64 computations, one sequence at a time."""

import copy
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch_pruning as tp

from biosqueeze import registry
from biosqueeze.backends.torch import input_names
from biosqueeze.importance import depth, open_importance
from biosqueeze.importance.activations import layer_activations
from biosqueeze.importance.calibration import Calibration
from biosqueeze.importance.depth import _LossAfterCut, choose_layers, choose_layers_after_repair
from biosqueeze.models.cuts import layer_gaps, repair
from biosqueeze.models.cuts.depth import keep_layers
from biosqueeze.models.cuts.streams import CalibrationText
from biosqueeze.models.cuts.unit_scores import KINDS
from biosqueeze.models.cuts.width import Widths, narrow
from biosqueeze.models.families import FAMILIES, family_of
from biosqueeze.models.layers import encoder_layers, query_group
from tests import pico
from tests.importance.conftest import labelled_batch

FAMILIES_OF_WIDTH = [f for f in pico.FAMILIES if FAMILIES[f].supports_narrowing and not pico.ROWS[f].same_code_as]


def sequences(calibration, *, padded=False):
    """Each example alone."""
    for batch in calibration.batches:
        for row in range(len(batch["input_ids"])):
            length = None if padded else int(batch["attention_mask"][row].sum())
            yield {name: tensor[row : row + 1, :length] for name, tensor in batch.items()}


def derivative(model, calibration, sequence, weight, columns):
    """By how much the loss of a sequence grows with a factor on some columns of a weight: a difference of losses.

    Some families compute norms and softmax in float32 in any case, so the step is not smaller.
    """
    step, losses = 1e-3, []
    original = weight.data.clone()
    for factor in (1 + step, 1 - step):
        weight.data[:, columns] = original[:, columns] * factor
        losses.append(calibration.loss_sum(calibration.run(model, sequence), sequence).item())
    weight.data.copy_(original)
    return (losses[0] - losses[1]) / (2 * step)


@pytest.mark.parametrize("family", FAMILIES_OF_WIDTH)
def test_gradients_of_neurons_and_heads_are_differences(calibrated, family):
    model, calibration = calibrated(family)
    taylor, fisher = (open_importance(name).score(model, calibration) for name in ("taylor", "fisher"))
    row = family_of(model.config)
    naive = copy.deepcopy(model).double()
    layer = encoder_layers(naive)[1]
    size = 8 * query_group(model.config)
    units = {
        "neurons": (layer.get_submodule(row.ffn_output).weight, 5, slice(5, 6)),
        "heads": (layer.get_submodule(row.attention_output).weight, 1, slice(size, 2 * size)),
    }
    with torch.no_grad():
        for kind, (weight, unit, columns) in units.items():
            examples = sequences(calibration, padded=True)
            slopes = torch.tensor([derivative(naive, calibration, s, weight, columns) for s in examples])
            assert getattr(taylor, kind)[1, unit].item() == pytest.approx(slopes.abs().mean().item(), rel=5e-3)
            assert getattr(fisher, kind)[1, unit].item() == pytest.approx(slopes.square().mean().item(), rel=1e-2)


@contextmanager
def scaled(model, dimension, factor):
    """Multiply a dimension of the stream before and after every layer."""
    layers = encoder_layers(model)

    def times(states):
        factors = torch.ones_like(states[0, 0])
        factors[dimension] = factor
        return states * factors

    def enter(_module, args, kwargs):
        if args:
            return (times(args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": times(kwargs["hidden_states"])}

    def leave(_module, _args, out):
        return (times(out[0]), *out[1:]) if isinstance(out, tuple) else times(out)

    handles = [layer.register_forward_pre_hook(enter, with_kwargs=True) for layer in layers]
    handles.append(layers[-1].register_forward_hook(leave))
    yield
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_gradients_of_dimensions_are_differences(calibrated, family):
    model, calibration = calibrated(family)
    taylor, fisher = (open_importance(name).score(model, calibration).hidden for name in ("taylor", "fisher"))
    naive, dimension = copy.deepcopy(model).double(), 3

    def loss(factor, sequence):
        with scaled(naive, dimension, factor):
            return calibration.loss_sum(calibration.run(naive, sequence), sequence).item()

    with torch.no_grad():
        examples = list(sequences(calibration))
        slopes = torch.tensor([(loss(1 + 1e-3, each) - loss(1 - 1e-3, each)) / 2e-3 for each in examples])
    assert taylor[dimension].item() == pytest.approx(slopes.abs().mean().item(), rel=5e-3)
    assert fisher[dimension].item() == pytest.approx(slopes.square().mean().item(), rel=1e-2)


def without(model, index, factor):
    """A hook by which a layer adds only a share of what it adds to its input."""
    return encoder_layers(model)[index].register_forward_hook(
        lambda _m, args, out: (
            (args[0] + factor * (out[0] - args[0]), *out[1:])
            if isinstance(out, tuple)
            else args[0] + factor * (out - args[0])
        )
    )


@pytest.mark.parametrize("family", ["bert", "modernbert", "mobilebert"])
def test_layers_are_scored_by_the_loss_without_them(calibrated, family):
    model, calibration = calibrated(family)
    scores = open_importance("leave-one-out").score(model, calibration).layers
    slopes, squares = (open_importance(name).score(model, calibration).layers for name in ("taylor", "fisher"))
    naive = copy.deepcopy(model).double()

    def loss(factor, sequence):
        handle = without(naive, 2, factor)
        try:
            return calibration.loss_sum(calibration.run(naive, sequence), sequence).item()
        finally:
            handle.remove()

    with torch.no_grad():
        examples = list(sequences(calibration)) if family != "mobilebert" else []
        rises = [loss(0, each) - loss(1, each) for each in examples]
        differences = [abs(loss(1 + 1e-5, each) - loss(1 - 1e-5, each)) / 2e-5 for each in examples]
    assert scores.shape == slopes.shape == (4,) and scores.dtype == torch.float64
    if examples:  # MobileBERT's embeddings mix tokens with padding
        assert scores[2].item() == pytest.approx(sum(rises) / len(rises), rel=1e-3)
        assert slopes[2].item() == pytest.approx(sum(differences) / len(differences), rel=1e-3)
        mean_square = sum(each**2 for each in differences) / len(differences)
        assert squares[2].item() == pytest.approx(mean_square, rel=2e-3)


def test_taylor_of_one_example_is_that_of_torch_pruning(calibrated):
    model, calibration = calibrated("bert")
    single = copy.copy(calibration)
    object.__setattr__(single, "batches", [next(sequences(calibration))])
    scores = open_importance("taylor").score(model, single).neurons[0]
    single.loss(model, single.batches[0]).backward()
    output = model.bert.encoder.layer[0].output.dense
    group = (
        tp.DependencyGraph()
        .build_dependency(torch.nn.Sequential(output), torch.zeros(1, 64), verbose=False)
        .get_pruning_group(output, tp.prune_linear_in_channels, list(range(64)))
    )
    expected = tp.importance.GroupTaylorImportance(multivariable=True, normalizer=None)(group)
    assert torch.allclose(scores.float(), expected, rtol=1e-3)


def test_activations_against_single_sequences(calibrated):
    model, calibration = calibrated("bert")
    found = {
        name: open_importance(name).score(model, calibration) for name in ("activation", "wanda", "block-influence")
    }
    naive = copy.deepcopy(model).double()
    layer, neurons, heads = encoder_layers(naive)[1], [], []
    readers = ((layer.output.dense, neurons), (layer.attention.output.dense, heads))
    handles = [module.register_forward_pre_hook(partial(add_input, read)) for module, read in readers]
    with torch.no_grad():
        states = [
            naive(**{k: s[k] for k in ("input_ids",)}, output_hidden_states=True).hidden_states
            for s in sequences(calibration)
        ]
    for handle in handles:
        handle.remove()
    before, after = (torch.cat([each[depth][0] for each in states]) for depth in (1, 2))
    neurons, heads = torch.cat(neurons), torch.cat(heads)
    weights = [module.weight.detach().abs() for module, _ in readers]
    products = [(weight * states.norm(dim=0)).sum(0) for weight, states in zip(weights, (neurons, heads), strict=True)]
    assert torch.allclose(found["activation"].neurons[1], neurons.abs().mean(0), atol=1e-5)
    assert torch.allclose(found["activation"].heads[1], heads.unflatten(1, (4, 8)).norm(dim=2).mean(0), atol=1e-5)
    assert torch.allclose(found["wanda"].neurons[1], products[0], rtol=1e-4)
    assert torch.allclose(found["wanda"].heads[1], products[1].unflatten(0, (4, 8)).sum(1), rtol=1e-4)
    assert found["wanda"].layers[1].item() == pytest.approx(sum(each.sum().item() for each in products), rel=1e-4)
    cosines = torch.nn.functional.cosine_similarity(before, after)
    assert found["block-influence"].layers[1].item() == pytest.approx((1 - cosines).mean().item(), rel=1e-4)
    ratio = ((after - before).norm(dim=1) / after.norm(dim=1)).mean()
    assert found["activation"].layers[1].item() == pytest.approx(ratio.item(), rel=1e-4)
    every = torch.stack([torch.cat([each[d][0] for each in states]).abs().mean(0) for d in range(1, 5)]).mean(0)
    assert torch.allclose(found["activation"].hidden, every, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES_OF_WIDTH)
def test_every_importance_cuts_every_family(calibrated, family):
    model, calibration = calibrated(family)
    for name in registry.names("importance"):
        importance = open_importance(name)
        scores = importance.score(model, calibration)
        assert set(scores.items()) == set(importance.SCORES) <= set(KINDS)
        assert all(tensor.dtype == torch.float64 and tensor.isfinite().all() for tensor in scores.items().values())
    group = query_group(model.config)
    scores = open_importance("wanda").score(model, calibration)
    heads = 3 if family == "electra" else 2  # with 2, its layers would be as wide as its embeddings
    cut = narrow(model, Widths(ffn=40, heads=heads), scores)
    assert cut.kept.neurons[0] == sorted(scores.neurons[0].argsort(descending=True)[:40].tolist())
    assert [len(heads) for heads in cut.kept.heads] == [heads // group] * 4 and len(cut.kept.hidden) == 8 * heads


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_wanda_reads_the_inputs_of_the_projections(calibrated, family):
    """Sun et al. 2024, equation 1, summed over the columns of one hidden dimension."""
    model, calibration = calibrated(family)
    expected = torch.zeros(model.config.hidden_size, dtype=torch.float64)
    paths = FAMILIES[family]
    readers = dict.fromkeys((paths.query, paths.key, paths.value, paths.ffn_input, paths.ffn_gate))
    for layer in encoder_layers(model):
        for path in filter(None, readers):
            squares, module = torch.zeros_like(expected), layer.get_submodule(path)
            handle = module.register_forward_pre_hook(partial(add_squares, squares))
            with torch.no_grad():
                for sequence in sequences(calibration):
                    calibration.run(model, sequence)
            handle.remove()
            expected += module.weight.detach().double().abs().sum(0) * squares.sqrt()
    assert torch.allclose(open_importance("wanda").score(model, calibration).hidden, expected, rtol=1e-4)


def test_attention_in_windows_reads_the_same_tokens(calibrated):
    for layers in layer_activations(*calibrated("longformer")):
        assert all(torch.equal(layer.attention_input, layer.input) for layer in layers)


def add_input(inputs, _module, args):
    inputs.append(args[0][0])


def add_squares(sums, _module, args):
    sums += args[0].double().square().flatten(0, -2).sum(0)


def test_magnitude_chooses_as_a_cut_without_importance(calibrated):
    for family in ("bert", "eurobert"):
        model, calibration = calibrated(family)
        plain = narrow(model, Widths(ffn=40, heads=2)).model.state_dict()
        scored = narrow(model, Widths(ffn=40, heads=2), open_importance("magnitude").score(model, calibration))
        assert all(torch.equal(plain[name], tensor) for name, tensor in scored.model.state_dict().items())
        layers = open_importance("magnitude").score(model, calibration).layers
        squares = [
            sum(p.detach().double().square().sum() for p in layer.parameters()) for layer in encoder_layers(model)
        ]
        assert torch.allclose(layers, torch.stack(squares), rtol=1e-5)


def silence(layer):
    """Leave a layer that only normalises again."""
    for module in (layer.attention.output.dense, layer.output.dense):
        for parameter in module.parameters():
            parameter.data.zero_()


def test_layers_are_removed_one_at_a_time(calibrated):
    model, calibration = calibrated("bert")
    silence(model.bert.encoder.layer[1])
    influence = open_importance("block-influence")
    scores = influence.score(model, calibration)
    layers, compared = choose_layers(model, 3, influence, calibration, scores)
    assert layers == (0, 2, 3) and compared.argmin() == 1 and torch.equal(compared, scores.layers)


def test_layers_are_scored_anew_after_each_removal(calibrated):
    model, importance = pico.model_of("bert", 200, "token-classification", seed=11), open_importance("leave-one-out")
    calibration, kept = calibrated("bert")[1], [0, 1, 2, 3]
    scores, last = importance.score(model, calibration), {}
    while len(kept) > 1:
        anew = importance.score(keep_layers(model, kept)[0], calibration).layers
        last |= dict(zip(kept, anew.tolist(), strict=True))
        del kept[int(anew.argmin())]
    assert kept != [int(scores.layers.argmax())]
    layers, compared = choose_layers(model, 1, importance, calibration, scores)
    assert layers == tuple(kept) and compared.tolist() == [last[layer] for layer in range(4)]


@pytest.mark.parametrize("labelled", [True, False])
def test_layers_are_chosen_by_the_loss_after_repair(calibrated, labelled):
    model, calibration = calibrated("bert")
    silence(model.bert.encoder.layer[2])
    model.classifier.weight.data *= 100  # a tagger that is sure of its predictions
    if labelled:
        runs = [(batch, calibration.run(model, batch).argmax(2)) for batch in calibration.batches]
        batches = [{**batch, "labels": tags.masked_fill(batch["labels"] < 0, -100)} for batch, tags in runs]
        calibration = replace(calibration, batches=batches)
    else:
        calibration = replace(calibration, loss_sum=None)
    kept, lost = choose_layers_after_repair(model, 3, calibration)
    assert kept == (0, 1, 3) and lost.isnan().sum() == 1 and lost.nan_to_num(nan=torch.inf).argmin() == 2
    kept, later = choose_layers_after_repair(model, 1, calibration)
    assert kept == (0,) and later[2] == lost[2]
    if not labelled:  # what was lost without the third layer, on the batch that the repair did not read
        repaired = repair.repair_depth(*repair_of(model, calibration, (0, 1, 3)))
        held_out = calibration.samples(8192)[1]
        distance = _LossAfterCut(model, held_out).of(repaired) / held_out.examples
        assert lost[2].item() == pytest.approx(distance)


def repair_of(model, calibration, layers):
    fitted = calibration.samples(8192)[0]
    text = CalibrationText(fitted.batches, fitted.run)
    return keep_layers(model, layers)[0], repair.Targets(model, text), layers


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_what_repairs_have_in_common_is_done_once(calibrated, family, monkeypatch):
    """Targets, repaired layers and errors of earlier trials serve again; all are what a trial alone would have."""
    model, calibration = calibrated(family)
    repaired, looked_at = [], []

    def repair_depth(shallow, shared, layers, *, first, shows_progress):
        targets = repair.Targets(model, shared.text)
        alone = repair.repair_depth(keep_layers(model, layers)[0], targets, layers, shows_progress=shows_progress)
        repair.repair_depth(shallow, shared, layers, first=first, shows_progress=shows_progress)
        repaired.append((first, layers))
        assert all(torch.equal(tensor, shallow.state_dict()[name]) for name, tensor in alone.state_dict().items())

    def errors_of(current, text, first):
        looked_at.append((first, layer_gaps.gap_errors(current, text)))
        return layer_gaps.gap_errors(current, text, first)

    def trials(errors, number):
        return [index for index, _ in sorted(enumerate(errors), key=lambda each: each[1])][:number]

    monkeypatch.setattr(depth, "repair_depth", repair_depth)
    monkeypatch.setattr(depth, "gap_errors", errors_of)
    kept, _ = choose_layers_after_repair(model, 1, calibration)
    assert len(kept) == 1 and len(repaired) == 3 + 3 + 2
    assert any(first > 0 for first, _ in repaired)
    for (_, errors), tried in zip(looked_at, (repaired[:3], repaired[3:6], repaired[6:]), strict=True):
        assert [first for first, _ in tried][: len(errors)] == trials(errors, 3)


@pytest.mark.parametrize("head", ["discriminator", "token-classification", "sequence-classification"])
def test_distances_leave_out_padding_of_tokens_alone(head):
    labels = [f"L{number}" for number in range(13)]  # as many classes as tokens
    model, other = (pico.model_of("electra", 200, head, labels=labels, seed=seed) for seed in (0, 1))
    batch = labelled_batch(model, 0)
    assert batch["attention_mask"].shape == (3, 13) and not batch["attention_mask"].all()
    calibration = Calibration([batch], input_names(model))
    with torch.no_grad():
        squares = (calibration.run(other, batch) - calibration.run(model, batch)).square()
    counted = squares if head == "sequence-classification" else squares[batch["attention_mask"].bool()]
    assert _LossAfterCut(model, calibration).of(other) == pytest.approx(counted.sum().item())


def test_the_first_of_few_layers_can_go(calibrated):
    model, calibration = calibrated("bert")
    for layer in model.bert.encoder.layer[:3]:
        silence(layer)
    model.bert.encoder.layer[3].attention.output.dense.weight.data *= 100  # no FFN makes up for what it mixes
    assert choose_layers_after_repair(model, 1, replace(calibration, loss_sum=None))[0] == (3,)


def test_samples_of_calibration_data_are_disjoint(calibrated):
    _, calibration = calibrated("bert")
    many = replace(calibration, batches=[calibration.batches[0]] * 12)
    numbered = replace(many, batches=[{**batch, "number": number} for number, batch in enumerate(many.batches)])
    for share, count in {5: 6, 0.5: 6, 0.25: 3, 0.1: 2}.items():
        numbers = [[batch["number"] for batch in part.batches] for part in numbered.samples(int(many.tokens * share))]
        assert not set(numbers[0]) & set(numbers[1]) and len(numbers[0]) == count
    alone = replace(calibration, batches=calibration.batches[:1])
    assert [part.batches for part in alone.samples(5)] == [alone.batches, alone.batches]


def test_gradients_leave_the_model_as_it_was(calibrated):
    model, calibration = calibrated("bert")
    open_importance("fisher").score(model, calibration)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
