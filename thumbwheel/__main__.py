"""The command `thumbwheel`, also as `python -m thumbwheel`."""

import gc
import sys


def main() -> int:
    # Modules stay: to look for garbage among them takes a sixth of the time they load in.
    gc.disable()
    from thumbwheel.cli import main as command  # noqa: PLC0415

    gc.enable()
    return command()


if __name__ == "__main__":
    sys.exit(main())
