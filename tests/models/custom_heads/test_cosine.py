"""Two texts are encoded separately, and padding contributes nothing."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.collate import pad
from biosqueeze.models.custom_heads.cosine import select_text
from biosqueeze.models.custom_heads.load import build_headed_encoder, load_headed_encoder, set_score_range
from biosqueeze.tasks import Formulation, similarity
from biosqueeze.tasks.encoding.sequences import TextExample
from tests import pico

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


def test_selected_text_is_left_aligned():
    ids = torch.tensor([[5, 6, 7, 8, 0], [9, 4, 3, 2, 1]])
    selected = torch.tensor([[False, False, True, True, False], [False, True, True, True, False]])
    moved, mask = select_text(ids, selected, padding=99)
    assert moved.tolist() == [[7, 8, 99], [4, 3, 2]]
    assert mask.tolist() == [[1, 1, 0], [1, 1, 1]]


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
