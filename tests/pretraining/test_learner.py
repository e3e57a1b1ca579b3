"""Losses and held-out sums against direct computations in float64, on padded and on packed batches."""

import copy

import pytest
import torch
from torch.nn.functional import log_softmax

from biosqueeze.pretraining.learner import MaskedLanguageLearner, whole_words
from biosqueeze.training.chunked_loss import ChunkedTerms
from tests import pico

PAIRED = {"bert": "BertForPreTraining", "albert": "AlbertForPreTraining", "mobilebert": "MobileBertForPreTraining"}


def paired_model(family: str):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(pico.transformers, PAIRED[family])(pico.config_of(family, 200)).eval()


def masked_batch(model, *, pairs: bool):
    batch = pico.padded_batch(model, rows=4)
    generator = torch.Generator().manual_seed(1)
    chosen = (torch.rand(batch["input_ids"].shape, generator=generator) < 0.3) & batch["attention_mask"].bool()
    batch["labels"] = torch.where(chosen, batch["input_ids"], -100)
    batch["input_ids"] = torch.where(chosen, 4, batch["input_ids"])
    if pairs:
        batch["pair_label"] = torch.tensor([0, 1, 1, 0])
        batch["token_type_ids"] = (torch.arange(batch["input_ids"].shape[1]) > 6).long().expand(4, -1).contiguous()
    return batch


def reference(model, batch, pair: str | None) -> dict[str, float]:
    """Sum over loops, from the logits of stock transformers in float64."""
    model = copy.deepcopy(model).double()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in batch}
    output = model(**inputs)
    logits = log_softmax(output.prediction_logits if pair else output.logits, dim=-1)
    losses = [-float(logits[r, c, label].detach()) for (r, c), label in _labels(batch)]
    terms = {"mlm": sum(losses) / len(losses)}
    if pair:
        both = output.seq_relationship_logits if "seq_relationship_logits" in output else output.sop_logits
        chosen = log_softmax(both, dim=-1)[torch.arange(4), batch["pair_label"]]
        terms[pair] = -float(chosen.sum().detach()) / 4
    return terms


def _labels(batch):
    rows, columns = torch.nonzero(batch["labels"] >= 0, as_tuple=True)
    return [((int(r), int(c)), int(batch["labels"][r, c])) for r, c in zip(rows, columns, strict=True)]


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_mlm_equals_float64(family: str) -> None:
    model = pico.model_of(family, 200, "mlm")
    batch = masked_batch(model, pairs=False)
    terms = MaskedLanguageLearner(model).eval()(**batch)
    assert float(terms["mlm"].detach()) == pytest.approx(reference(model, batch, None)["mlm"], rel=1e-5)


@pytest.mark.parametrize(("family", "pair"), [("bert", "nsp"), ("albert", "sop"), ("mobilebert", "nsp")])
def test_pairs_equal_float64(family: str, pair: str) -> None:
    model = paired_model(family)
    batch = masked_batch(model, pairs=True)
    learner = MaskedLanguageLearner(model, pair).eval()
    terms = {name: float(term.detach()) for name, term in learner(**batch).items()}
    assert terms == pytest.approx(reference(model, batch, pair), rel=1e-4)
    assert learner.weights == {"mlm": 1.0, pair: 1.0}
    assert learner.counts(batch) == {"mlm": len(_labels(batch)), pair: 4}


def test_chunked_gradients_equal_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = paired_model("bert")
    batch, gradients = masked_batch(model, pairs=True), []
    for rows in (1000, 3):
        monkeypatch.setattr(ChunkedTerms, "rows", rows)
        monkeypatch.setattr(ChunkedTerms.__init__, "__defaults__", (rows,))
        model.zero_grad()
        sum(MaskedLanguageLearner(model, "nsp").eval()(**batch).values()).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_packed_texts_have_the_loss_of_single_ones(family: str) -> None:
    model = pico.model_of(family, 200, "mlm")
    batch = masked_batch(model, pairs=False)
    learner = MaskedLanguageLearner(model).eval()
    real = batch["attention_mask"].bool()
    lengths = real.sum(dim=1)
    packed = {name: batch[name][real].unsqueeze(0) for name in ("input_ids", "labels")}
    packed["attention_mask"] = torch.ones_like(packed["input_ids"])
    packed["positions"] = torch.cat([torch.arange(int(n)) for n in lengths]).unsqueeze(0)
    packed["segments"] = torch.repeat_interleave(torch.arange(1, 5), lengths).unsqueeze(0)
    with torch.no_grad():
        assert float(learner(**packed)["mlm"]) == pytest.approx(float(learner(**batch)["mlm"]), rel=1e-5)


def test_softmax_is_float32_under_autocast() -> None:
    model = pico.model_of("bert", 200, "mlm")
    batch = masked_batch(model, pairs=False)
    with torch.autocast("cpu", torch.bfloat16):
        term = MaskedLanguageLearner(model).eval()(**batch)["mlm"]
    assert term.dtype == torch.float32
    assert float(term.detach()) == pytest.approx(reference(model, batch, None)["mlm"], rel=0.02)


def test_a_batch_without_masks_has_loss_zero() -> None:
    model = pico.model_of("bert", 200, "mlm")
    batch = masked_batch(model, pairs=False)
    batch["labels"].fill_(-100)
    assert float(MaskedLanguageLearner(model)(**batch)["mlm"].detach()) == 0.0


def test_held_out_sums_equal_a_direct_count() -> None:
    model = paired_model("bert")
    batch = masked_batch(model, pairs=True)
    # Make some predictions right: the labels of every other masked token are what the model predicts.
    with torch.no_grad():
        output = model(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})
    best = output.prediction_logits.argmax(dim=-1)
    even = torch.arange(best.shape[1]).expand_as(best) % 3 > 0
    batch["labels"] = torch.where((batch["labels"] >= 0) & even, best, batch["labels"])
    batch["word_index"] = torch.arange(batch["labels"].numel()).reshape(batch["labels"].shape) // 2
    sums = MaskedLanguageLearner(model, "nsp").eval().held_out_sums(batch)
    words: dict[int, bool] = {}
    for (r, c), label in _labels(batch):
        word = int(batch["word_index"][r, c])
        words[word] = words.get(word, True) and label == int(best[r, c])
    assert sums["word_accuracy"] == (sum(words.values()), len(words))
    assert 0 < sum(words.values()) < len(words)
    loss, count = sums["mlm"]
    assert loss / count == pytest.approx(reference(model, batch, "nsp")["mlm"], rel=1e-5)
    right = output.seq_relationship_logits.argmax(dim=-1) == batch["pair_label"]
    assert sums["nsp_accuracy"] == (int(right.sum()), 4)


def test_a_word_is_right_only_as_a_whole() -> None:
    right = torch.tensor([True, False, True, True])
    assert whole_words(right, torch.tensor([1, 1, 2, 5])) == (2, 3)
    assert whole_words(torch.tensor([], dtype=torch.bool), torch.tensor([], dtype=torch.long)) == (0, 0)
