"""Run the command line as `python -m deltadex`."""

from .cli import main

if __name__ == "__main__":
    main()
