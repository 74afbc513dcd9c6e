"""micrograd report RUN: one page about a run that `micrograd train --log RUN` has written."""

import argparse
from pathlib import Path
from typing import Any

from micrograd.commands.inputs import data_options, is_model
from micrograd.commands.run_log import SETTINGS, TABLE, WEIGHTS, findings, read_settings, recipe_of
from micrograd.errors import UsageError
from micrograd.files import identity, write_whole


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        parents=[data_options()],
        description="Write one self-contained HTML page about a run: curves, confusion matrix, the most wrong digits, "
        "the first layer's weights, calibration, and the loops of the model. It takes matplotlib "
        "(pip install 'micrograd-nn[report]').",
    )
    parser.set_defaults(command=report)
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder that `micrograd train --log RUN` has written")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (default: RUN/report.html)")


def report(options: argparse.Namespace) -> int:
    output = options.output if options.output is not None else options.run / "report.html"
    if identity(output) in {identity(options.run / name) for name in (SETTINGS, TABLE, WEIGHTS)}:
        raise UsageError(f"--output must be no file of the run, got {output}")
    if is_model(output, recipe_of(read_settings(options.run / SETTINGS), options.run).model):
        raise UsageError(f"--output must not be the model itself, got {output}")
    try:
        from micrograd.commands import report_page
    except ImportError as error:
        raise ImportError("the report needs matplotlib: pip install 'micrograd-nn[report]'") from error
    page = report_page.html(findings(options))
    write_whole(output, page.encode(), is_synced=False)
    print(f"report of {options.run}: {output}")
    return 0
