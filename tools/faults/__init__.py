"""Single faults, each of which somebody might make: planted one after the other, each must be found.

By the fuzzer, or by the test that is named: for how a call ends, what Programs do not show, or a test finds sooner.

    python -m tools.faults                 plant all of them; a table of what found each; exit code 1 if one survives
    python -m tools.faults --only "tail"   those whose name has that text

A fault is an edit of one line of the compiler or of csrc/, in a copy of the sources.
"""

from __future__ import annotations

from tools.faults import compiler, csrc, schedule

FAULTS = [*compiler.FAULTS, *schedule.FAULTS, *csrc.FAULTS]
