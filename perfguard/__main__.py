"""`python -m perfguard`."""

from perfguard.cli import main

if __name__ == "__main__":
    main()
