"""SMART's term against one written down row by row, without padding, in float64."""

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, rel_entr, softmax
from torch.nn import functional

from biosqueeze.finetuning.learner import FineTuner
from biosqueeze.finetuning.smart import RADIUS, START, Perturbed, divergence, smoothness, word_embedding
from biosqueeze.training.rng_state import RngState
from tests import pico

CPU = torch.device("cpu")
FAMILY_HEADS = {"tokens": "token-classification", "single": "sequence-classification"}


def batch_of(model: torch.nn.Module, problem: str) -> dict[str, torch.Tensor]:
    """Three rows, two of them padded with ids that are not the padding's."""
    batch = pico.padded_batch(model, rows=3, length=12)
    real = batch["attention_mask"] == 1
    batch["input_ids"] = torch.where(real, batch["input_ids"], torch.full_like(batch["input_ids"], 7))
    if problem == "single":
        return batch | {"labels": torch.tensor([0, 2, 1])}
    labels = batch["input_ids"] % 3
    return batch | {"labels": torch.where(real & (labels != 1), labels, torch.full_like(labels, -100))}


def found_term(model: torch.nn.Module, batch: dict[str, torch.Tensor], problem: str) -> torch.Tensor:
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    chance = RngState(CPU)
    clean = model(**inputs).logits
    perturbed = Perturbed(lambda: model(**inputs).logits, word_embedding(model), chance)
    torch.manual_seed(11)
    return smoothness(perturbed, clean, batch, problem)


def naive_term(model: torch.nn.Module, batch: dict[str, torch.Tensor], problem: str) -> torch.Tensor:
    """One ascent step for each row alone, its padding cut off."""
    table = model.get_input_embeddings()
    torch.manual_seed(11)
    starts = torch.randn(*batch["input_ids"].shape, table.embedding_dim, dtype=torch.float64)
    total, scored = torch.zeros((), dtype=torch.float64), 0
    for row in range(3):
        length = int(batch["attention_mask"][row].sum())
        rows = table(batch["input_ids"][row, :length])  # (length, width)
        embedded = rows.detach()
        places = slice(None)
        if problem == "tokens":
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
        scored += int(places.sum()) if problem == "tokens" else 1
    return total / scored


def both_ways(first: torch.Tensor, second: torch.Tensor, places: object) -> torch.Tensor:
    one, other = first.log_softmax(-1)[places], second.log_softmax(-1)[places]
    kl = functional.kl_div
    return kl(one, other, reduction="sum", log_target=True) + kl(other, one, reduction="sum", log_target=True)


@pytest.mark.parametrize("problem", ["tokens", "single"])
@pytest.mark.parametrize("family", ["bert", "electra", "distilbert"])
def test_the_term_and_its_gradients_are_those_of_a_naive_one(family: str, problem: str) -> None:
    model = pico.model_of(family, 60, FAMILY_HEADS[problem]).double()
    batch = batch_of(model, problem)
    found, naive = found_term(model, batch, problem), naive_term(model, batch, problem)
    assert found.item() > 1e-7
    torch.testing.assert_close(found, naive, rtol=1e-6, atol=0)
    weights = [p for p in model.parameters() if p.requires_grad]
    pairs = [torch.autograd.grad(term, weights, allow_unused=True) for term in (found, naive)]
    for one, other in zip(*pairs, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-10)


def test_no_noise_is_no_change_even_under_dropout() -> None:
    model = pico.model_of("bert", 60, "token-classification").train()
    batch = pico.padded_batch(model)
    chance = RngState(CPU)
    clean = model(**batch).logits
    after = torch.get_rng_state()
    perturbed = Perturbed(lambda: model(**batch).logits, word_embedding(model), chance)
    assert torch.equal(perturbed(torch.zeros(())), clean)
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(model(**batch).logits, clean), "there was no dropout to repeat"


def test_adversarial_noise_moves_more_than_chance_does() -> None:
    model = pico.model_of("bert", 60, "token-classification").double()
    batch = batch_of(model, "tokens")
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    clean = model(**inputs).logits
    embedded = word_embedding(model)(batch["input_ids"])
    perturbed = Perturbed(lambda: model(**inputs).logits, word_embedding(model), RngState(CPU))
    radius = RADIUS * float(embedded.square().mean().sqrt())
    chance = [radius * torch.randn_like(embedded).sign() for _ in range(20)]
    moved = [float(divergence(perturbed(noise), clean, batch, "tokens")) for noise in chance]
    assert float(found_term(model, batch, "tokens")) > max(moved)


def test_the_learner_adds_the_weighted_term() -> None:
    model = pico.model_of("bert", 60, "token-classification")
    learner = FineTuner(model, "tokens", smart=2.5)
    terms = learner(**batch_of(model, "tokens"))
    assert set(terms) == {"labels", "smart"} == set(learner.weights)
    assert learner.weights["smart"] == 2.5
    assert set(FineTuner(model, "tokens").weights) == {"labels"}


def test_distances_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    moved, clean = rng.normal(size=(2, 4, 3))
    p, q = softmax(moved, axis=-1), softmax(clean, axis=-1)
    kl = (rel_entr(p, q) + rel_entr(q, p)).sum(-1).mean()
    tensors = torch.from_numpy(moved), torch.from_numpy(clean)
    assert float(divergence(*tensors, {}, "single")) == pytest.approx(kl, rel=1e-9)
    p, q = expit(moved), expit(clean)
    each = rel_entr(p, q) + rel_entr(1 - p, 1 - q) + rel_entr(q, p) + rel_entr(1 - q, 1 - p)
    assert float(divergence(*tensors, {}, "multi")) == pytest.approx(each.mean(), rel=1e-9)
    assert float(divergence(*tensors, {}, "score")) == pytest.approx(((moved - clean) ** 2).mean(), rel=1e-9)


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
    found = divergence(torch.from_numpy(moved), torch.from_numpy(clean), batch, "span")
    assert float(found) == pytest.approx(np.mean(expected), rel=1e-9)
