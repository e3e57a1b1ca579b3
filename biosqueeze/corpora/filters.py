"""Decide about one article by itself, and split what is kept into sentences."""

from collections import Counter
from dataclasses import dataclass, field

from biosqueeze.corpora.article import Article
from biosqueeze.corpora.decontamination import TestSentences
from biosqueeze.corpora.languages import is_language_code
from biosqueeze.corpora.settings import CorpusSettings
from biosqueeze.data.sentences import sentences_of

_MOST_NAMED = 3


@dataclass(frozen=True)
class KeptText:
    """The sentences of an article that passed the filters."""

    sentences: tuple[str, ...]
    words: int


@dataclass
class ArticleFilters:
    """The filters of a corpus, with the count of articles that each dropped."""

    settings: CorpusSettings
    against: TestSentences | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    contaminated: list[tuple[str, str]] = field(default_factory=list)
    """Id of each dropped article, and the place of the test sentence in it."""
    no_languages: set[str] = field(default_factory=set)
    """Some values of languages that are no codes, with --language; they do not count."""

    def apply(self, article: Article) -> KeptText | None:
        """Return the sentences of an article, or None where a filter drops it."""
        reason = self._by_facts(article)
        if reason is None:
            paragraphs = article.paragraphs(self.settings.parts)
            words = sum(paragraph.count(" ") + 1 for paragraph in paragraphs)  # they are folded
            reason = self._by_text(article, paragraphs, words)
            if reason is None:
                return KeptText(tuple(s for paragraph in paragraphs for s in split_sentences(paragraph)), words)
        self.dropped[reason] += 1
        return None

    def _by_facts(self, article: Article) -> str | None:
        if self.settings.drop_retracted and article.retracted:
            return "retracted"
        if self.settings.language and self._is_in_other_languages(article, self.settings.language):
            return "other language"
        return None

    def _is_in_other_languages(self, article: Article, wanted: str) -> bool:
        known = [language for language in article.languages if is_language_code(language)]
        if len(known) < len(article.languages) and len(self.no_languages) < _MOST_NAMED:
            self.no_languages.update(set(article.languages).difference(known))
        return bool(known) and wanted not in known

    def _by_text(self, article: Article, paragraphs: list[str], words: int) -> str | None:
        if not words:
            return "without text"
        if words < self.settings.least_words:
            return "too short"
        if self.settings.most_words is not None and words > self.settings.most_words:
            return "too long"
        place = self.against.find("\n".join(paragraphs)) if self.against else None
        if place is not None:
            self.contaminated.append((article.id, place))
            return "contains a test sentence"
        return None


def split_sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph, which has no line ends."""
    return [paragraph[start:end] for start, end in sentences_of(paragraph)]
