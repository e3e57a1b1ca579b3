"""How fast the text of a pretraining is masked and paired, by one process.

    python pretraining_sources.py CHECKPOINT CORPUS

CHECKPOINT has the tokenizer, and CORPUS a sentence on each line and a blank line after each document. Each row is the
best of three passes over the same 3,000 items, in CPU time: the masking alone, and all of an item (reading, pairing,
special tokens, masking, the generator of its random numbers). `tokens` are those of the items, special tokens included.
"""

import argparse
import time
from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import numpy as np

from biosqueeze.checkpoint import open_checkpoint
from biosqueeze.data.text.mask_rate import MaskUnit
from biosqueeze.models.loading.load import load_tokenizer
from biosqueeze.pretraining.data import load_pretraining_data
from biosqueeze.pretraining.data_settings import PretrainingDataSettings

ITEMS, PASSES = 3000, 3
PAIRS: tuple[Literal["nsp", "sop"] | None, ...] = (None, "nsp", "sop")
UNITS: tuple[MaskUnit, ...] = ("piece", "word", "span")


def best_seconds(run: Callable[[], object]) -> float:
    """Return the least CPU time of some passes."""
    taken = []
    for _ in range(PASSES):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def rates(source: Any) -> tuple[float, float, float]:
    """Return tokens per second of the masking alone, and items and tokens per second of whole items."""
    drawn = source.draw(0, np.random.default_rng(0))
    items = np.random.default_rng(1).permutation(drawn)[:ITEMS].tolist()
    features = [source.features(item, np.random.default_rng([0, item])) for item in items]
    blocks = [(block["input_ids"], block.get("segments")) for block in features]
    tokens = sum(int((ids != source.pad_token_id).sum()) for ids, _ in blocks)
    rng = np.random.default_rng(2)
    alone = best_seconds(lambda: [source.masking(ids, rng, 0.15, parts) for ids, parts in blocks])
    whole = best_seconds(lambda: [source.features(item, np.random.default_rng([0, item])) for item in items])
    return tokens / alone, len(items) / whole, tokens / whole


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("corpus")
    given = parser.parse_args()
    tokenizer = load_tokenizer(open_checkpoint(given.checkpoint))
    print("| text | length | masked | masking, M tokens/s | items/s | M tokens/s |\n|---|---|---|---|---|---|")
    for pairs, length, unit in product(PAIRS, (128, 512), UNITS):
        settings = PretrainingDataSettings(corpus=(given.corpus,), pairs=pairs, mask_unit=unit)
        alone, items, tokens = rates(load_pretraining_data(settings, tokenizer, length).source)
        row = f"| {pairs or 'packed'} | {length} | {unit} | {alone / 1e6:.1f} | {items:,.0f} | {tokens / 1e6:.1f} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
