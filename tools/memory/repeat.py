"""A pytest plugin that runs each test several times and counts references and blocks of memory in between.

As CPython's own `regrtest -R`: some rounds fill caches, and a leak is what every later round leaves behind, so that a
test is repeated until three rounds left nothing, or a hundred times. The fixtures of a test are set up once. Named in
the end, and not repeated, is a test that cannot be run again, one that starts processes, in which nothing is counted,
and one that loads extension modules or other libraries itself, rather than by a fixture: CPython keeps each of them for
ever.
"""

from __future__ import annotations

import builtins
import gc
import sys
from array import array
from importlib import import_module
from itertools import pairwise
from statistics import median

import pytest

WARM_UP = 3
QUIET_ROUNDS = 3  # that leave nothing behind; in one of them something else may have been freed
MAX_ROUNDS = 100  # the interpreter has lists of objects to use again, of up to 80
repeated: list[str] = []
not_repeated: dict[str, str] = {}  # and why
# What a test did that makes repeating it useless, by event of sys.addaudithook().
loaded: list[str] = []  # extension modules, alone their import has a path, and other libraries
started: list[str] = []  # processes


def on_event(event: str, arguments: tuple[object, ...]) -> None:
    if (event == "import" and arguments[1] is not None) or event == "ctypes.dlopen":
        loaded.append(event)
    elif event in ("subprocess.Popen", "os.fork"):
        started.append(event)


sys.addaudithook(on_event)


def references() -> int:
    """To what outlives every test and would not be noticed as a block: None, small ints, exceptions, all that nn has.

    sys.gettotalrefcount() does not serve: it never hears of what a release build gives back, as NumPy's wheel is one.
    """
    return sum(map(sys.getrefcount, SHARED))


nn = import_module("nn")
SHARED: list[object] = [None, True, False, ..., NotImplemented, (), "", b"", *range(-5, 257), *map(chr, range(128))]
SHARED += [nn, *vars(nn).values(), *map(type, vars(nn).values())]
SHARED += [found for found in vars(builtins).values() if isinstance(found, type)]
COUNTERS = {"blocks": sys.getallocatedblocks, "references": references}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Runs a test in place of pytest."""
    test, given = pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    started.clear()
    test(**given)
    if started:
        not_repeated[pyfuncitem.nodeid] = "it starts processes"
        return True
    loaded.clear()  # now, as Python's own may have been loaded at first
    # Memory for the numbers is there before the first of them is taken.
    counted = {name: array("q", [0] * (MAX_ROUNDS + 1)) for name in COUNTERS}
    gc.collect()
    gc.freeze()  # what is there now is left out of the collections to come, which makes them quick
    quiet = dict.fromkeys(COUNTERS, 0)  # rounds that left nothing behind
    try:
        for run in range(-WARM_UP, MAX_ROUNDS + 1):
            if run > -WARM_UP:
                nn.reset(1)  # the model that a test begins with
                test(**given)
            if loaded:
                not_repeated[pyfuncitem.nodeid] = "it loads libraries"
                return True
            gc.collect()
            for name, count in COUNTERS.items() if run >= 0 else ():
                counted[name][run] = count()
                quiet[name] += run > 0 and counted[name][run] <= counted[name][run - 1]
            if min(quiet.values()) >= QUIET_ROUNDS:
                break
    except (Exception, pytest.fail.Exception, pytest.skip.Exception):
        not_repeated[pyfuncitem.nodeid] = "it cannot be run again"
        return True
    repeated.append(pyfuncitem.nodeid)
    for name in [name for name, rounds in quiet.items() if rounds < QUIET_ROUNDS]:
        # The median, as in one of them the interpreter may have made or freed something for itself.
        grown = median(after - before for before, after in pairwise(counted[name]))
        pytest.fail(f"each run leaves {name} behind: {grown:g}", pytrace=False)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    watched = " and ".join(COUNTERS)
    terminalreporter.write_line(f"{len(repeated)} tests repeated, counting {watched}")
    for name, reason in not_repeated.items():
        terminalreporter.write_line(f"not repeated, as {reason}: {name}")
