"""`python -m biosqueeze` is the same as `biosqueeze`."""

from biosqueeze.cli.main import main

if __name__ == "__main__":
    main()
