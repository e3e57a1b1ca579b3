"""Warnings of many chunks: printed once, and their counts added up."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from biosqueeze.annotation.tally import Tally
from biosqueeze.data.records.input_record import InputRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import CountedWarning


@dataclass
class Chunk:
    """Counts of a chunk; its records are numbers."""

    records: list
    bad: int = 0
    first_error: str | None = None
    entities: int | None = None
    valid: list = field(init=False)

    def __post_init__(self):
        self.records = [SimpleNamespace(record=InputRecord("", {"id": number})) for number in self.records]
        self.valid = self.records[self.bad :]


def cut(count, total):
    return CountedWarning(count, "sentences are too long", total, f": {count} at their end; see --max-length")


def test_message_of_a_counted_warning():
    assert str(cut(1200, 3000)) == "1,200 of 3,000 sentences are too long: 1200 at their end; see --max-length"
    assert str(CountedWarning(2, "passages are short")) == "2 passages are short"


def test_counts_are_added_up_over_chunks(capsys):
    tally = Tally()
    tally.add(Chunk([1, 2, 3], bad=1, first_error="x"), [cut(1, 2), "plain", CountedWarning(5, "passages are short")])
    tally.add(Chunk([4, 5]), [])
    tally.add(Chunk([6, 7, 8]), [cut(3, 3), "plain"])
    tally.conclude("input")
    err = capsys.readouterr().err
    assert err.count("warning:") == 3
    assert err.count("sentences are too long: 1 at their end") == err.count("warning: plain") == 1
    assert "in all, 4 sentences are too long\n" in err
    assert "passages are short\n" in err and "in all, 5" not in err
    assert "8 records, 1 of them bad (the first: x)" in err


@pytest.mark.parametrize(
    ("records", "seconds", "speed"), [(5000, 4, "1,250"), (10, 1, "10"), (5, 2, "2.5"), (1, 15, "0.067"), (0, 1, "0")]
)
def test_slow_records_are_not_rounded_to_none(records, seconds, speed, monkeypatch):
    tally = Tally(records=records, _started=0.0)
    monkeypatch.setattr("biosqueeze.annotation.tally.time", SimpleNamespace(monotonic=lambda: seconds))
    assert tally.speed == f"{speed} records/s"


def test_sums_are_of_the_run_that_continues(capsys):
    tally = Tally(records=4, before=4)
    tally.add(Chunk([5, 6]), [cut(1, 2)])
    tally.add(Chunk([7, 8]), [cut(1, 2)])
    tally.conclude("input")
    assert "in this run, 2 sentences are too long\n" in capsys.readouterr().err


def test_no_good_record_is_a_failure():
    tally = Tally()
    tally.add(Chunk([1], bad=1, first_error="in:1: not JSON"), [])
    with pytest.raises(SqueezeError, match="every record is bad; the first: in:1: not JSON"):
        tally.conclude("in")


@pytest.mark.parametrize(("entities", "is_said"), [((0, 0), True), ((0, 1), False), ((None, None), False)])
def test_records_without_any_entity_are_suspicious(entities, is_said, capsys):
    tally = Tally()
    for found in entities:
        tally.add(Chunk(list(range(8)), entities=found), [])
    tally.conclude("input")
    assert ("no entity was found in any of 16 records" in capsys.readouterr().err) is is_said
