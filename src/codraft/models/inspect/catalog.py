"""All rules, and the order in which the checks run."""

from collections.abc import Iterator

from codraft.core.inspection import SEVERITIES, Finding
from codraft.models.inspect import (
    attention,
    blocks,
    ends,
    features,
    keys,
    methods,
    mtp,
    positions,
    quantization,
    sizes,
    tokens,
    weights,
)
from codraft.models.inspect.pair import Pair, Rule

MODULES = (methods, weights, features, tokens, ends, attention, blocks, mtp, quantization, positions, sizes, keys)
RULES: dict[str, Rule] = {rule.code: rule for module in MODULES for rule in module.RULES}


def findings(pair: Pair) -> list[Finding]:
    """Everything that is wrong, doubtful or worth knowing, worst first."""
    return sorted(every(pair), key=lambda finding: SEVERITIES.index(finding.severity))


def every(pair: Pair) -> Iterator[Finding]:
    """Findings in the order of the checks."""
    for module in MODULES:
        yield from module.check(pair)
