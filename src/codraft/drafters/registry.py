"""From a spec to a drafter. Past this point nothing asks for a mechanism's name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.spec import (
    DflashSpec,
    DrafterSpec,
    DsparkSpec,
    Eagle3Spec,
    ExternalSpec,
    MtpSpec,
    NgramSpec,
    Sampling,
    SuffixSpec,
)
from codraft.decode.drafter import Drafter
from codraft.drafters import dflash, dspark, eagle3, external, mtp
from codraft.drafters.beside import Beside
from codraft.drafters.ngram import NgramDrafter
from codraft.drafters.suffix import SuffixDrafter

BUILDERS: Mapping[type[DrafterSpec], Callable[[Any, Beside], Drafter]] = {
    NgramSpec: lambda spec, beside: NgramDrafter(spec),
    SuffixSpec: lambda spec, beside: SuffixDrafter(spec),
    ExternalSpec: external.build,
    Eagle3Spec: eagle3.build,
    MtpSpec: mtp.build,
    DflashSpec: dflash.build,
    DsparkSpec: dspark.build,
}
# What flags, configs and headers alone show to be impossible.
CHECKS: Mapping[type[DrafterSpec], Callable[[Any, Beside], object]] = {
    ExternalSpec: external.check,
    Eagle3Spec: eagle3.check,
    MtpSpec: mtp.check,
    DflashSpec: dflash.check,
    DsparkSpec: dspark.check,
}


def build(spec: DrafterSpec, beside: Beside) -> Drafter:
    """A drafter for a target; a pair that cannot work is a SpecError."""
    check_sampling(spec, beside.sampling)
    return BUILDERS[type(spec)](spec, beside)


def check(specs: Sequence[DrafterSpec], beside: Beside) -> None:
    """Refuse what needs no weights to be refused, before any work."""
    for spec in specs:
        check_sampling(spec, beside.sampling)
    for spec in specs:
        if type(spec) in CHECKS:
            CHECKS[type(spec)](spec, beside)


def check_sampling(spec: DrafterSpec, sampling: Sampling) -> None:
    """Refuse drawn drafts where the target is greedy."""
    if getattr(spec, "draft", "greedy") == "sample" and sampling.greedy:
        raise SpecError(
            f"drafter '{spec.name}': draft=sample needs --temperature above 0; greedy drafts fit greedy decoding"
        )
