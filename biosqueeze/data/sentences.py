"""Split a text into words and sentences, as character spans, with rules instead of a model."""

import re
from collections.abc import Iterator

CharacterSpan = tuple[int, int]  # start and end, the end exclusive

# A run of letters and digits with combining accents, or any other single character.
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*|\S")
# Ends of sentences with closing quotes and brackets after them, or a line end. A match begins with the first stop of a
# run: from each of them, a long run of dots would take minutes.
_STOP_IN_LINE = re.compile(r"(?P<stop>[.!?\u2026](?<![.!?\u2026]{2})[.!?\u2026]*+)[)\]}\"'\u2019\u201d\u00bb]*+(?=\s)")
_STOP = re.compile(rf"{_STOP_IN_LINE.pattern}|(?=\n)")
_LONGEST_ABBREVIATION = 6  # letters: approx, suppl, subsp
_BEFORE, _AHEAD = 80, 80  # characters before and after a stop that decide whether it ends a sentence
_CAPITALS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OPENERS = "([{\"'\u2018\u201c\u00ab\u00bf\u00a1<"
_MIXED = re.compile(r"[a-z]+-?[A-Z0-9]|[\u03b1-\u03c9]")

# Abbreviations that never end a sentence. Their first letter may be a capital.
_LEADING = re.compile(r"e\.g|i\.e|eg|ie|cf|vs|viz|figs?|eqs?|refs?|tab|vol|pp|approx|resp|dept|suppl|incl|esp|chr")
_TITLE = re.compile(r"Drs?|Prof|Mr|Mrs|Ms|St")
_BEFORE_NUMBER = re.compile(r"nos?|p|art")
# Abbreviations that may end a sentence; the following word decides.
_TRAILING = re.compile(r"al|ca|spp?|subsp|ssp|var|cv|str|inc|ltd|co|corp|jr|sr|etc|ph\.D|[A-Z]|(?:[^\W\d_]\.)+[^\W\d_]")
_STARTER = re.compile(
    r"(?:A|All|Although|An|And|As|At|Because|Both|But|By|Compared|Conclusions?|Despite|Each|For|From|Furthermore|Here|"
    r"However|If|In|It|Its|Methods|Moreover|No|Of|On|One|Our|Patients|Results|Since|Such|That|The|Their|Then|There|"
    r"These|They|This|Those|Three|Thus|To|Two|Using|We|When|Whereas|While|With)\b"
)


def words_of(text: str) -> list[CharacterSpan]:
    """Return the spans of the words: runs of letters and digits, and each other character except white space.

    Returns:
        (start, end) of each in order; they do not overlap, and contain every character except white space.
    """
    return [match.span() for match in _WORD.finditer(text)]


def sentences_of(text: str) -> list[CharacterSpan]:
    """Return the spans of the sentences, without outer white space.

    A sentence ends at a line end, and at a stop before white space, unless the stop belongs to an abbreviation, an
    initial or the number of a list, or the following text cannot begin a sentence.

    Returns:
        (start, end) of each in order; every word is within exactly one.
    """
    spans = []
    start = 0
    for end in [*_ends(text), len(text)]:
        part = text[start:end]
        if sentence := part.lstrip():
            first = end - len(sentence)
            spans.append((first, first + len(sentence.rstrip())))
        start = end
    return spans


def _ends(text: str) -> Iterator[int]:
    start = 0
    stops = _STOP if "\n" in text else _STOP_IN_LINE  # which is twice as fast
    for match in stops.finditer(text):
        end = match.end()
        is_end = match["stop"] is None or _is_plain_end(text, match.start(), end)
        before = slice(max(start, match.start() - _BEFORE), match.start())
        if is_end or _is_end(text[before], match["stop"], text[end : end + _AHEAD]):
            yield end
            start = end


def _is_plain_end(text: str, start: int, end: int) -> bool:
    """Return whether a stop follows a word that is too long for an abbreviation, and a capital follows the stop.

    This agrees with `_is_end`, and decides about most stops sooner.

    Args:
        text: the whole text.
        start: of the stop.
        end: after the stop and what closes it.
    """
    word = text[max(0, start - _LONGEST_ABBREVIATION - 1) : start]
    return len(word) > _LONGEST_ABBREVIATION and word.isalpha() and text[end + 1 : end + 2] in _CAPITALS


def _is_end(before: str, stop: str, after: str) -> bool:
    """Return whether a stop ends a sentence.

    Args:
        before: the sentence so far, or its end.
        stop: its characters.
        after: the beginning of the text after it.
    """
    following = after.lstrip()
    if not following or not _begins(following):
        return not following
    if stop != ".":
        return True
    token = _last(before)
    if _is_number(token, before, following) or _TITLE.fullmatch(token):
        return False
    plain = token[:1].lower() + token[1:]
    if _LEADING.fullmatch(plain) or (_BEFORE_NUMBER.fullmatch(plain) and following[0].isdecimal()):
        return False
    if _TRAILING.fullmatch(token) or _TRAILING.fullmatch(plain):
        return _STARTER.match(following.lstrip(_OPENERS)) is not None
    return True


def _is_number(token: str, before: str, following: str) -> bool:
    """Return whether the stop belongs to the number of a list, or to a decimal printed with a space (0. 7)."""
    return (token.isdecimal() and before.strip() == token) or (token[-1:].isdecimal() and following[0].isdecimal())


def _begins(following: str) -> bool:
    """Return whether a sentence can begin so: not with a small letter, except in symbols (p53, mTOR, alpha)."""
    bare = following.lstrip(_OPENERS)
    if not bare:
        return False
    return not bare[0].islower() or _MIXED.match(bare) is not None


def _last(before: str) -> str:
    """Return the last token before a stop, without opening quotes and brackets."""
    end = before[-40:]
    return "" if not end or end[-1].isspace() else end.split()[-1].lstrip(_OPENERS)
