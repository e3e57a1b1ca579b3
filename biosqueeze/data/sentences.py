"""Words and sentences of a text as character spans: pure functions, no model, the same on every machine."""

import re
from collections.abc import Iterator

Span = tuple[int, int]

# A run of letters and digits, with the accents that are signs of their own, or any other sign alone.
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*|\S")
# Ends of sentences, with the quotes and brackets that close behind them; or a line end.
_STOP = re.compile(r"(?P<stop>[.!?\u2026]+)[)\]}\"'\u2019\u201d\u00bb]*(?=\s)|(?=\n)")
_AHEAD = 80  # characters that are looked at behind a stop
_OPENERS = "([{\"'\u2018\u201c\u00ab\u00bf\u00a1<"
_TOKEN = re.compile(r"\S*\Z")
_MIXED = re.compile(r"[a-z]+-?[A-Z0-9]|[\u03b1-\u03c9]")

# Never at a sentence's end: something always follows. Their first letter may be a capital.
_LEADING = re.compile(r"e\.g|i\.e|eg|ie|cf|vs|viz|figs?|eqs?|refs?|tab|vol|pp|approx|resp|dept|suppl|incl|esp|chr")
_TITLE = re.compile(r"Drs?|Prof|Mr|Mrs|Ms|St")
_BEFORE_NUMBER = re.compile(r"nos?|p|art")
# At a sentence's end now and then: what follows decides.
_TRAILING = re.compile(r"al|ca|spp?|subsp|ssp|var|cv|str|inc|ltd|co|corp|jr|sr|etc|ph\.D|[A-Z]|(?:[^\W\d_]\.)+[^\W\d_]")
_STARTER = re.compile(
    r"(?:A|All|Although|An|And|As|At|Because|Both|But|By|Compared|Conclusions?|Despite|Each|For|From|Furthermore|Here|"
    r"However|If|In|It|Its|Methods|Moreover|No|Of|On|One|Our|Patients|Results|Since|Such|That|The|Their|Then|There|"
    r"These|They|This|Those|Three|Thus|To|Two|Using|We|When|Whereas|While|With)\b"
)


def words_of(text: str) -> list[Span]:
    """Spans of the words: runs of letters and digits, and every other sign that is no white space alone.

    Returns:
        (start, end) of each in order; they do not overlap, and hold every character but white space.
    """
    return [match.span() for match in _WORD.finditer(text)]


def sentences_of(text: str) -> list[Span]:
    """Spans of the sentences, without white space around them.

    A line end ends a sentence. So does a stop before white space, unless what stands before it is an
    abbreviation, an initial or the number of a list, or what follows does not begin as sentences do.

    Returns:
        (start, end) of each in order; every word lies within exactly one.
    """
    spans = []
    start = 0
    for end in [*_ends(text), len(text)]:
        part = text[start:end]
        if part.strip():
            spans.append((start + len(part) - len(part.lstrip()), start + len(part.rstrip())))
        start = end
    return spans


def _ends(text: str) -> Iterator[int]:
    start = 0
    for match in _STOP.finditer(text):
        end = match.end()
        if match["stop"] is None or _is_end(text[start : match.start()], match["stop"], text[end : end + _AHEAD]):
            yield end
            start = end


def _is_end(before: str, stop: str, after: str) -> bool:
    """Whether a stop ends a sentence.

    Args:
        before: the sentence so far.
        stop: the sign or signs.
        after: the text that follows, or its beginning.
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
    """Whether the stop is that of a list's number, or of a decimal that was printed with a space (0. 7)."""
    return (token.isdecimal() and before.strip() == token) or (token[-1:].isdecimal() and following[0].isdecimal())


def _begins(following: str) -> bool:
    """Whether a sentence may begin so: no small letter, unless it is one of a symbol (p53, mTOR, alpha)."""
    bare = following.lstrip(_OPENERS)
    if not bare:
        return False
    return not bare[0].islower() or _MIXED.match(bare) is not None


def _last(before: str) -> str:
    """The last token before a stop, without what opens before it."""
    match = _TOKEN.search(before[-40:])
    return (match[0] if match else "").lstrip(_OPENERS)
