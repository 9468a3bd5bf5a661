"""DSpark: a DFlash block whose slots are drafted in turn, each by its hidden state and the token before it [DSpark].

The backbone runs once for a block. Then a serial head adds to each slot's logits a bias by the token before
(`markov.py`), and a confidence head says how likely the draft is to be accepted. Slot j predicts the token after its
own position, so a block of B slots gives B drafts.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

import torch
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.core.record import read_record
from codraft.core.schema import DrafterInfo, TimingRecord
from codraft.core.spec import DsparkSpec, options_of
from codraft.decode.target import Ends
from codraft.drafters.beside import Beside
from codraft.drafters.block import BlockDrafter
from codraft.drafters.dflash import DFlashHead, prepared
from codraft.drafters.layers.attention import wide
from codraft.drafters.markov import ConfidenceHead, VanillaMarkov, markov_head
from codraft.drafters.schedule import CostTable, Cut, Schedule, Threshold
from codraft.drafters.weights import HeadFile, fill, load_head, open_fitting, picker_of
from codraft.formats.heads.head import Head

BIASES = ("markov_head.gate_proj.bias", "markov_head.joint_proj.bias")


class DSparkHead(DFlashHead):
    """See `BlockHead`. Without a Markov rank it drafts as DFlash does, in its own alignment."""

    def __init__(self, head: Head, ends: Ends, own: Collection[str] = ()) -> None:
        super().__init__(head, ends, own)
        markov, hidden = head.markov, head.geometry.hidden
        self.markov_head: VanillaMarkov | None = None
        self.confidence_head: ConfidenceHead | None = None
        self._confidence_reads_token = False
        if markov is None:
            return
        if markov.rank:
            V = head.vocab_size or 0
            bias = any(name in own for name in BIASES)
            rows = head.draft_vocab_size or V
            self.markov_head = markov_head(markov.kind, V, rows, markov.rank, hidden, bias=bias)
        if markov.confidence:
            self._confidence_reads_token = markov.confidence_with_markov and markov.rank > 0
            self.confidence_head = ConfidenceHead(hidden + (markov.rank if self._confidence_reads_token else 0))

    def begin(self, hidden_NH: Tensor) -> Tensor:
        """What the serial head remembers before the first draft."""
        return super().begin(hidden_NH) if self.markov_head is None else self.markov_head.begin(hidden_NH)

    def correct(
        self, logits_NV: Tensor, hidden_NH: Tensor, previous_N: Tensor, memory_Ns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits and bias added in float32 at least."""
        if self.markov_head is None:
            return logits_NV, memory_Ns
        bias_NV, memory_Ns = self.markov_head(previous_N, hidden_NH, memory_Ns)
        dtype = wide(logits_NV.dtype)
        return logits_NV.to(dtype) + bias_NV.to(dtype), memory_Ns

    def confidence(self, hidden_NH: Tensor, previous_N: Tensor) -> Tensor:
        """See `BlockHead.confidence`."""
        return self.judged(hidden_NH, None if self.markov_head is None else self.markov_head.markov_w1(previous_N))

    def judged(self, hidden_NH: Tensor, embedding_Nr: Tensor | None) -> Tensor:
        """[N] as `confidence`, given the row of W1 of the token before each draft."""
        if self.confidence_head is None:
            raise ValueError("this head has no confidence head")
        read_NC = hidden_NH
        if self._confidence_reads_token:
            assert embedding_Nr is not None
            read_NC = torch.cat((hidden_NH, embedding_Nr), dim=-1)
        confidence_N: Tensor = self.confidence_head(read_NC)
        return confidence_N


def check(spec: DsparkSpec, beside: Beside) -> HeadFile:
    """Refuse what config, headers and a timing record show to be impossible."""
    opened = open_fitting(spec.path, "dspark", beside)
    markov = opened.head.markov
    if (spec.confidence is not None or spec.timing is not None) and not (markov and markov.confidence):
        option = "confidence" if spec.confidence is not None else "timing"
        raise SpecError(
            f"drafter '{spec.name}': {option}= needs a confidence head, and {spec.path} has none; leave the option out"
        )
    timed = timing_of(spec)
    if timed is not None:
        CostTable.from_record(timed.points, spec.name)
    return opened


def build(spec: DsparkSpec, beside: Beside) -> BlockDrafter:
    """The drafter of a checkpoint, beside its target."""
    loaded = prepared(load_head(check(spec, beside)))
    target = beside.load()
    with torch.device("meta"):
        module = DSparkHead(loaded.head, target, loaded.tensors)
    fill(module, loaded, beside)
    module.rotary.to(target.device)
    options, timing = options_of(spec), timing_of(spec)
    cut: Cut | None = None if spec.confidence is None else Threshold(spec.confidence)
    if timing is not None:
        cut = Schedule(CostTable.from_record(timing.points, spec.name))
        options["timed"] = timed(timing)
        beside.notes.extend(f"drafter '{spec.name}': {doubt}" for doubt in doubts(spec, timing, beside.target))
    info = DrafterInfo(name=spec.name, mechanism=spec.mechanism, id=spec.path, options=options)
    return BlockDrafter(module, picker_of(spec.draft, loaded, beside), info, block=spec.block, cut=cut)


def timing_of(spec: DsparkSpec) -> TimingRecord | None:
    """The step times that a schedule goes by, None where none was asked for."""
    return None if spec.timing is None else read_record(Path(spec.timing), TimingRecord)


def doubts(spec: DsparkSpec, record: TimingRecord, target: str) -> Iterator[str]:
    """What makes a schedule by this record another one than it seems."""
    if record.target != target:
        yield (
            f"{spec.timing} was timed with {record.target}, and the target is {target}; profile it here, since these "
            "costs decide how much is verified"
        )
    named = sorted({name for point in record.points for name in point.t_draft_s})
    if spec.name not in named:
        yield (
            f"{spec.timing} has no drafting time of {spec.name} (timed: {', '.join(named) or 'none'}), and drafting "
            "counts as free; profile this drafter, or give it the name= that it has there"
        )


def timed(record: TimingRecord) -> str:
    """Of what model and for which passes a schedule's costs were timed; others are extrapolated from these."""
    contexts, tokens = [sorted({getattr(p, key) for p in record.points}) for key in ("S", "x")]
    return f"{record.target}, S = {contexts[0]}..{contexts[-1]}, x = {tokens[0]}..{tokens[-1]}"
