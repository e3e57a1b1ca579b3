"""The keys of features and batches: the inputs of a model, its labels, and the outputs of a teacher. Torch-free."""

IGNORED = -100
"""The label id of what has no label; PyTorch's cross entropy leaves it out."""

INPUT_IDS = "input_ids"  # (length,) token ids
ATTENTION_MASK = "attention_mask"  # (batch, length) 1 on real tokens, 0 on padding
TOKEN_TYPE_IDS = "token_type_ids"  # (length,)

PAIR_LABEL = "pair_label"
"""() 0: the second segment follows the first; 1: it is from another document (NSP), or the two are swapped (SOP)."""

LABELS = "labels"  # (length,) or (): class ids, IGNORED without a label
TARGETS = "targets"  # (classes,) 0.0 or 1.0, or () a number; NaN without a label
STARTS = "starts"  # () token position of the first token of a span
ENDS = "ends"  # () token position of the last token of a span
WORDS = "words"  # (length,) index of the word that starts at a token, NO_WORD elsewhere; for decoding alone
NO_WORD = -1

TEACHER = "teacher."
"""The prefix of precomputed teacher outputs. Their rows are masked positions, real tokens or sequences, never padding;
batches join them along the first dimension."""

TEACHER_LOGITS = TEACHER + "logits"  # (rows, classes)
TEACHER_TOP_IDS = TEACHER + "ids"  # (rows, k), see objectives.TopK
TEACHER_TOP_LOG_PROBABILITIES = TEACHER + "log_probabilities"  # (rows, k)
TEACHER_REST = TEACHER + "rest"  # (rows,)
TEACHER_HIDDEN = TEACHER + "hidden."  # followed by the depth: (tokens, hidden size)
TEACHER_POSITIONS = "teacher_positions"  # (length,) 1 where a precomputed row of logits belongs to the token
