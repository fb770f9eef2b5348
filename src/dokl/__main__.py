"""`python -m dokl` is `dokl`."""

from dokl.cli import main

if __name__ == "__main__":
    main()
