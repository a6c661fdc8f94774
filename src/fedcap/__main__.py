"""`python -m fedcap` is the command line, for where `fedcap` is not on the path."""

from fedcap.cli import main

if __name__ == "__main__":
    main()
