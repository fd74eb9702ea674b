"""`python -m duramen`: the same as the `duramen` command."""

from duramen.cli.main import main

if __name__ == "__main__":
    main()
