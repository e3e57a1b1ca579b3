"""Replaced-token detection: losses and draws against naive computations, the shared embeddings, resuming, saving."""

import math
from pathlib import Path

import pytest
import torch
import transformers

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.errors import UsageError
from biosqueeze.models.loading.load import load_tokenizer
from biosqueeze.pretraining.learner import WORD_INDEX
from biosqueeze.pretraining.objectives import head_of_objective
from biosqueeze.pretraining.pipeline import pretrain
from biosqueeze.pretraining.replaced_tokens import (
    Replaced,
    ReplacedTokenLearner,
    draw_tokens,
    load_generator,
    new_generator,
)
from biosqueeze.pretraining.request import PretrainingRequest
from biosqueeze.stages.pretrain import Options
from tests import pico
from tests.metrics_log import log_of

VOCABULARY = 60
OPTIONS = {"objective": "rtd", "batch_size": 4, "max_length": 32, "lr": 1e-3, "held_out": 0.2, "precision": "fp32"}


def _learner(share: float = 0.5) -> ReplacedTokenLearner:
    model = pico.model_of("electra", VOCABULARY)
    return ReplacedTokenLearner(model, new_generator(model, share, seed=1)).double().eval()


def _batch(rows: int = 3, length: int = 17) -> dict[str, torch.Tensor]:
    batch = pico.padded_batch(pico.model_of("electra", VOCABULARY), rows, length)
    generator = torch.Generator().manual_seed(2)
    chosen = (torch.rand(rows, length, generator=generator) < 0.4) & batch["attention_mask"].bool()
    batch["labels"] = torch.where(chosen, batch["input_ids"], -100)
    batch["input_ids"] = batch["input_ids"].masked_fill(chosen, 4)
    return batch


