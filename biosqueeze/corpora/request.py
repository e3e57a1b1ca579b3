"""What corpus to build, and whether an interrupted run can go on."""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from biosqueeze.corpora.decontamination import find_test_files
from biosqueeze.corpora.settings import CorpusSettings
from biosqueeze.corpora.sources import SourceFile
from biosqueeze.files import read_json

REQUEST_FILE = "request.json"
_FORMAT = 3  # of the files below OUT.partial: a new number, and no run continues older ones


@dataclass(frozen=True)
class CorpusRequest:
    """What to build, and where."""

    files: tuple[SourceFile, ...]
    settings: CorpusSettings
    against: Path | None
    out: Path
    workers: int
    strict: bool
    is_field_given: bool  # or the default one

    @property
    def partial_out(self) -> Path:
        """Where the corpus is until it is complete."""
        return self.out.with_name(f"{self.out.name}.partial")

    @property
    def digest(self) -> str:
        """Hash of all that determines the corpus, beside the contents of the sources."""
        tests = [asdict(SourceFile.of(path)) for path in find_test_files(self.against)] if self.against else None
        facts = [_FORMAT, [str(file.path) for file in self.files], asdict(self.settings), tests]
        return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()


def can_resume(request: CorpusRequest) -> bool:
    """Return whether an interrupted run of the same request is in OUT.partial."""
    path = request.partial_out / REQUEST_FILE
    return path.is_file() and read_json(path).get("request") == request.digest


def discard(request: CorpusRequest) -> None:
    """Delete what is in OUT.partial; the request goes first, so that nobody resumes from the rest."""
    (request.partial_out / REQUEST_FILE).unlink(missing_ok=True)
    if request.partial_out.exists():
        shutil.rmtree(request.partial_out)
