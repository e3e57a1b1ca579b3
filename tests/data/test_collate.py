import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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


def _with_teacher_outputs(lengths: list[int], rows: list[int], width: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "input_ids": np.arange(length),
            "teacher.ids": rng.integers(0, 99, size=(count, width)).astype(np.uint16),
            "teacher.rest": rng.random(count).astype(np.float16),
            "teacher.hidden.3": rng.random((length, width)).astype(np.float16),
        }
        for length, count in zip(lengths, rows, strict=True)
    ]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=6), st.integers(1, 5))
def test_teacher_outputs_are_joined_without_padding(sizes: list[tuple[int, int]], width: int):
    lengths, rows = map(list, zip(*sizes, strict=True))
    features = _with_teacher_outputs(lengths, rows, width)
    batch = pad(features, pad_token_id=0)
    for name in ("teacher.ids", "teacher.rest", "teacher.hidden.3"):
        assert [row.tolist() for row in batch[name]] == [row.tolist() for f in features for row in f[name]]
        assert batch[name].dtype == features[0][name].dtype
        assert batch[name].shape[1:] == features[0][name].shape[1:]
    # The states lie in the order in which a mask over the padded batch would take them.
    assert len(batch["teacher.hidden.3"]) == batch["attention_mask"].sum()
    assert batch["input_ids"].shape == (len(sizes), max(lengths))


def test_teacher_outputs_follow_the_order_of_the_batch():
    features = _with_teacher_outputs([2, 5], [1, 2], 3)
    forward, backward = pad(features, 0), pad(features[::-1], 0)
    assert backward["teacher.ids"].tolist() == forward["teacher.ids"][[1, 2, 0]].tolist()
