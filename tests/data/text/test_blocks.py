import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from biosqueeze.data.sequence_frame import SequenceFrame
from biosqueeze.data.text import blocks
from biosqueeze.data.text.blocks import Frame, encode_lines, room_within
from biosqueeze.errors import SqueezeError
from tests import pico

FAMILIES = ("bert", "roberta")


def _sequences(lines, tokenizer, room: int) -> list[list[int]]:
    found = []
    for part in encode_lines(lines, tokenizer, room):
        assert part.sizes.sum() == len(part.ids)
        found += [ids.tolist() for ids in np.split(part.ids, np.cumsum(part.sizes)[:-1]) if len(ids)]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_framed_short_lines_equal_the_encoding_of_the_tokenizer(family):
    tokenizer, lines = pico.shared_tokenizer(family), list(pico.sentences(50))
    frame = Frame.of(tokenizer)
    framed = [frame.around(np.array(ids)) for ids in _sequences(lines, tokenizer, 126)]
    assert [ids.tolist() for ids in framed] == [tokenizer(line)["input_ids"] for line in lines]
    assert framed[0].dtype == np.int64
    assert len(frame) == 2


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None)
@given(
    lines=st.lists(st.text(alphabet="abc the.é\u200b", max_size=80), min_size=1, max_size=6),
    room=st.integers(1, 18),
)
def test_no_token_is_lost_and_no_sequence_too_long(family, lines, room):
    tokenizer = pico.shared_tokenizer(family)
    whole = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in lines]
    cut = [ids[start : start + room] for ids in whole for start in range(0, len(ids), room)]
    assert _sequences(lines, tokenizer, room) == cut


def test_lines_are_encoded_as_a_stream(monkeypatch):
    monkeypatch.setattr(blocks, "LINES_AT_ONCE", 10)
    drawn = []
    lines = (drawn.append(i) or "the cells" for i in range(25))
    parts = []
    for part in encode_lines(lines, pico.shared_tokenizer("bert"), 16):
        parts.append((part.texts, len(drawn)))
    assert parts == [(10, 10), (10, 20), (5, 25)]


def test_a_long_line_is_not_a_warning(caplog, capsys):
    # A tokenizer warns once: of a shared one, another test may have seen the warning.
    list(encode_lines(["cells " * 1000], pico.tokenizer_of("bert"), 14))
    assert "longer than" not in caplog.text + capsys.readouterr().err


def test_lines_without_a_token():
    (part,) = encode_lines(["\u200b", "\ufeff"], pico.shared_tokenizer("bert"), 14)
    assert (part.texts, len(part.ids), len(part.sizes)) == (2, 0, 0)


def test_max_length_without_room():
    frame = Frame.of(pico.shared_tokenizer("bert"))
    assert room_within(3, frame) == 1
    with pytest.raises(SqueezeError, match="give --max-length 3 or more"):
        room_within(2, frame)


def test_a_tokenizer_that_drops_letters_is_explained():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"[PAD]": 0, "b": 1}, [])))
    for find in (Frame.of, lambda tokenizer: SequenceFrame.of(tokenizer, 2)):
        with pytest.raises(SqueezeError, match="drops the letter a"):
            find(tokenizer)
