"""SMART's term against a version computed row by row, without padding, in float64."""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, rel_entr, softmax
from torch.nn import functional

from biosqueeze.data.output_types import MULTI, SCORE, SINGLE, SPAN, TOKENS, OutputType
from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.finetuning.smart import RADIUS, START, PerturbedForward, smoothness, word_embedding
from biosqueeze.models.output_tensors import tensors_of
from biosqueeze.training.resuming.rng_state import RngState
from tests import pico

CPU = torch.device("cpu")
FAMILY_HEADS = {TOKENS: "token-classification", SINGLE: "sequence-classification"}


def batch_of(model: torch.nn.Module, output_type: OutputType) -> dict[str, torch.Tensor]:
    """Return three rows, two of them padded with ids other than the padding id."""
    batch = pico.padded_batch(model, rows=3, length=12)
    real = batch["attention_mask"] == 1
    batch["input_ids"] = torch.where(real, batch["input_ids"], torch.full_like(batch["input_ids"], 7))
    if output_type is SINGLE:
        return batch | {"labels": torch.tensor([0, 2, 1])}
    labels = batch["input_ids"] % 3
    return batch | {"labels": torch.where(real & (labels != 1), labels, torch.full_like(labels, -100))}


def found_term(model: torch.nn.Module, batch: dict[str, torch.Tensor], output_type: OutputType) -> torch.Tensor:
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    rng = RngState(CPU)
    clean = model(**inputs).logits
    perturbed = PerturbedForward(lambda: model(**inputs).logits, word_embedding(model), rng)
    torch.manual_seed(11)
    return smoothness(perturbed, clean, batch, tensors_of(output_type))


def naive_term(model: torch.nn.Module, batch: dict[str, torch.Tensor], output_type: OutputType) -> torch.Tensor:
    """Take one ascent step for each row alone, without its padding."""
    table = model.get_input_embeddings()
    torch.manual_seed(11)
    starts = torch.randn(*batch["input_ids"].shape, table.embedding_dim, dtype=torch.float64)
    total, scored = torch.zeros((), dtype=torch.float64), 0
    for row in range(3):
        length = int(batch["attention_mask"][row].sum())
        rows = table(batch["input_ids"][row, :length])  # (length, width)
        embedded = rows.detach()
        places = slice(None)
        if output_type is TOKENS:
            places = batch["labels"][row, :length] >= 0
        clean = model(inputs_embeds=rows[None]).logits[0]
        radius = RADIUS * float(embedded.square().mean().sqrt())
        noise = (START * radius * starts[row, :length]).requires_grad_()
        moved = model(inputs_embeds=(embedded + noise)[None]).logits[0]
        (slope,) = torch.autograd.grad(both_ways(moved, clean.detach(), places), noise)
        noise = noise.detach()
        for token in range(length):
            noise[token] += radius * slope[token] / slope[token].abs().max()
            noise[token] = noise[token].clamp(-radius, radius)
        total = total + both_ways(model(inputs_embeds=(rows + noise)[None]).logits[0], clean, places)
        scored += int(places.sum()) if output_type is TOKENS else 1
    return total / scored


def both_ways(first: torch.Tensor, second: torch.Tensor, places: object) -> torch.Tensor:
    one, other = first.log_softmax(-1)[places], second.log_softmax(-1)[places]
    kl = functional.kl_div
    return kl(one, other, reduction="sum", log_target=True) + kl(other, one, reduction="sum", log_target=True)


@pytest.mark.parametrize("output_type", [TOKENS, SINGLE])
@pytest.mark.parametrize("family", ["bert", "electra", "distilbert"])
def test_term_and_gradients_match_a_naive_version(family: str, output_type: OutputType) -> None:
    model = pico.model_of(family, 60, FAMILY_HEADS[output_type]).double()
    batch = batch_of(model, output_type)
    found, naive = found_term(model, batch, output_type), naive_term(model, batch, output_type)
    assert found.item() > 1e-7
    torch.testing.assert_close(found, naive, rtol=1e-6, atol=0)
    weights = [p for p in model.parameters() if p.requires_grad]
    pairs = [torch.autograd.grad(term, weights, allow_unused=True) for term in (found, naive)]
    for one, other in zip(*pairs, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-10)


