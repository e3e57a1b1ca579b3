"""The Click group: options dataclass to Click parameters, recipes, exit codes, streams. No torch."""
