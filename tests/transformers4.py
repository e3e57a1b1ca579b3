"""Test with releases of transformers 4 that checkpoints of biosqueeze are read: `python -m tests.transformers4`.

Each release gets a virtual environment of its own, kept for the next time; torch is that of this interpreter.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

# The oldest with a tokenizers wheel for Python 3.11, one in between, and the last.
RELEASES = ("4.30.2", "4.41.2", "4.57.3")
_ROOT = Path.home() / ".cache" / "biosqueeze-transformers4"


def environment(release: str) -> Path:
    """Return the python of a release's environment, which is made at the first call."""
    directory = _ROOT / release
    python = directory / "bin" / "python"
    if not (directory / "complete").exists():
        venv.create(directory, with_pip=True, clear=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = directory / "lib" / version / "site-packages"
        # Releases up to 4.41 were built for numpy 1.
        wanted = [f"transformers=={release}", "numpy<2" if int(release.split(".")[1]) < 42 else "numpy"]
        subprocess.run([python, "-m", "pip", "install", "-q", "--ignore-installed", *wanted], check=True)
        # Appended to the path after the environment's own packages: torch, and what torch needs.
        (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (directory / "complete").touch()
    return python


def main(releases: tuple[str, ...]) -> int:
    """Run the tests with each release; return 1 if any failed."""
    failed = False
    for release in releases:
        python = environment(release)
        command = [sys.executable, "-m", "pytest", "tests/test_older_readers.py", "-k", "transformers_4", "-rN"]
        sys.stderr.write(f"transformers {release}\n")
        ran = subprocess.run(command, env=os.environ | {"BIOSQUEEZE_TRANSFORMERS4": str(python)}, check=False)
        failed |= ran.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or RELEASES))
