"""Every pair of target and drafter that is compared, and the cases: a pair at a D, in a dtype.

A pair says how its files are made; the desk makes them when a case first asks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codraft.core.spec import DflashSpec, DrafterSpec, Eagle3Spec, ExternalSpec, MtpSpec, NgramSpec, SuffixSpec
from codraft.decode.hf.load import load_card
from codraft.formats.borrowed import whole
from codraft.formats.shipped import shipped

from engine_tests import heads, mtp_targets

if TYPE_CHECKING:
    from engine_tests.desk import Desk

LIMIT_ROUNDED = 16
Weights = Literal["none", "random", "overfitted", "trained"]
# Depths that heads are trained for: a serial head goes on beyond, a block of another size is another draft.
TAUGHT = {"eagle3": (3,), "mtp": (3,), "dflash": (3, 6)}


@dataclass(frozen=True, slots=True)
class Made:
    """The files of a pair: what codraft builds its drafter from, and what vLLM is told."""

    target: Path
    spec: DrafterSpec
    engine: Mapping[str, Any]
    mend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter. Random heads draft nothing that stands, so few tokens show all they can show."""

    mechanism: str
    layout: str
    weights: Weights
    make: Callable[["Desk", "Pair"], Made]
    prompts: Literal["text", "ids"] = "text"
    limit: int = 40

    @property
    def name(self) -> str:
        """For people and for files."""
        parts = (self.mechanism, self.layout, "" if self.weights == "none" else self.weights)
        return "-".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Case:
    """A pair at one D. In bfloat16 the two sides round differently everywhere, so only AL is held beside AL."""

    pair: Pair
    D: int
    dtype: Literal["float32", "bfloat16"] = "float32"

    @property
    def limit(self) -> int:
        """Tokens written for each prompt. The first time that bfloat16 rounds to another token, a head's streams end to
        be those that it learned."""
        return self.pair.limit if self.dtype == "float32" else min(self.pair.limit, LIMIT_ROUNDED)

    @property
    def name(self) -> str:
        """For people and for files."""
        return f"{self.pair.name}-D{self.D}" + ("" if self.dtype == "float32" else f"-{self.dtype}")


def ngram(n_min: int, n_max: int) -> Pair:
    """vLLM's prompt lookup takes the earliest copy."""
    spec = NgramSpec(n_min=n_min, n_max=n_max, occurrence="earliest")
    engine = {"method": "ngram", "prompt_lookup_min": n_min, "prompt_lookup_max": n_max}
    return Pair("ngram", f"{n_min}to{n_max}", "none", lambda desk, _: Made(desk.target, spec, engine))


def suffix() -> Pair:
    """Trees over prompt and output; outputs of other requests are remembered once they end, as both do."""
    spec = SuffixSpec(max_cached_requests=0)
    engine = {"method": "suffix", "suffix_decoding_max_cached_requests": 0}
    return Pair("suffix", "", "none", lambda desk, _: Made(desk.target, spec, engine))


def external(desk: "Desk", pair: Pair) -> Made:
    """A copy of the target without one of its layers and with noise in its matrices."""
    folder = desk.shortened(dropped=(15,), noise=0.02)
    return Made(desk.target, ExternalSpec(path=str(folder)), {"method": "draft_model", "model": str(folder)})


def head(desk: "Desk", pair: Pair) -> Made:
    """A head for the embedded target, random or overfitted."""
    plan = heads.PLANS[pair.layout]()
    folder = desk.folder(pair)
    taught = desk.lessons_of(desk.target, pair) if pair.weights == "overfitted" else []
    # A few of the streams' tokens stay unknown to a reduced vocabulary.
    spoken = sorted({int(t) for lesson in taught for t in lesson.tokens_T[lesson.first :]})
    ids = heads.draft_ids(plan, [token for i, token in enumerate(spoken) if i % 20])
    heads.write(plan, folder, heads.random_tensors(plan), ids, desk.embedding())
    kind = Eagle3Spec if plan.method == "eagle3" else DflashSpec
    made = Made(desk.target, kind(path=str(folder)), {"method": plan.method, "model": str(folder)}, plan.mend)
    if pair.weights == "overfitted":
        module = desk.taught(made, pair, TAUGHT[pair.mechanism]).head
        state = {name: module.state_dict()[name] for name in plan.shapes}
        heads.write(plan, folder, state, ids, desk.embedding())
    return made


