"""micrograd cache: the compiled models that codegen.compile() keeps."""

import argparse
from typing import Any

from micrograd import cache


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "cache",
        description="codegen.compile() keeps the models that it has compiled, in $MICROGRAD_CACHE or in the user's "
        "cache folder. Without an option, says where, how many and how large they are.",
    )
    parser.set_defaults(command=run)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--path", action="store_true", help="print the folder")
    what.add_argument("--size", action="store_true", help="print the size of all models, in bytes")
    what.add_argument("--clear", action="store_true", help="remove all models")


def run(options: argparse.Namespace) -> int:
    place = cache.folder()
    if options.path:
        print(place)
    elif options.size:
        print(cache.size(place))
    elif options.clear:
        print(f"removed {_models(cache.clear(place))} from {place}")
    else:
        print(f"{place}: {_models(len(cache.models(place)))}, {cache.size(place):,} bytes")
    return 0


def _models(count: int) -> str:
    return f"{count} model{'s' * (count != 1)}"
