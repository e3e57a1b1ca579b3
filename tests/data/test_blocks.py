from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biosqueeze.data.blocks import Frame, encode_corpus
from biosqueeze.errors import SqueezeError
from tests import pico

FAMILIES = ("bert", "roberta")


@cache
def _tokenizer(family: str):
    return pico.tokenizer_of(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_of_short_lines_equal_the_tokenizers_own_encoding(family):
    tokenizer, lines = _tokenizer(family), list(pico.sentences(50))
    blocks = encode_corpus(lines, tokenizer, 128)
    assert len(blocks) == 50
    for index, line in enumerate(lines):
        assert blocks[index].tolist() == tokenizer(line)["input_ids"]
        assert blocks.lengths[index] == len(blocks[index])
    assert blocks[-1].dtype == np.int64
    assert blocks[-1].tolist() == blocks[49].tolist()
    with pytest.raises(IndexError):
        blocks[50]


@pytest.mark.parametrize("family", FAMILIES)
@given(
    lines=st.lists(st.text(alphabet="abc the.é\u200b", max_size=80), min_size=1, max_size=6),
    max_length=st.integers(3, 20),
)
def test_nothing_is_lost_and_nothing_is_too_long(family, lines, max_length):
    tokenizer = _tokenizer(family)
    whole = tokenizer(["cells", *lines], add_special_tokens=False)["input_ids"]
    blocks = encode_corpus(["cells", *lines], tokenizer, max_length)
    frame = Frame.of(tokenizer)
    cut = [blocks[i][len(frame.before) : -len(frame.after)] for i in range(len(blocks))]
    assert np.concatenate(cut).tolist() == [i for ids in whole for i in ids]
    assert blocks.lengths.max() <= max_length
    assert blocks.lengths.min() > len(frame)
    assert len(blocks) == sum(-(-len(ids) // (max_length - len(frame))) for ids in whole)


def test_progress_is_told_every_line():
    class Told:
        done = 0

        def advance(self, amount: int = 1) -> None:
            self.done += amount

    told = Told()
    encode_corpus(iter(["the cells"] * 2500), _tokenizer("bert"), 16, told)
    assert told.done == 2500


def test_a_long_line_is_no_reason_to_warn(caplog, capsys):
    encode_corpus(["cells " * 1000], _tokenizer("bert"), 16)
    assert "longer than" not in caplog.text + capsys.readouterr().err


def test_lines_without_a_token():
    with pytest.raises(SqueezeError, match="single token"):
        encode_corpus(["\u200b", "\ufeff"], _tokenizer("bert"), 16)


def test_max_length_without_room():
    with pytest.raises(SqueezeError, match="at least 3"):
        encode_corpus(["cells"], _tokenizer("bert"), 2)
