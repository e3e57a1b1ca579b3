"""What was found in the sources that the user has to know: fields and languages that they have not, and no articles."""

from collections.abc import Sequence

from biosqueeze.corpora.parts import PartReport
from biosqueeze.corpora.records import FIELDS
from biosqueeze.corpora.request import CorpusRequest
from biosqueeze.corpora.settings import CorpusSettings
from biosqueeze.data.records.hub import is_hub
from biosqueeze.data.text.hub_corpus import HubCorpus
from biosqueeze.errors import SqueezeError
from biosqueeze.progress import warn

_MOST_NAMED = 5


def check_fields(reports: Sequence[PartReport], request: CorpusRequest) -> None:
    """Check that some record of each source has the field with the text.

    Without --field it is a warning, and where records have nothing but what is read by its name they may be so.

    Raises:
        SqueezeError: no record of a source has the field that was given.
    """
    unread = list[str]()
    for path, names in [item for report in reports for item in report.lacking.items()]:
        own = HubCorpus.parse(path).field if is_hub(path) else None
        message = f"{path}: no record has the field {own or request.settings.field!r}, but {', '.join(names)}"
        if own or request.is_field_given:
            raise SqueezeError(f"{message}; name the field with the text, or leave this source out")
        if set(names).difference(FIELDS) and "body" in request.settings.parts:
            unread.append(f"{message}; title and abstract alone are read; name the field with the text with --field")
    _warn_of(unread, "sources have no record with the field of the text")


def warn_of_empty(reports: Sequence[PartReport]) -> None:
    """Warn of sources that hold no article."""
    empty = [path for report in reports for path in report.empty]
    found = [f"{path} holds no article; check its format, and that it is complete" for path in empty]
    _warn_of(found, "sources hold no article")


def warn_of_languages(reports: Sequence[PartReport], settings: CorpusSettings) -> None:
    """Warn of languages in the sources that are no codes."""
    names = sorted({name for report in reports for name in report.no_languages})
    if names:
        more = f" and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
        warn(
            f"--language {settings.language}: the sources have languages that are no codes such as en: "
            f"{', '.join(names[:_MOST_NAMED])}{more}; articles with these alone are kept"
        )


def _warn_of(messages: Sequence[str], what: str) -> None:
    for message in messages[:_MOST_NAMED]:
        warn(message)
    if len(messages) > _MOST_NAMED:
        warn(f"{len(messages):,} {what}")
