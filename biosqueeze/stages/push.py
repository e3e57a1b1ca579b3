"""Upload a checkpoint to the Hugging Face Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar

from biosqueeze import card
from biosqueeze.checkpoint import Checkpoint, open_checkpoint
from biosqueeze.checkpoint_files import ARTEFACTS, GENERATOR, WEIGHT_PATTERNS, is_of_training, readable_files
from biosqueeze.errors import SqueezeError, UsageError, first_line
from biosqueeze.files.parsing import read_text
from biosqueeze.options import Argument, CheckpointArgument, Outcome, Plan, Purpose, StageOptions
from biosqueeze.progress import counted, note

PURPOSE = Purpose.DEPLOY
EXAMPLES = (
    ("Show what would be uploaded", "biosqueeze push ner-tiny me/ner-tiny --private --dry-run"),
    ("Quantize, and upload the result", "biosqueeze quantize ner-tiny | biosqueeze push - me/ner-tiny-int8"),
)
# Logs, and what only a training or a run in progress needs.
_UNPUBLISHED_NAMES = {"metrics.jsonl", "report.html", "runs"}
_UNPUBLISHED_ENDS = (".log", ".lock", ".partial", ".runs")
_WEIGHTS = (*WEIGHT_PATTERNS, "model*.safetensors.index.json", "pytorch_model*.bin.index.json")
_REFUSED = "check the name, and that the token may write (`hf auth whoami`)"
_UNREACHABLE = "check the network and HF_ENDPOINT, and repeat the command"


@dataclass(frozen=True, kw_only=True)
class Options(StageOptions):
    """Upload a checkpoint to the Hugging Face Hub.

    The repository is created if there is none. Weights and graphs of an earlier upload that the checkpoint lacks are
    deleted there. Training states, logs and hidden files are left out, and the examples of
    the model card name the repository. The address is logged; the path of the checkpoint is printed. Log in first with
    `hf auth login`, or set HF_TOKEN; HF_ENDPOINT names another Hub.
    """

    READS_RESULTS: ClassVar[bool] = True

    checkpoint: CheckpointArgument
    repo: Annotated[str, "Repository on the Hub: OWNER/NAME, or NAME for one of your own.", Argument()]
    private: Annotated[bool, "Make a new repository private."] = False


def plan(options: Options) -> Plan:
    """List the files that would be uploaded, with their sizes; nothing is sent."""
    _check_repo(options.repo)
    checkpoint = open_checkpoint(options.checkpoint, slim=True)
    files = _files(checkpoint)
    kind = "private" if options.private else "public"
    sizes = (f"{path.relative_to(checkpoint.path)}  {path.stat().st_size:,} bytes" for path in files)
    return Plan(
        out=None,
        steps=(
            f"upload {counted(len(files), 'file')} to {options.repo}, a {kind} repository if it is new:",
            *sizes,
            "and delete weights and graphs there that are not among them",
        ),
    )


def run(options: Options) -> Outcome:
    """Create the repository if there is none, and upload all files in one commit.

    Raises:
        SqueezeError: there is no token, or the Hub refuses it or cannot be reached.
        UsageError: the repository has no valid name.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    _check_repo(options.repo)
    checkpoint = open_checkpoint(options.checkpoint, slim=True)
    files = _files(checkpoint)
    if get_token() is None:
        raise SqueezeError("no token for the Hugging Face Hub was found; log in with `hf auth login`, or set HF_TOKEN")
    with _hub_errors(options.repo):
        api = HfApi()
        repo = api.create_repo(options.repo, private=options.private or None, exist_ok=True)
        additions = [
            CommitOperationAdd(str(path.relative_to(checkpoint.path)), _content(path, checkpoint, repo.repo_id))
            for path in files
        ]
        uploaded = {addition.path_in_repo for addition in additions}
        old = [name for name in api.list_repo_files(repo.repo_id) if _is_of_a_model(name) and name not in uploaded]
        deletions = [CommitOperationDelete(name) for name in old]
        api.create_commit(repo.repo_id, [*additions, *deletions], commit_message=f"Upload {checkpoint.short_name}")
    note(f"uploaded {counted(len(files), 'file')} of {checkpoint.name} to {repo.url}")
    if old:
        note(f"deleted there, from an earlier upload: {', '.join(old)}")
    return Outcome(checkpoint.path, {"url": str(repo.url), "repo": repo.repo_id, "files": len(files)})


def _check_repo(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined] # is exported at its first use

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"{repo!r} cannot name a repository; write OWNER/NAME, with letters, digits, - _ and .") from (
            error
        )


def _files(checkpoint: Checkpoint) -> list[Path]:
    """Return the files to publish."""
    return [path for path in readable_files(checkpoint.path) if not _is_unpublished(path.relative_to(checkpoint.path))]


def _is_unpublished(path: Path) -> bool:
    is_left = path.parts[0] in _UNPUBLISHED_NAMES or is_of_training(path.name)
    return is_left or any(part.startswith(".") or part.endswith(_UNPUBLISHED_ENDS) for part in path.parts)


def _is_of_a_model(name: str) -> bool:
    """Return whether a file of a repository has weights or a graph, of another model if it is not uploaded."""
    folder, slash, _ = name.partition("/")
    return folder in (*ARTEFACTS, GENERATOR) if slash else any(fnmatchcase(name, pattern) for pattern in _WEIGHTS)


def _content(path: Path, checkpoint: Checkpoint, repo: str) -> str | bytes:
    """Return the path of a file, or the text of the card, whose examples load the repository."""
    if path.relative_to(checkpoint.path) != Path(card.FILE_NAME) or checkpoint.manifest is None:
        return str(path)
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        return str(path)
    return card.renamed(text, repo, checkpoint.manifest, checkpoint.path).encode()


@contextmanager
def _hub_errors(repo: str) -> Iterator[None]:
    """Turn the errors of an upload into messages for the user."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined] # of its HTTP library

    try:
        yield
    except HfHubHTTPError as error:
        cause = " ".join((error.server_message or str(error).strip().splitlines()[0]).split())
        is_overloaded = error.response.status_code in (429, *range(500, 600))
        remedy = "repeat the command later" if is_overloaded else _REFUSED
        raise SqueezeError(f"the Hub refused the upload to {repo} ({cause}); {remedy}") from error
    except (TransportError, OSError, ValueError) as error:
        cause = first_line(error)
        raise SqueezeError(f"the upload to {repo} failed ({cause}); {_UNREACHABLE}") from error
    except (AttributeError, LookupError, TypeError) as error:  # of the library, which reads the answers unchecked
        cause = f"what answers is no Hub: {type(error).__name__}: {error}"
        raise SqueezeError(f"the upload to {repo} failed ({cause}); {_UNREACHABLE}") from error
