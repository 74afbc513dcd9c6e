"""Planted faults that cannot be planted any more, or a fuzzer that misses them. `make faults` plants them all."""

from __future__ import annotations

import pytest

from tools.faults import FAULTS
from tools.faults.__main__ import main
from tools.faults.csrc import NO_MEMORY
from tools.faults.fault import Fault
from tools.faults.planting import ROOT, judge, plant


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_an_edit_of_the_present_sources(fault):
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1
    assert fault.new != fault.old


def test_there_are_enough():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20
    assert {fault.file.split("/")[0] for fault in FAULTS} == {"codegen", "csrc", "micrograd"}


@pytest.mark.nightly
def test_a_fault_is_caught_and_no_fault_is_not(capsys):
    assert main(["--only", "gradient that forgets", "--count", "40"]) == 0
    assert "1 faults planted, 1 caught" in capsys.readouterr().out
    harmless = Fault("a comment", "csrc/ops.h", "What the generated definitions", "All that definitions")
    assert judge(harmless, 6).error == ""


@pytest.mark.slow
def test_a_fault_that_a_test_must_find():
    (found,) = (fault for fault in FAULTS if fault.name == "a shape with a hole in it")
    assert judge(found, 0).error.startswith("AssertionError")
    harmless = Fault("a comment", "csrc/views.h", "Checks one tensor and copies", "Copies", test=NO_MEMORY)
    assert judge(harmless, 0).error == ""
    nowhere = Fault("no test", "csrc/views.h", "Checks one tensor and copies", "Copies", test="tests/no_such_file.py")
    with pytest.raises(RuntimeError, match="no test: the test does not run"):
        judge(nowhere, 0)


def test_a_fuzzer_that_does_not_start_has_found_nothing():
    broken = Fault("no fuzzer", "tools/fuzz_compiler/__main__.py", "import argparse\n", "import no_such_module\n")
    with pytest.raises(RuntimeError, match="no fuzzer: the fuzzer itself fails"):
        judge(broken, 6)


def test_a_fault_that_cannot_be_planted_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"0 times in csrc/ops\.h, expected once: 'no such line'"):
        plant(Fault("none", "csrc/ops.h", "no such line", ""), tmp_path)
