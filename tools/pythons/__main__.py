"""`python -m tools.pythons free-threaded [arguments of pytest]` and `python -m tools.pythons musl`."""

from __future__ import annotations

import sys

from tools.cross.builds import Failed
from tools.pythons import free_threaded, musl

KINDS = {"free-threaded": free_threaded.main, "musl": musl.main}


def main(arguments: list[str]) -> int:
    """Of both kinds where none is named. Raises Failed."""
    if arguments and arguments[0] not in KINDS:
        print(__doc__, file=sys.stderr)
        return 2
    chosen = arguments[:1] or list(KINDS)
    return max(KINDS[kind](arguments[1:]) for kind in chosen)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as error:
        sys.exit(f"error: {error}")
