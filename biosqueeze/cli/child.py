"""`python -m biosqueeze.cli.child ARGUMENTS`: a `biosqueeze` command that a search or a benchmark has started."""

import signal

from biosqueeze.cli.main import main
from biosqueeze.system.parent import end_with_parent

if __name__ == "__main__":
    # Its parent interrupts it; what a shell has its background jobs ignore does not concern it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_parent()
    main()
