"""One file per subcommand: a frozen `Options`, `plan(options)` and `run(options)`. Stages never import each other."""
