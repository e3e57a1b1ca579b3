"""Adversarial pretraining against a version computed with whole models and single steps, in float64."""

import torch
from torch.nn import functional

from biosqueeze.pretraining.adversarial import RADIUS, WEIGHT, AdversarialLearner
from biosqueeze.pretraining.learner import MaskedLanguageLearner
from tests import pico


def _batch(model):
    batch = pico.padded_batch(model, rows=3, length=12)
    chosen = (batch["input_ids"] % 3 == 0) & batch["attention_mask"].bool()
    batch["labels"] = torch.where(chosen, batch["input_ids"], -100)
    batch["input_ids"] = batch["input_ids"].masked_fill(chosen, 4)
    return batch


def _distance(moved, clean):
    first, second = moved.log_softmax(-1), clean.log_softmax(-1)
    kl = functional.kl_div
    both = kl(first, second, reduction="sum", log_target=True) + kl(second, first, reduction="sum", log_target=True)
    return both / len(first)


def _naive(model, batch):
    inputs, masked = {"attention_mask": batch["attention_mask"]}, batch["labels"] >= 0
    real = batch["attention_mask"].unsqueeze(-1)
    words = model.get_input_embeddings()(batch["input_ids"])
    clean = model(inputs_embeds=words, **inputs).logits[masked]
    torch.manual_seed(5)
    noise = (torch.randn_like(words) * 1e-5 * real).detach().requires_grad_()
    moved = model(inputs_embeds=words.detach() + noise, **inputs).logits[masked]
    (slope,) = torch.autograd.grad(_distance(moved, clean.detach()), noise)
    step = 1e-3 * slope / slope.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
    noise = ((noise.detach() + step).clamp(-1e-3, 1e-3) * real).detach()
    return _distance(model(inputs_embeds=words + noise, **inputs).logits[masked], clean)


def test_term_and_gradients_match_a_naive_version():
    model = pico.model_of("bert", 60).double()
    batch, learner = _batch(model), AdversarialLearner(model)
    torch.manual_seed(5)
    terms = learner.eval()(**batch)
    naive = _naive(model, batch)
    assert terms["adversarial"].item() > 1e-12
    torch.testing.assert_close(terms["adversarial"], naive, rtol=1e-5, atol=0)
    weights = [weight for name, weight in model.named_parameters() if "pooler" not in name]
    pairs = [torch.autograd.grad(term, weights, allow_unused=True) for term in (terms["adversarial"], naive)]
    for one, other in zip(*pairs, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-10)
    assert (RADIUS, WEIGHT) == (1e-3, 10.0)


def test_the_other_terms_stay_as_they_are():
    model = pico.model_of("bert", 60).double().train()
    batch = _batch(model)
    torch.manual_seed(1)
    plain = MaskedLanguageLearner(model)(**batch)
    torch.manual_seed(1)
    terms = AdversarialLearner(model)(**batch)
    assert torch.equal(terms["mlm"], plain["mlm"])
    counts = AdversarialLearner(model).counts(batch)
    assert counts["adversarial"] == counts["mlm"] > 0


def test_a_batch_without_a_masked_token_has_no_term():
    model = pico.model_of("bert", 60)
    batch = {**_batch(model), "labels": torch.full((3, 12), -100)}
    terms = AdversarialLearner(model)(**batch)
    assert terms["adversarial"].item() == 0
    terms["adversarial"].backward()
