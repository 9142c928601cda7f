"""`python -m ccal`, also under torchrun."""

from ccal.cli import main

if __name__ == "__main__":
    main()
