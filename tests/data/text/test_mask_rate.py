import pytest

from biosqueeze.data.text.mask_rate import MaskRate


def test_one_rate():
    rate = MaskRate.parse("0.15")
    assert rate == MaskRate(0.15)
    assert {rate.at(done) for done in (0.0, 0.5, 1.0)} == {rate.final} == {0.15}
    assert str(rate) == "0.15"


def test_five_steps_as_pubmedbert():
    rate = MaskRate.parse("0.05:0.25:5")
    shares = [0, 0.19, 0.2, 0.39, 0.4, 0.6, 0.79, 0.8, 0.999, 1]
    expected = [0.05, 0.05, 0.1, 0.1, 0.15, 0.2, 0.2, 0.25, 0.25, 0.25]
    assert [rate.at(done) for done in shares] == pytest.approx(expected)
    assert rate.final == 0.25
    assert MaskRate.parse(str(rate)) == rate


def test_a_rate_may_fall():
    assert [MaskRate.parse("0.3:0.1:2").at(done) for done in (0, 0.5)] == [0.3, 0.1]


@pytest.mark.parametrize("text", ["", "0", "1", "1.5", "-0.1", "nan", "0.1:0.2", "0.1:0.2:1", "0.1:0.2:x", "a:b:3"])
def test_what_is_no_rate(text):
    with pytest.raises(ValueError):
        MaskRate.parse(text)
