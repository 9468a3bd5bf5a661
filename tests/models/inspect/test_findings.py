"""Every rule, both ways: it speaks where its cause is, and nowhere else."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from codraft.core.inspection import SEVERITIES, InspectionRecord
from codraft.models.inspect import handbook
from codraft.models.inspect.catalog import RULES

from tests.models.inspect import (
    cases_attention,
    cases_blocks,
    cases_features,
    cases_methods,
    cases_mtp,
    cases_runs,
    cases_tokens,
    cases_weights,
)
from tests.models.inspect.case import REFUSED, Bench, Case, NearMiss, found, grave
from tests.models.inspect.layouts import ALL

MODULES = (
    cases_methods,
    cases_weights,
    cases_features,
    cases_tokens,
    cases_attention,
    cases_blocks,
    cases_mtp,
    cases_runs,
)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]
NEAR_MISSES: list[NearMiss] = [case for module in MODULES for case in module.NEAR_MISSES]
# Notes of pairs that fit.
UNREAD, SMALL, DEPTH = "keys.ignored", "size.target", "depth.numbers"
NOTES = {
    "eagle3": {SMALL},
    "eagle3_modelopt": {"t2d.absent", SMALL},
    "eagle3_speculators": {SMALL},
    "eagle3_whole": {"head.borrowed", SMALL},
    "eagle3_deepspec": {SMALL},
    "eagle3_on_quantized": {"mtp.available", "quant.target", SMALL},
    "dflash": {SMALL, DEPTH},
    "dflash_speculators": {SMALL, DEPTH},
    "dspark": {"confidence.unused", UNREAD, SMALL, DEPTH},
    "dspark_modelopt": {"confidence.unused", UNREAD, SMALL, DEPTH},
    "dspark_specforge": {SMALL, DEPTH},
    "dspark_speculators": {"confidence.unused", UNREAD, SMALL, DEPTH},
    "peagle": {"method.other", SMALL},
    "eagle": {"method.other", SMALL},
    "dflash2": {"method.other", "dflash2.selector", "depth.numbers", SMALL},
    "domino": {"method.other", "depth.numbers", SMALL},
    "external": {SMALL},
    # Of a family that nobody gives such modules.
    "mtp": {REFUSED, SMALL, DEPTH},
    "mtp_namespace": {REFUSED, SMALL, DEPTH},
    "mtp_file": {SMALL, DEPTH},
    "mtp_quantized": {REFUSED, SMALL, DEPTH},
    "alone": set(),
}
# Model-Optimizer's DSpark has the class name of another graph; DeepSpec's layer ids are where two engines never look.
DESERVED = {"dspark_modelopt": ["block.alignment"], "domino": ["block.alignment"], "eagle3_deepspec": ["taps.engine"]}


def check_form(record: InspectionRecord) -> None:
    """Findings are whole, in one line, and worst first."""
    order = [SEVERITIES.index(finding.severity) for finding in record.findings]
    assert order == sorted(order)
    for finding in record.findings:
        assert finding.message
        assert "\n" not in finding.message
        assert finding.consequence == RULES[finding.code].consequence
        assert finding.severity == RULES[finding.code].severity or RULES[finding.code].varies
        assert finding.fix
        assert finding.evidence
        assert all(evidence.key and evidence.file for evidence in finding.evidence)
        json.dumps([evidence.value for evidence in finding.evidence], allow_nan=False)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Untouched pairs are inspected once for all cases. These are thousands of files: in memory where that can be."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield Bench(tmp_path_factory.mktemp("pairs"))
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Bench(Path(folder))


@pytest.mark.parametrize("name", ALL)
def test_a_pair_that_fits_gives_no_error_and_no_warning(bench: Bench, name: str) -> None:
    record = bench.base(name)

    check_form(record)
    assert grave(record) == DESERVED.get(name, [])
    assert not [finding for finding in found(record, REFUSED) if finding.severity != "note"]
    assert {finding.code for finding in record.findings if finding.severity == "note"} == NOTES[name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.name}")
def test_a_cause_gives_its_finding_and_no_other(bench: Bench, case: Case) -> None:
    record = bench.changed(case.base, case.changes)

    check_form(record)
    findings = found(record, case.code)
    assert len(findings) == 1, [(finding.code, finding.message) for finding in record.findings]
    (finding,) = findings
    assert finding.severity == case.severity
    assert case.words in finding.message
    assert case.key in [evidence.key for evidence in finding.evidence]
    own = [] if case.severity == "note" or case.code == REFUSED else [case.code]
    assert grave(record) == sorted([*own, *case.beside])
    if case.changes:
        assert not found(bench.base(case.base), case.code)


@pytest.mark.parametrize("case", NEAR_MISSES, ids=lambda case: f"{case.code}: {case.name}")
def test_what_looks_like_a_cause_and_is_none_gives_no_finding(bench: Bench, case: NearMiss) -> None:
    record = bench.changed(case.base, case.changes)

    assert case.code not in [finding.code for finding in record.findings]
    assert grave(record) == sorted(case.beside), [(finding.code, finding.message) for finding in record.findings]


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} == RULES.keys()


def test_no_two_cases_have_the_same_name() -> None:
    names = [*((case.code, case.name) for case in CASES), *((case.code, case.name) for case in NEAR_MISSES)]

    assert len(set(names)) == len(names)


def test_rules_are_whole() -> None:
    for code, rule in RULES.items():
        assert rule.code == code
        assert rule.title
        assert not rule.title.endswith(".")
        assert rule.consequence.endswith(".")
        assert rule.fix.endswith(".")


def test_the_page_of_findings_is_as_the_rules_are() -> None:
    """Written by `python -m codraft.models.inspect.handbook > docs/findings.md`."""
    page = Path(__file__).parents[3] / "docs" / "findings.md"

    assert page.read_text(encoding="utf-8") == handbook.page()
