"""`python -m codraft`."""

from codraft.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
