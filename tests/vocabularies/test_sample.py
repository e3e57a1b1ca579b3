"""Samples of text of any size, and the characters that are chosen from them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biosqueeze.errors import SqueezeError
from biosqueeze.vocabularies.alphabet import choose_alphabet
from biosqueeze.vocabularies.sample import TextSample, sampled


def lines_of(sample: TextSample) -> list[str]:
    return [line for batch in sample.batches() for line in batch]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text("ab\u00e9 \r\u2028", min_size=1, max_size=20), min_size=1, max_size=60),
    limit=st.integers(1, 400),
)
def test_samples_are_bounded_and_repeatable(lines: list[str], limit: int, tmp_path: Path) -> None:
    samples = []
    for _ in range(2):
        sample = TextSample(limit, 7, tmp_path)
        for line in lines:
            sample.add(f"{line}\n".encode())
        samples.append(lines_of(sample))
        assert sample.lines == len(samples[-1])
        assert sample.bytes == sum(len(f"{line}\n".encode()) for line in samples[-1])
        assert sample.bytes <= limit or sample.lines <= 1
        if sample.share == 1:
            assert samples[-1] == lines
        sample.close()
    assert samples[0] == samples[1]
    rest = iter(lines)
    assert all(line in rest for line in samples[0])  # in their order


def test_sample_covers_the_whole_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"line {number:05}\n" for number in range(20_000)))
    with sampled([str(corpus)], "text", 40_000, 0, tmp_path) as (sample, (source,)):
        numbers = [int(line.split()[1]) for line in lines_of(sample)]
    assert source.lines == 20_000
    assert source.bytes == corpus.stat().st_size
    by_quarter = [sum(number // 5000 == quarter for number in numbers) for quarter in range(4)]
    assert min(by_quarter) > 0.8 * len(numbers) / 4
    assert list(tmp_path.iterdir()) == [corpus]


def test_alphabet_keeps_frequent_characters() -> None:
    alphabet = choose_alphabet({"a": 5, "A": 2, "b": 3, "\u03b2": 1, "c": 3, " ": 90}, str.lower, 3)
    assert alphabet.characters == ("a", "b", "c")
    assert alphabet.dropped == 1
    assert alphabet.clean("Ab\u03b2c d") == "Ab c d"


def test_equally_frequent_characters_are_ordered() -> None:
    counts = dict.fromkeys("zyxw", 1)
    for _ in range(3):
        counts = dict(reversed(counts.items()))
        assert choose_alphabet(counts, str, 2).characters == ("w", "x")


def test_a_sample_without_a_line_is_explained(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"{'x' * 60}\n" * 3)
    message = "none of the 3 lines was drawn for a sample of 0.0001 MB.*give a larger --sample-mb"
    with pytest.raises(SqueezeError, match=message), sampled([str(corpus)], "text", 100, 5, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == [corpus]