def from_repository(desk: "Desk", pair: Pair) -> Made:
    """A drafter that codraft trained for the embedded target, as it lies in the repository; what is stored without its
    embedding is served whole."""
    folder = whole(Path(shipped()[pair.mechanism]), lambda name: load_card(name).folder)
    kind = {"eagle3": Eagle3Spec, "dflash": DflashSpec, "external": ExternalSpec}[pair.mechanism]
    method = "draft_model" if pair.mechanism == "external" else pair.mechanism
    mend = ("context_norm",) if pair.mechanism == "dflash" else ()
    return Made(desk.target, kind(path=str(folder)), {"method": method, "model": str(folder)}, mend)


def mtp(desk: "Desk", pair: Pair) -> Made:
    """A small target with a module inside, random or overfitted."""
    folder = mtp_targets.write(pair.layout, desk.folder(pair))
    family = mtp_targets.FAMILIES[pair.layout]
    known = folder if family.drafter is None else mtp_targets.drafter_folder(folder)
    spec = MtpSpec(path=None if known == folder else str(known))
    made = Made(folder, spec, {"method": "mtp"}, family.mend)
    if pair.weights == "overfitted":
        taught = desk.taught(made, pair, TAUGHT[pair.mechanism]).head
        for place in {folder, known}:
            mtp_targets.put_back(taught, known, place)
    return made


def both(mechanism: str, layout: str, make: Callable[["Desk", Pair], Made], **keys: Any) -> tuple[Pair, Pair]:
    """A layout with random weights, and overfitted."""
    over = Pair(mechanism, layout, "overfitted", make, **keys)
    return replace(over, weights="random", limit=16), over


EXTERNAL = Pair("external", "", "none", external, limit=32)
SAFEAILAB = both("eagle3", "safeailab", head)
SPECULATORS_LLAMA = both("eagle3", "speculators-llama", head)
SPECULATORS_QWEN3 = both("eagle3", "speculators-qwen3", head)
ZLAB = both("dflash", "zlab", head)
ZLAB_SLIDING = both("dflash", "zlab-sliding", head)
ZLAB_NORMS = both("dflash", "zlab-norms", head)
SPECULATORS_DFLASH = both("dflash", "speculators-dflash", head)
SERVED = ("external", "eagle3", "dflash")
TRAINED = [Pair(mechanism, "", "trained", from_repository, limit=32) for mechanism in SERVED if mechanism in shipped()]
MTP = {name: both("mtp", name, mtp, prompts="ids") for name in mtp_targets.FAMILIES}

CASES = [
    *(Case(ngram(2, 4), D) for D in (1, 3, 6)),
    Case(ngram(1, 3), 3),
    Case(suffix(), 6),
    Case(EXTERNAL, 3),
    *(Case(pair, D) for pair in TRAINED for D in (1, 3, 6)),
    *(Case(pair[0], 3) for pair in (SAFEAILAB, SPECULATORS_LLAMA, SPECULATORS_QWEN3)),
    *(Case(pair[0], 3) for pair in (ZLAB, ZLAB_SLIDING, ZLAB_NORMS, SPECULATORS_DFLASH)),
    *(Case(pair[0], 3) for pair in MTP.values()),
    Case(SAFEAILAB[1], 3),
    Case(SPECULATORS_LLAMA[1], 3),
    Case(SPECULATORS_QWEN3[1], 3),
    *(Case(ZLAB[1], D) for D in (3, 6)),
    Case(SPECULATORS_DFLASH[1], 3),
    *(Case(pair[1], D) for pair in MTP.values() for D in (3, 6)),
    Case(MTP["glm4-moe"][1], 1),
    *(Case(pair, 3, "bfloat16") for pair in (*TRAINED[-1:], MTP["glm4-moe"][1], MTP["mimo"][1])),
]
