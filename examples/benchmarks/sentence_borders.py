"""Quality and speed of sentence splitters on abstracts whose sentences were divided by hand.

    pip install pysbd syntok blingfire
    python sentence_borders.py JNLPBA/train.tsv JNLPBA/devel.tsv JNLPBA/test.tsv

JNLPBA is made of the GENIA corpus, whose sentences were divided by its annotators. The files have a token on each line
and a blank line after each sentence. The tokens are joined to text again by rules, ten sentences in a text. A border is
the place between two sentences of a text. Speed is text per second of CPU, one thread.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from biosqueeze.data.sentences import sentences_of

SENTENCES = 10
Splitter = Callable[[str], Iterable[str]]
_CLOSING = set(".,;:?!)]}%'")
_OPENING = set("([{")


def read_sentences(path: Path) -> Iterator[str]:
    """Yield the sentences of a column file as text."""
    tokens: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-DOCSTART-"):
            continue
        if line.strip():
            tokens.append(line.split("\t")[0])
        elif tokens:
            yield joined(tokens)
            tokens = []
    if tokens:
        yield joined(tokens)


def texts_of(path: Path) -> list[tuple[str, ...]]:
    """Return the sentences of a column file, some in a text."""
    sentences = tuple(read_sentences(path))
    return [sentences[first : first + SENTENCES] for first in range(0, len(sentences), SENTENCES)]


def joined(tokens: Sequence[str]) -> str:
    """Join tokens with the white space that ordinary text has between them."""
    text = tokens[0]
    for before, token in pairwise(tokens):
        text += token if token in _CLOSING or before in _OPENING else f" {token}"
    return text


def borders(sentences: Iterable[str]) -> set[int]:
    """Return where sentences end, except the last, in characters that are not white space."""
    ends, total = set(), 0
    for sentence in sentences:
        total += len(re.sub(r"\s", "", sentence))
        ends.add(total)
    return ends - {total}


def splitters() -> dict[str, Splitter]:
    """Return the splitters that are installed."""
    found: dict[str, Splitter] = {
        "biosqueeze": lambda text: [text[start:end] for start, end in sentences_of(text)],
        "a stop, white space, a capital": lambda text: re.split(r"(?<=[.!?])\s+(?=[A-Z])", text),
    }
    if find_spec("pysbd"):
        import pysbd

        found["pysbd"] = pysbd.Segmenter(language="en", clean=False).segment
    if find_spec("syntok"):
        from syntok import segmenter

        def syntok_sentences(text: str) -> list[str]:
            return [
                "".join(token.spacing + token.value for token in sentence)
                for paragraph in segmenter.process(text)
                for sentence in paragraph
            ]

        found["syntok"] = syntok_sentences
    if find_spec("blingfire"):
        import blingfire

        found["blingfire"] = lambda text: blingfire.text_to_sentences(text).split("\n")
    return found


def row(name: str, split: Splitter, texts: Sequence[tuple[str, ...]]) -> str:
    """Split all texts and format precision, recall and F1 of the borders, and the speed."""
    right = wrong = missed = size = 0
    seconds = 0.0
    for sentences in texts:
        text = " ".join(sentences)
        started = time.process_time()
        found = list(split(text))
        seconds += time.process_time() - started
        gold, predicted = borders(sentences), borders(found)
        right += len(gold & predicted)
        wrong += len(predicted - gold)
        missed += len(gold - predicted)
        size += len(text.encode())
    precision, recall = right / (right + wrong), right / (right + missed)
    f1 = 2 * precision * recall / (precision + recall)
    return f"| {name} | {100 * precision:.2f} | {100 * recall:.2f} | {100 * f1:.2f} | {size / 1e6 / seconds:.2f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, help="number of texts; default: all")
    options = parser.parse_args()
    texts = [text for path in options.files for text in texts_of(path)][: options.texts]
    print(f"{sum(map(len, texts)):,} sentences in {len(texts):,} texts\n")
    print("| splitter | precision | recall | F1 | MB/s |\n|---|---|---|---|---|")
    for name, split in splitters().items():
        print(row(name, split, texts), flush=True)


if __name__ == "__main__":
    main()
