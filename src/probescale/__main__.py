"""Run the command line with `python -m probescale`."""

from probescale.cli import main

if __name__ == "__main__":
    main()
