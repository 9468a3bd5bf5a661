"""From a spec to a drafter. Past this point nothing asks for a mechanism's name."""

from collections.abc import Callable, Mapping
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
# What flags and config files alone show to be impossible, where there is more than how drafts are made.
CHECKS: Mapping[type[DrafterSpec], Callable[[Any], None]] = {
    ExternalSpec: external.check_spec,
    DsparkSpec: dspark.check_spec,
}


def build(spec: DrafterSpec, beside: Beside) -> Drafter:
    """A drafter for a target; a pair that cannot work is a SpecError."""
    check_spec(spec, beside.sampling)
    return BUILDERS[type(spec)](spec, beside)


def check_spec(spec: DrafterSpec, sampling: Sampling) -> None:
    """Refuse what needs no weights to be refused."""
    if getattr(spec, "draft", "greedy") == "sample" and sampling.greedy:
        raise SpecError(
            f"drafter '{spec.name}': draft=sample needs --temperature above 0; greedy drafts fit greedy decoding"
        )
    if type(spec) in CHECKS:
        CHECKS[type(spec)](spec)
