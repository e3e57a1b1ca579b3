"""Two texts are encoded separately, and padding contributes nothing."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from biosqueeze.backends import open_predictor, text_pairs
from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.collate import pad
from biosqueeze.importance import open_importance
from biosqueeze.importance.calibration import read_calibration
from biosqueeze.importance.sources import CalibrationRequest
from biosqueeze.models.custom_heads.cosine import stack_texts
from biosqueeze.models.custom_heads.files import output_type_of
from biosqueeze.models.custom_heads.load import build_headed_encoder, load_headed_encoder, set_score_range
from biosqueeze.tasks import Formulation, similarity
from biosqueeze.tasks.encoding.sequences import TextExample
from tests import pico
from tests.manifests import write_manifest

PAIRS = [
    ("the carcinoma of the cells", "is hepatitis"),
    ("protein", "the gene with a mutation in patients for the the"),
]


@pytest.mark.parametrize("family", pico.FAMILIES)
def test_score_is_the_cosine_of_the_mean_states(family, tmp_path):
    path = pico.save(family, tmp_path / "encoder", head="base")
    model = build_headed_encoder(open_checkpoint(str(path)), "cosine", ("score",), seed=0)
    set_score_range(model, [1.0, 3.0, 0.0])
    tokenizer = pico.tokenizer_of(family)
    kind = similarity.Kind(Formulation(representation="cosine"))
    windows = kind.encode([TextExample(pair, 1.0) for pair in PAIRS], ("score",), tokenizer, 128)
    batch = pad([window.features for window in windows], tokenizer.pad_token_id)
    with torch.no_grad():
        names = ("input_ids", "attention_mask", "entities")
        scores = model(**{name: torch.from_numpy(batch[name]) for name in names}).logits
        for row, pair in enumerate(PAIRS):
            inputs = [tokenizer(text, return_tensors="pt", return_token_type_ids=False) for text in pair]
            first, second = (model.encoder(**each)[0][0].mean(dim=0) for each in inputs)
            expected = 3 * functional.cosine_similarity(first, second, dim=0)
            torch.testing.assert_close(scores[row, 0], expected, atol=2e-6, rtol=1e-5)


def test_stacked_texts_are_left_aligned():
    ids = torch.tensor([[4, 5, 7, 8, 0], [9, 4, 3, 2, 1]])
    entities = torch.tensor([[1, 1, 2, 2, 0], [1, 2, 2, 2, 2]])
    batch = {"input_ids": ids, "attention_mask": entities.clamp(max=1), "entities": entities}
    texts = stack_texts({**batch, "targets": torch.tensor([1.0, 2.0])}, padding=99)
    assert texts["input_ids"].tolist() == [[4, 5, 99, 99], [9, 99, 99, 99], [7, 8, 99, 99], [4, 3, 2, 1]]
    assert texts["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert texts["targets"].tolist() == [1.0, 2.0]
    assert "entities" not in texts
    arrays = text_pairs.stack_texts({name: tensor.numpy() for name, tensor in batch.items()}, 99)
    assert all(np.array_equal(arrays[name], texts[name].numpy()) for name in arrays)


def test_range_is_saved_beside_a_stock_encoder(tmp_path):
    path = pico.save("bert", tmp_path / "encoder", head="base")
    model = build_headed_encoder(open_checkpoint(str(path)), "cosine", ("score",), seed=0)
    set_score_range(model, [0.5, 4.0])
    out = tmp_path / "out"
    model.save_pretrained(out)
    loaded = load_headed_encoder(open_checkpoint(str(out)))
    assert (float(loaded.head.low), float(loaded.head.high)) == (0.5, 4.0)
    assert {name for name, _ in loaded.head.named_parameters()} == set()
    same = zip(model.state_dict().values(), loaded.state_dict().values(), strict=True)
    assert all(torch.equal(before, after) for before, after in same)


def test_each_text_may_have_the_maximum_length():
    kind = similarity.Kind(Formulation(representation="cosine"))
    tokenizer = pico.tokenizer_of("bert")
    (window,) = kind.encode([TextExample(("the " * 300, "cells"), None)], ("score",), tokenizer, 16)
    owners = window.features["entities"]
    assert np.bincount(owners).tolist() == [0, 16, 3]


def encoded(tokenizer, pairs, scores=(1.0, 1.0)):
    kind = similarity.Kind(Formulation(representation="cosine"))
    examples = [TextExample(pair, score) for pair, score in zip(pairs, scores, strict=True)]
    windows = kind.encode(examples, ("score",), tokenizer, 128)
    return pad([window.features for window in windows], tokenizer.pad_token_id)


def saved(tmp_path, family="bert"):
    path = pico.save(family, tmp_path / "encoder", head="base")
    model = build_headed_encoder(open_checkpoint(str(path)), "cosine", ("score",), seed=0)
    set_score_range(model, [0.5, 4.0])
    model.save_pretrained(tmp_path / "out")
    pico.tokenizer_of(family).save_pretrained(tmp_path / "out")
    return model, open_checkpoint(str(tmp_path / "out"))


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_backend_scores_pairs_as_the_model_does(family, tmp_path):
    model, checkpoint = saved(tmp_path, family)
    batch = encoded(pico.tokenizer_of(family), PAIRS)
    with torch.no_grad():
        names = ("input_ids", "attention_mask", "entities")
        expected = model(**{name: torch.from_numpy(batch[name]) for name in names}).logits
    predictor = open_predictor(checkpoint, "torch")
    np.testing.assert_allclose(predictor.predict(batch), expected.numpy(), atol=2e-5)
    text = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    assert predictor.predict(text).shape == (*batch["input_ids"].shape, model.config.hidden_size)


@pytest.fixture
def calibrated(tmp_path):
    """A model, and calibration data of two pairs."""
    model, _ = saved(tmp_path)
    rows = "".join(f"{first}\t{second}\t{score}\n" for (first, second), score in zip(PAIRS, (1.5, 3.0), strict=True))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.tsv").write_text(f"sentence1\tsentence2\tscore\n{rows}")
    write_manifest(
        tmp_path / "out", task={"name": "similarity", "scheme": "score", "formulation": {"representation": "cosine"}}
    )
    checkpoint = open_checkpoint(str(tmp_path / "out"))
    request = CalibrationRequest(
        source=str(tmp_path / "data"),
        task="similarity",
        output_type=output_type_of(checkpoint),
        field="text",
        tokens=1_000,
        max_length=128,
        seed=0,
    )
    return model, read_calibration(request, checkpoint, model.encoder, pico.tokenizer_of("bert"))


def test_calibration_loss_is_that_of_the_head(calibrated):
    model, calibration = calibrated
    batch = encoded(pico.tokenizer_of("bert"), PAIRS, (1.5, 3.0))
    with torch.no_grad():
        found = sum(float(calibration.loss(model.encoder, each)) for each in calibration.batches)
        inputs = {name: torch.from_numpy(batch[name]) for name in ("input_ids", "attention_mask", "entities")}
        errors = model(**inputs).logits[:, 0] - torch.tensor([1.5, 3.0])
    assert calibration.examples == 2
    assert found == pytest.approx(float(errors.square().sum()), rel=1e-5)


def test_gradients_by_units_are_those_of_whole_pairs(calibrated):
    """Of a factor on one neuron in both texts: a difference of losses."""
    model, calibration = calibrated
    (batch,) = calibration.batches
    weight = model.encoder.encoder.layer[1].output.dense.weight
    original, step, errors = weight.data[:, 5].clone(), 1e-2, []
    for factor in (1 + step, 1 - step):
        weight.data[:, 5] = original * factor
        with torch.no_grad():
            states = calibration.run(model.encoder, batch)
            errors.append(model.head(states, batch["attention_mask"])[:, 0] - batch["targets"])
    weight.data[:, 5] = original
    slopes = (errors[0].square() - errors[1].square()) / (2 * step)
    for name, mean in {"taylor": slopes.abs().mean(), "fisher": slopes.square().mean()}.items():
        scores = open_importance(name).score(model.encoder, calibration)
        assert scores.neurons[1, 5].item() == pytest.approx(mean.item(), rel=0.02)
        assert {kind: tensor.shape for kind, tensor in scores.items().items()} == {
            "heads": (4, 4),
            "neurons": (4, 64),
            "hidden": (32,),
            "layers": (4,),
        }