def test_zero_noise_gives_the_same_logits_with_dropout() -> None:
    model = pico.model_of("bert", 60, "token-classification").train()
    batch = pico.padded_batch(model)
    rng = RngState(CPU)
    clean = model(**batch).logits
    after = torch.get_rng_state()
    perturbed = PerturbedForward(lambda: model(**batch).logits, word_embedding(model), rng)
    assert torch.equal(perturbed(torch.zeros(())), clean)
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(model(**batch).logits, clean), "there was no dropout to repeat"


def test_noise_on_a_longformer_that_pads_to_whole_windows() -> None:
    model = pico.model_of("longformer", 60, "token-classification")
    batch = pico.padded_batch(model, rows=3, length=13)
    real = batch["attention_mask"] == 1
    embedded = model.get_input_embeddings()(batch["input_ids"])
    noise = 0.1 * torch.randn_like(embedded)
    perturbed = PerturbedForward(lambda: model(**batch).logits, word_embedding(model), RngState(CPU))
    expected = model(inputs_embeds=embedded + noise, attention_mask=batch["attention_mask"]).logits
    torch.testing.assert_close(perturbed(noise)[real], expected[real], rtol=0, atol=1e-5)
    assert not torch.allclose(perturbed(noise)[real], model(**batch).logits[real], atol=1e-3)


def test_adversarial_noise_moves_more_than_chance_does() -> None:
    model = pico.model_of("bert", 60, "token-classification").double()
    batch = batch_of(model, TOKENS)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    clean = model(**inputs).logits
    embedded = word_embedding(model)(batch["input_ids"])
    perturbed = PerturbedForward(lambda: model(**inputs).logits, word_embedding(model), RngState(CPU))
    radius = RADIUS * float(embedded.square().mean().sqrt())
    random_noise = [radius * torch.randn_like(embedded).sign() for _ in range(20)]
    moved = [float(tensors_of(TOKENS).mean_distance(perturbed(noise), clean, batch)) for noise in random_noise]
    assert float(found_term(model, batch, TOKENS)) > max(moved)


def test_the_learner_adds_the_weighted_term() -> None:
    model = pico.model_of("bert", 60, "token-classification")
    learner = FineTuner(model, TOKENS, smart=2.5)
    terms = learner(**batch_of(model, TOKENS))
    assert set(terms) == {"labels", "smart"} == set(learner.weights)
    assert learner.weights["smart"] == 2.5
    assert set(FineTuner(model, TOKENS).weights) == {"labels"}


def test_distances_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    moved, clean = rng.normal(size=(2, 4, 3))
    p, q = softmax(moved, axis=-1), softmax(clean, axis=-1)
    kl = (rel_entr(p, q) + rel_entr(q, p)).sum(-1).mean()
    tensors = torch.from_numpy(moved), torch.from_numpy(clean)
    assert float(tensors_of(SINGLE).mean_distance(*tensors, {})) == pytest.approx(kl, rel=1e-9)
    p, q = expit(moved), expit(clean)
    each = rel_entr(p, q) + rel_entr(1 - p, 1 - q) + rel_entr(q, p) + rel_entr(1 - q, 1 - p)
    assert float(tensors_of(MULTI).mean_distance(*tensors, {})) == pytest.approx(each.mean(), rel=1e-9)
    assert float(tensors_of(SCORE).mean_distance(*tensors, {})) == pytest.approx(
        ((moved - clean) ** 2).mean(), rel=1e-9
    )


def test_spans_are_distributions_over_the_real_positions() -> None:
    rng = np.random.default_rng(1)
    moved, clean = rng.normal(size=(2, 2, 5, 2))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = []
    for row, length in enumerate(mask.sum(1)):
        for side in range(2):
            one, other = (log_softmax(x[row, :length, side]) for x in (moved, clean))
            expected.append(((np.exp(one) - np.exp(other)) * (one - other)).sum())
    batch = {"attention_mask": torch.from_numpy(mask)}
    found = tensors_of(SPAN).mean_distance(torch.from_numpy(moved), torch.from_numpy(clean), batch)
    assert float(found) == pytest.approx(np.mean(expected), rel=1e-9)