def _terms(learner: ReplacedTokenLearner, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return learner(**batch)


def _numbers(terms: dict[str, torch.Tensor]) -> list[float]:
    return [terms[name].item() for name in ("mlm", "rtd")]


def _reference(learner: ReplacedTokenLearner, batch: dict[str, torch.Tensor]) -> list[float]:
    """Both losses by whole stock models and loops over single numbers."""
    ids, labels, real = batch["input_ids"], batch["labels"], batch["attention_mask"].tolist()
    with torch.no_grad():
        logits = learner.generator(input_ids=ids, attention_mask=batch["attention_mask"]).logits
    places = [(row, column) for row, column in torch.nonzero(labels >= 0).tolist()]
    torch.manual_seed(3)
    uniform = torch.rand(len(places), 1, dtype=torch.float64).flatten().tolist()
    replaced, flags, cross_entropy = ids.clone(), torch.zeros_like(ids), 0.0
    for (row, column), number in zip(places, uniform, strict=True):
        scores = [math.exp(score) for score in logits[row, column].tolist()]
        original, below, drawn = int(labels[row, column]), 0.0, 0
        cross_entropy -= math.log(scores[original] / sum(scores))
        while below + scores[drawn] / sum(scores) <= number:
            below += scores[drawn] / sum(scores)
            drawn += 1
        replaced[row, column], flags[row, column] = drawn, int(drawn != original)
    with torch.no_grad():
        detected = learner.model(input_ids=replaced, attention_mask=batch["attention_mask"]).logits.tolist()
    losses = []
    for row, scores in enumerate(detected):
        for column, score in enumerate(scores):
            if real[row][column]:
                probability = 1 / (1 + math.exp(-score))
                losses.append(-math.log(probability if flags[row, column] else 1 - probability))
    return [cross_entropy / len(places), sum(losses) / len(losses)]


def test_losses_equal_a_naive_computation():
    learner, batch = _learner(), _batch()
    terms = _terms(learner, batch)
    assert _numbers(terms) == pytest.approx(_reference(learner, batch), rel=1e-9)
    assert learner.counts(batch) == {
        "mlm": int((batch["labels"] >= 0).sum()),
        "rtd": int(batch["attention_mask"].sum()),
    }
    assert learner.weights == {"mlm": 1.0, "rtd": 50.0}


def test_padding_changes_nothing():
    learner, batch = _learner(), _batch()
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    padded = {name: torch.nn.functional.pad(tensor, (0, 5), value=fill[name]) for name, tensor in batch.items()}
    first, second = _terms(learner, batch), _terms(learner, padded)
    assert _numbers(first) == pytest.approx(_numbers(second), rel=1e-9)


def test_packed_texts_have_the_losses_of_separate_ones():
    learner, batch = _learner(), _batch()
    real = batch["attention_mask"].bool()
    lengths = real.sum(dim=1)
    packed = {name: batch[name][real].unsqueeze(0) for name in batch}
    packed["positions"] = torch.cat([torch.arange(int(n)) for n in lengths]).unsqueeze(0)
    packed["segments"] = torch.cat([torch.full((int(n),), i + 1) for i, n in enumerate(lengths)]).unsqueeze(0)
    first, second = _terms(learner, batch), _terms(learner, packed)
    assert _numbers(first) == pytest.approx(_numbers(second), rel=1e-9)


def test_many_rows_are_drawn_and_summed_in_chunks(monkeypatch):
    learner, batch = _learner(), _batch(rows=4, length=30)
    whole = _terms(learner, batch)
    (whole["mlm"] + 50 * whole["rtd"]).backward()
    expected = [parameter.grad.clone() for parameter in learner.parameters()]
    learner.zero_grad()
    monkeypatch.setattr("biosqueeze.training.chunked_loss.ChunkedTerms.__init__.__defaults__", (7,))
    chunked = _terms(learner, batch)
    assert _numbers(chunked) == pytest.approx(_numbers(whole), rel=1e-6)  # chunks are added up in float32
    (chunked["mlm"] + 50 * chunked["rtd"]).backward()
    for parameter, gradient in zip(learner.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-9)


def test_draws_follow_the_predicted_probabilities():
    logits = torch.tensor([[0.0, -math.inf, 1.0, 2.0, -math.inf]]).expand(20_000, -1)
    drawn = draw_tokens(logits.softmax(dim=-1), torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn, minlength=5) / len(drawn)
    torch.testing.assert_close(shares, logits[0].softmax(dim=0), atol=0.01, rtol=0)
    assert shares[1] == shares[4] == 0


def test_a_drawn_original_token_is_not_replaced():
    batch = {"input_ids": torch.tensor([[4, 7, 4]]), "labels": torch.tensor([[5, -100, 6]])}
    replaced = Replaced.of(batch, torch.tensor([5, 9]))
    assert replaced.input_ids.tolist() == [[5, 7, 9]]
    assert replaced.is_replaced.tolist() == [[False, False, True]]


def test_detection_has_no_gradient_in_the_generator():
    learner = _learner()
    _terms(learner, _batch())["rtd"].backward()
    shared = {id(parameter) for parameter in learner.model.parameters()}
    own = [parameter for parameter in learner.generator.parameters() if id(parameter) not in shared]
    assert own and all(parameter.grad is None for parameter in own)
    assert all(parameter.grad is not None for parameter in learner.model.parameters())


@pytest.mark.parametrize(("share", "heads"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_sizes_of_the_generator(share, heads):
    config = _learner(share).generator.config
    assert (config.num_attention_heads, config.hidden_size, config.intermediate_size) == (heads, 8 * heads, 16 * heads)
    assert (config.embedding_size, config.num_hidden_layers) == (pico.HIDDEN // 2, pico.LAYERS)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_other_families_have_no_head_for_it(family):
    with pytest.raises(UsageError, match="no head that detects replaced tokens"):
        head_of_objective("rtd", family)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rtd")
    pico.save("electra", path / "model")
    (path / "text.txt").write_text("\n\n".join(pico.sentences(120)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIOSQUEEZE_CACHE", str(path / "cache"))
        yield path


def _run(folder: Path, out: str, **options):
    chosen = Options(checkpoint=str(folder / "model"), corpus=(str(folder / "text.txt"),), **{**OPTIONS, **options})
    (folder / out).mkdir(exist_ok=True)
    return pretrain(PretrainingRequest(open_checkpoint(str(folder / "model")), chosen), folder / out)


@pytest.fixture(scope="module")
def trained(folder):
    return _run(folder, "whole", steps=6)


def test_a_resumed_run_equals_an_uninterrupted_one(folder, trained):
    with pytest.MonkeyPatch.context() as patch:
        interrupted = lambda loop, _condition: loop.progress.step == 3  # noqa: E731
        patch.setattr("biosqueeze.training.loop.TrainingLoop._in_any_process", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _run(folder, "parts", steps=6)
    resumed = _run(folder, "parts", steps=6, resume=True)
    assert log_of(folder / "parts") == log_of(folder / "whole")
    for name, tensor in trained.learner.state_dict().items():
        assert torch.equal(resumed.learner.state_dict()[name], tensor), name


def test_scores_on_held_out_text(trained):
    scores = trained.metrics["held_out"]
    assert {"mlm", "perplexity", "word_accuracy", "rtd", "rtd_accuracy", "found"} == set(scores)
    assert 0 < scores["rtd_accuracy"] <= 1


def test_held_out_scores_draw_the_same_tokens_each_time():
    learner = _learner()
    batch = {**_batch(), WORD_INDEX: torch.arange(51).reshape(3, 17)}
    assert learner.held_out_sums(batch) == learner.held_out_sums(batch)


def test_stock_transformers_loads_both_models(trained, folder):
    trained.save(folder / "saved")
    for name, part in (("ElectraForPreTraining", "."), ("ElectraForMaskedLM", "generator")):
        build = getattr(transformers, name)
        model, report = build.from_pretrained(folder / "saved" / part, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
        ours = trained.learner.model if part == "." else trained.learner.generator
        assert all(torch.equal(tensor, ours.state_dict()[key]) for key, tensor in model.state_dict().items())
    generator = open_checkpoint(str(folder / "saved" / "generator"))
    assert len(load_tokenizer(generator)) == generator.config["vocab_size"]
    again = load_generator(generator, trained.learner.model)
    assert again.config.hidden_size == 8
    words = trained.learner.model.base_model.embeddings.word_embeddings.weight
    assert torch.equal(again.generator_lm_head.weight, words)


def test_a_model_that_is_no_generator(folder):
    model = pico.model_of("electra", VOCABULARY)
    with pytest.raises(UsageError, match="needs a masked-language-model head"):
        load_generator(open_checkpoint(str(folder / "model")), model)
    pico.save("bert", folder / "bert")
    with pytest.raises(UsageError, match="must be an ELECTRA generator"):
        load_generator(open_checkpoint(str(folder / "bert")), model)
