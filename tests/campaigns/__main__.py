"""Run the campaigns: thousands of command lines that are killed, starved, fed with damaged files or misspelt.

    python -m tests.campaigns                                  # all of them, about an hour on two cores
    python -m tests.campaigns kills --share 0.1 --jobs 1       # a tenth of one
    python -m tests.campaigns kills --only "finetune ner:12"   # one experiment, as a failure names it

`--json FILE` receives the summary with all failures; the table is printed. Exit code 1: something failed. Linux only.
"""

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.campaigns import sandbox
from tests.campaigns.plan import CAMPAIGNS, Experiment, Request
from tests.campaigns.summary import Finding, Summary


def main() -> int:
    """Prepare the experiments, run them in forks, and print the table."""
    arguments = _arguments()
    torch.set_num_threads(1)
    sandbox.adopt_orphans()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaigns-") as scratch:
        request = Request(Path(scratch), arguments.share, arguments.seed)
        names = arguments.campaigns or list(CAMPAIGNS)
        experiments = [one for name in names for one in CAMPAIGNS[name](request)]
        part, parts = (int(number) for number in arguments.part.split("/"))
        chosen = [one for one in experiments[part - 1 :: parts] if arguments.only in (None, one.label)]
        gc.freeze()
        findings = _in_processes(chosen, arguments.jobs, Path(scratch))
    summary = Summary(chosen, findings, arguments.share, arguments.seed, time.monotonic() - started)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(summary.as_dict(), indent=1) + "\n", encoding="utf-8")
    print(summary.as_text())
    return int(any(finding.failures for finding in findings))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("campaigns", nargs="*", choices=[*CAMPAIGNS, []], help="default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the experiments; 1 is all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--part", default="1/1", help="1/4 to 4/4 are the four parts of a run")
    parser.add_argument("--only", help="the label of one experiment")
    parser.add_argument("--json", help="file for the summary")
    return parser.parse_args()


def _in_processes(experiments: Sequence[Experiment], jobs: int, scratch: Path) -> list[Finding]:
    """Run the experiments in `jobs` forks of this process."""
    files = [scratch / f"findings-{rank}.jsonl" for rank in range(jobs)]
    for rank, file in enumerate(files):
        if os.fork() == 0:
            code = 1
            try:
                sandbox.end_with_parent()
                sandbox.adopt_orphans()
                _write_findings(experiments[rank::jobs], file)
                code = 0
            finally:
                os._exit(code)
    codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in files]
    if any(codes):
        sys.exit("a process of the campaign failed")
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [Finding(**json.loads(line)) for line in lines]


def _write_findings(experiments: Sequence[Experiment], file: Path) -> None:
    with file.open("w", encoding="utf-8") as out:
        for experiment in experiments:
            outcome = experiment.run()
            failures = [(failure.kind, failure.detail) for failure in outcome.failures]
            finding = Finding(experiment.campaign, experiment.label, str(experiment.what), outcome.met, failures)
            out.write(json.dumps(vars(finding)) + "\n")
            out.flush()
            for kind, detail in failures:
                print(f"{finding.campaign} {finding.label}: {kind}: {detail[:300]} [{finding.what}]", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
