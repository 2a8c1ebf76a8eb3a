"""`python -m perdure.cli`: the command `perdure` where no script is installed."""

from perdure.cli.main import main

if __name__ == "__main__":
    main()
