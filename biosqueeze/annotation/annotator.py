"""A checkpoint that answers records: posed, encoded, predicted in batches of like length, described, in their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from biosqueeze.backends import Predictor
from biosqueeze.backends.predict import predict_all
from biosqueeze.data.documents import Annotation, Document, pubtator_lines
from biosqueeze.data.incoming import Incoming
from biosqueeze.errors import SqueezeError
from biosqueeze.tasks import Task, Window

_RECORD = "the record"  # what the kinds call it in their errors


@dataclass
class Item:
    """A record on its way: with an example until it is answered, unless there is a fault."""

    incoming: Incoming
    example: Any = None
    answer: Mapping[str, Any] | None = None
    fault: str | None = None

    def pubtator(self) -> str:
        """The text with the entities that were found."""
        entities = (self.answer or {}).get("entities", ())
        found = tuple(Annotation(one["start"], one["end"], one["type"], one["text"]) for one in entities)
        document = Document(str(self.incoming.id), self.example.text, found, self.incoming.where)
        return "".join(f"{line}\n" for line in pubtator_lines(document))

    def blame(self, error: SqueezeError) -> None:
        """Note what is wrong with it, and where it stands."""
        said, where = str(error), self.incoming.where
        self.example = None
        self.fault = said if said.startswith(where) else f"{where}: {said.removeprefix(_RECORD).lstrip(': ')}"


@dataclass(frozen=True)
class Posed:
    """Some records, and the windows of the good ones among them."""

    items: list[Item]
    windows: Sequence[Window]

    @property
    def good(self) -> list[Item]:
        """Those that can be answered."""
        return [item for item in self.items if item.fault is None]

    @property
    def first_fault(self) -> str | None:
        """What is wrong with the first bad one, if there is one."""
        return next((item.fault for item in self.items if item.fault is not None), None)

    def until_fault(self) -> "Posed":
        """Those before the first bad one."""
        items = list(takewhile(lambda item: item.fault is None, self.items))
        return Posed(items, [window for window in self.windows if window.example < len(items)])


@dataclass(frozen=True)
class Annotator:
    """A loaded model with its task."""

    task: Task
    labels: tuple[str, ...]
    tokenizer: Any
    predictor: Predictor
    max_length: int
    batch_size: int

    def pose(self, records: Sequence[Incoming], *, as_document: bool = False) -> Posed:
        """What the model would read; a record that cannot be posed has a fault.

        Args:
            records: some of them.
            as_document: each must be a text that can be written as PubTator.
        """
        items = [self._item(incoming, as_document) for incoming in records]
        good = [item for item in items if item.fault is None]
        try:
            windows = self._encode(good)
        except SqueezeError:
            self._find_bad(good)
            windows = self._encode([item for item in good if item.fault is None])
        return Posed(items, windows)

    def answer(self, posed: Posed) -> None:
        """Give every good record its answer."""
        features = [window.features for window in posed.windows]
        logits = predict_all(self.predictor, features, self.tokenizer.pad_token_id, self.batch_size)
        good = posed.good
        examples = [item.example for item in good]
        answers = self.task.describe(posed.windows, logits, examples, self.labels) if good else []
        for item, answer in zip(good, answers, strict=True):
            item.answer = answer

    def _item(self, incoming: Incoming, as_document: bool) -> Item:
        item = Item(incoming, fault=incoming.fault)
        if item.fault is None:
            try:
                item.example = self.task.pose(incoming.values)
                if as_document:
                    _check_document(incoming, item.example.text)
            except SqueezeError as error:
                item.blame(error)
        return item

    def _encode(self, items: Sequence[Item]) -> Sequence[Window]:
        return self.task.encode([item.example for item in items], self.labels, self.tokenizer, self.max_length)

    def _find_bad(self, items: Sequence[Item]) -> None:
        for item in items:
            try:
                self._encode([item])
            except SqueezeError as error:
                item.blame(error)


def _check_document(incoming: Incoming, text: str) -> None:
    if incoming.id is None or not text or "\0" in text:
        raise SqueezeError('PubTator wants an "id" and a "text" without NUL signs; add them, or leave --format out')
    list(pubtator_lines(Document(str(incoming.id), text, (), incoming.where)))
