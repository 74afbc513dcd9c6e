"""python -m micrograd, which the console script `micrograd` is too: the commands are in micrograd/commands."""

import contextlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0, 2 after a user error, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        from micrograd.commands.tree import parsed
        from micrograd.errors import run
    except ImportError as error:  # another micrograd, which lies over this one
        from micrograd import neighbours

        print(f"error: {neighbours.explanation('micrograd') or error}", file=sys.stderr)
        return 2
    given = sys.argv[1:] if arguments is None else list(arguments)

    def command() -> int:
        options = parsed(given)
        return int(options.command(options))

    return run(command, "--traceback" in given)


if __name__ == "__main__":
    sys.exit(main())
