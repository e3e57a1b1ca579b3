"""Leave out the records that the annotators of Prodigy rejected or ignored."""

from collections.abc import Sequence

from biosqueeze.data.records.record import DataRecord
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import note

_ANSWER = "answer"
_REFUSED = ("reject", "ignore")
_ANSWERS = ("accept", *_REFUSED, None)  # None where a record has none


def accepted_records(records: Sequence[DataRecord], label: str = "") -> list[DataRecord]:
    """Leave out the records that the annotators rejected or ignored, and log their number.

    Args:
        records: of one split.
        label: their column with the label. If that is "answer", or one of the answers is another than Prodigy's, no
            record is left out.

    Raises:
        SqueezeError: no record was accepted.
    """
    answers = [record.values.get(_ANSWER) for record in records]
    if label == _ANSWER or not all(answer in _ANSWERS for answer in answers):
        return list(records)
    accepted = [record for record, answer in zip(records, answers, strict=True) if answer not in _REFUSED]
    if records and not accepted:
        raise SqueezeError(f"{records[0].where}: every record has the answer {' or '.join(_REFUSED)}; accept some")
    if left_out := len(records) - len(accepted):
        which = f"{left_out:,} of {len(records):,} records"
        note(f"{records[0].where}: {which} are left out: their answer is {' or '.join(_REFUSED)}")
    return accepted
