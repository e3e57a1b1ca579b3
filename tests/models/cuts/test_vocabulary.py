"""Models of another vocabulary: rows of kept tokens, means of former rows, and outputs as before."""

import copy
from typing import Any

import pytest
import torch

from biosqueeze.errors import SqueezeError
from biosqueeze.models.cuts import vocabulary
from biosqueeze.models.cuts.vocabulary import cut_config, moved_config, named_ids, with_rows
from tests import pico

SIZE = 60
HEADS = [(family, head) for family in pico.FAMILIES for head in ("mlm",)]
HEADS += [("bert", "token-classification"), ("electra", "discriminator"), ("distilbert", "base")]


def model_of(family: str, head: str = "mlm", **changes: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pico, "LAYERS", pico.ROWS[family].layers_exported)
        patch.setitem(pico.ROWS, family, copy.copy(pico.ROWS[family]))
        settings = {**pico.ROWS[family].settings, **changes}
        object.__setattr__(pico.ROWS[family], "settings", settings)
        return pico.model_of(family, SIZE, head)


def kept_of(config: Any) -> list[int]:
    return sorted({*named_ids(config), *range(7, SIZE, 3)})


@torch.no_grad()
def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    output = model(input_ids=ids, attention_mask=(ids != model.config.pad_token_id).long())
    return output[0]


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_kept_tokens_have_the_same_outputs(family: str, head: str) -> None:
    model = model_of(family, head)
    kept = kept_of(model.config)
    config = cut_config(model.config, kept)
    smaller, difference = with_rows(model, config, [[number] for number in kept])
    assert difference < 1e-5 and smaller.config.vocab_size == len(kept) < SIZE
    assert torch.equal(smaller.get_input_embeddings().weight, model.get_input_embeddings().weight[kept])
    old, new = model.config.pad_token_id, config.pad_token_id
    words = [place for place, number in enumerate(kept) if number != old][:9]
    ids = torch.tensor([words, [*words[:5], *[new] * (len(words) - 5)]])
    expected = logits(model, torch.tensor(kept)[ids])
    expected = expected[..., kept] if head == "mlm" else expected
    torch.testing.assert_close(logits(smaller, ids), expected, atol=1e-5, rtol=1e-4)
    assert kept[new] == old
    tied = smaller.config.tie_word_embeddings and head == "mlm" and family != "mobilebert"
    if tied:
        assert smaller.get_output_embeddings().weight is smaller.get_input_embeddings().weight


def test_untied_decoder_and_its_bias_are_cut() -> None:
    model = model_of("bert", tie_word_embeddings=False)
    assert model.cls.predictions.decoder.weight is not model.get_input_embeddings().weight
    kept = kept_of(model.config)
    smaller, _ = with_rows(model, cut_config(model.config, kept), [[number] for number in kept])
    assert torch.equal(smaller.cls.predictions.decoder.weight, model.cls.predictions.decoder.weight[kept])
    assert torch.equal(smaller.cls.predictions.bias, model.cls.predictions.bias[kept])


def test_ids_in_the_config_are_renumbered() -> None:
    config = pico.config_of("modernbert", SIZE)
    config.pad_token_id, config.cls_token_id, config.eos_token_id = 50, 51, [52, 3]
    config.sep_token_id = SIZE + 40  # left from another vocabulary
    changed = cut_config(config, [2, 3, 50, 51, 52])
    assert (changed.pad_token_id, changed.cls_token_id, changed.eos_token_id) == (2, 3, [4, 1])
    assert changed.bos_token_id == 0 and changed.vocab_size == 5 and changed.sep_token_id is None
    assert set(named_ids(config)) == {2, 3, 50, 51, 52, SIZE + 40}
    assert named_ids(pico.config_of("roberta", SIZE)) == (0, 1, 2)


def test_new_rows_are_means_of_former_ones() -> None:
    model = model_of("mobilebert")
    sources = [[0], [7, 9, 9], [], [11], []] + [[number] for number in range(SIZE - 5)]
    config = moved_config(model.config, SIZE, {"pad_token_id": 0})
    moved, difference = with_rows(model, config, sources, seed=1)
    assert difference < 1e-5
    former, state = model.state_dict(), moved.state_dict()
    for name, axis in (
        ("mobilebert.embeddings.word_embeddings.weight", 0),
        ("cls.predictions.dense.weight", 1),
        ("cls.predictions.bias", 0),
    ):
        table, rows = former[name].movedim(axis, 0), state[name].movedim(axis, 0)
        torch.testing.assert_close(rows[1], (table[7] + 2 * table[9]) / 3)
        assert torch.equal(rows[3], table[11])
        assert torch.isfinite(rows).all() and not torch.equal(rows[2], rows[4])
    again, _ = with_rows(model, config, sources, seed=1)
    other, _ = with_rows(model, config, sources, seed=2)
    embeddings = [each.get_input_embeddings().weight for each in (moved, again, other)]
    assert torch.equal(embeddings[0], embeddings[1]) and not torch.equal(embeddings[0], embeddings[2])


def test_a_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = vocabulary._rows
    monkeypatch.setattr(vocabulary, "_rows", lambda *arguments: right(*arguments).roll(1, 0))
    model = model_of("bert")
    kept = kept_of(model.config)
    with pytest.raises(SqueezeError, match="changing the vocabulary changes the outputs"):
        with_rows(model, cut_config(model.config, kept), [[number] for number in kept])
