"""All rules, and the order in which the checks run."""

from collections.abc import Iterator
from dataclasses import replace

from codraft.core.inspection import SEVERITIES, Finding
from codraft.models.inspect import (
    attention,
    blocks,
    ends,
    features,
    files,
    keys,
    methods,
    mtp,
    positions,
    quantization,
    runs,
    sizes,
    tokens,
    weights,
)
from codraft.models.inspect.pair import Pair, Rule

MODULES = (
    methods, files, weights, features, tokens, ends, attention, blocks, mtp, quantization, positions, sizes, keys, runs,
)  # fmt: skip
RULES: dict[str, Rule] = {rule.code: rule for module in MODULES for rule in module.RULES}


def findings(pair: Pair) -> list[Finding]:
    """Everything that is wrong, doubtful or worth knowing, worst first; remarks on the engine asked for, or on all."""
    wanted = pair.question.engine
    found = sorted(every(pair), key=lambda finding: SEVERITIES.index(finding.severity))
    if wanted is None:
        return found
    return [replace(one, engines={k: v for k, v in one.engines.items() if k == wanted}) for one in found]


def every(pair: Pair) -> Iterator[Finding]:
    """Findings in the order of the checks."""
    broken = False
    for module in MODULES:
        if broken and module is runs:
            continue
        for finding in module.check(pair):
            broken = broken or finding.severity == "error"
            yield finding
