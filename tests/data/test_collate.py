import numpy as np

from biosqueeze.data.collate import pad


def _array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_pads_on_the_right_each_key_with_its_own_value():
    features = [
        {"input_ids": _array(5, 6, 7), "labels": _array(-100, 1, 2), "words": _array(-1, 0, 1)},
        {"input_ids": _array(8), "labels": _array(3), "words": _array(4)},
    ]
    batch = pad(features, pad_token_id=9)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, 9]]
    assert batch["labels"].tolist() == [[-100, 1, 2], [3, -100, -100]]
    assert batch["words"].tolist() == [[-1, 0, 1], [4, -1, -1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}


def test_a_pad_id_inside_the_text_is_still_attended_to():
    batch = pad([{"input_ids": _array(0, 1)}, {"input_ids": _array(0)}], pad_token_id=0)
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]


def test_other_keys_are_filled_with_zero_and_scalars_stacked():
    features = [
        {"input_ids": _array(1, 2), "token_type_ids": _array(1, 1), "labels": np.int64(3) * np.ones((), np.int64)},
        {"input_ids": _array(1), "token_type_ids": _array(1), "labels": np.zeros((), np.int64)},
    ]
    batch = pad(features, pad_token_id=0)
    assert batch["token_type_ids"].tolist() == [[1, 1], [1, 0]]
    assert batch["labels"].tolist() == [3, 0]
