"""External drafting: a causal language model of its own, sharing the target's vocabulary.

Replay needs one ordinary causal pass: fed with the stream's own tokens, the draft at distance i from any anchor is the
model's prediction at that position, whatever the anchor. Live, the cache only crops: what it wrote for accepted drafts
is already right. Where two embeddings are padded to different sizes, only the ids both know can be drafted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo
from codraft.core.spec import MAX_DEPTH, MECHANISMS, ExternalSpec, Sampling, options_of
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.forced import forced_pass
from codraft.decode.hf.load import keep_layers, load_model, read_config, resolve_folder
from codraft.decode.target import Cache, Tap, Target
from codraft.drafters.beside import Beside
from codraft.drafters.pick import Drafts, Picker
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.heads.detect import detect
from codraft.formats.vocab import difference, read_vocab


class ExternalDrafter:
    """State is the drafter's cache and the tokens committed to each sequence."""

    taps: ClassVar[tuple[Tap, ...]] = ()
    prefix_stable: ClassVar[bool] = True

    def __init__(self, spec: ExternalSpec, model: Target, vocab_size: int, sampling: Sampling) -> None:
        self.model = model
        self.picker = Picker(spec.draft, sampling, vocab_size)
        self.info = DrafterInfo(name=spec.name, mechanism="external", id=spec.path, options=options_of(spec))
        self._cache: Cache | None = None
        self._streams: list[int] = []
        self._prompt_lengths: list[int] = []
        self._committed: list[list[int]] = []
        self._fed: list[list[int]] = []
        self._agreed: list[int] = []

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses, or the distribution that drafts are drawn from."""
        return self.picker.draft_kind

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """One causal pass over prompt and output; every draft of every D falls out of it."""
        anchors = len(output_ids) - 1
        if anchors < 1:
            return Unrolled(np.zeros(0, dtype=np.int64), np.zeros((0, D), dtype=bool))
        hit_T = self._score(prompt_ids, output_ids)
        # Row p, column i: how output token p + 1 + i fares; beyond the stream's end nothing hits.
        padded = np.concatenate([hit_T, np.zeros(D, dtype=hit_T.dtype)])
        hit_AD = np.lib.stride_tricks.sliding_window_view(padded, D)[:anchors]
        return Unrolled(np.full(anchors, D, dtype=np.int64), hit_AD)

    def _score(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> NDArray[np.bool_] | NDArray[np.float64]:
        """For output tokens 1..n-1: is it the drafter's argmax (bool), or how likely would it be drawn (float64)?"""
        inputs = self._known([*prompt_ids, *output_ids[:-1]])
        hit_T, _ = forced_pass(self.model, inputs, output_ids[1:], self.picker.score)
        assert hit_T is not None
        return hit_T.cpu().numpy()

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Tokens as the drafter can read them: an id from the target's padding becomes 0; only drafts suffer."""
        size = self.model.vocab_size
        return [token if token < size else 0 for token in tokens]

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Read the prompts; the anchor is fed with the first proposal."""
        room = max(len(r.prompt_ids) + r.max_new_tokens for r in requests) + 2 * MAX_DEPTH
        self._cache = self.model.new_cache(len(requests), room)
        self.model.forward([self._known(r.prompt_ids) for r in requests], self._cache, num_logits=1)
        self._streams = [r.index for r in requests]
        self._prompt_lengths = [len(r.prompt_ids) for r in requests]
        self._fed = [list(r.prompt_ids) for r in requests]
        self._agreed = list(self._prompt_lengths)
        self._committed = [[*r.prompt_ids, anchor] for r, anchor in zip(requests, anchors, strict=True)]

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """Catch up to the anchor, then draft one token a pass."""
        assert self._cache is not None
        self._rewind()
        feed = [done[len(fed) :] for done, fed in zip(self._committed, self._fed, strict=True)]
        positions = [len(done) - n for done, n in zip(self._committed, self._prompt_lengths, strict=True)]
        drafts = Drafts(self.picker, self._streams, positions)
        for _ in range(D):
            logits = self.model.forward([self._known(tokens) for tokens in feed], self._cache, num_logits=1).logits
            for fed, tokens in zip(self._fed, feed, strict=True):
                fed += tokens
            feed = [[token] for token in drafts.extend(torch.cat(logits))]
        return drafts.proposal()

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Append what was decided; the cache keeps what it wrote for drafts that stand."""
        for done, tokens, last in zip(self._committed, accepted, bonus, strict=True):
            done += [*tokens, last]
        self._rewind()

    def _rewind(self) -> None:
        """Crop the cache to what is committed, the anchor at least still to be fed."""
        assert self._cache is not None
        for row, (done, fed) in enumerate(zip(self._committed, self._fed, strict=True)):
            self._agreed[row] = agreement(done, fed, self._agreed[row])
            del fed[self._agreed[row] :]
        self._cache.rollback(self._agreed)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the rest."""
        assert self._cache is not None
        self._cache.keep(rows)
        for name in ("_streams", "_prompt_lengths", "_committed", "_fed", "_agreed"):
            values = getattr(self, name)
            setattr(self, name, [values[row] for row in rows])

    def device_bytes(self, B: int, S: int) -> int:
        """Its weights and its own cache."""
        return self.model.device_bytes(B, S)


def agreement(done: Sequence[int], fed: Sequence[int], start: int) -> int:
    """Length of the common prefix of committed and fed tokens, short of the anchor; they agree up to `start`."""
    limit = min(len(done) - 1, len(fed))
    n = start
    while n < limit and done[n] == fed[n]:
        n += 1
    return n


def check(spec: ExternalSpec, beside: Beside) -> bool:
    """Refuse a head, another vocabulary, and more layers than the model has; whether vocabularies were compared."""
    folder = resolve_folder(spec.path)
    point = open_checkpoint(str(folder))
    kind = detect(point.config, point.tensors)
    if kind is not None:
        option = f"; give it as {kind.mechanism}:{spec.path}" if kind.mechanism in MECHANISMS else ""
        raise SpecError(
            f"drafter '{spec.name}': {spec.path} is a head ({kind.mechanism}, seen by {kind.seen[0]}) and reads the "
            f"target's hidden states; an external drafter is a language model of its own{option}"
        )
    compared = check_vocabulary(spec.name, folder, beside.folder)
    if spec.layers is not None:
        keep_layers(read_config(folder, spec.path).get_text_config(decoder=True), spec.layers, spec.path)
    return compared


def build(spec: ExternalSpec, beside: Beside) -> ExternalDrafter:
    """Load the drafter model and hold its vocabulary against the target's."""
    compared = check(spec, beside)
    model = load_model(spec.path, beside.dtype, layers=spec.layers)
    if model.vocab_size != beside.vocab_size and not compared:
        raise SpecError(
            f"drafter '{spec.name}': vocabulary of {model.vocab_size} against the target's {beside.vocab_size}, and no "
            "tokenizer.json to compare; an external drafter needs the target's vocabulary"
        )
    return ExternalDrafter(spec, model, beside.vocab_size, beside.sampling)


def check_vocabulary(name: str, drafter_folder: Path, target_folder: Path) -> bool:
    """Refuse a drafter whose ids mean other strings than the target's; False where a tokenizer file is missing."""
    ours, theirs = read_vocab(target_folder), read_vocab(drafter_folder)
    if ours is None or theirs is None:
        return False
    differing = difference(ours, theirs)
    if differing:
        shown = "; ".join(
            f"id {i} is {ours.get(i)!r} for the target, {theirs.get(i)!r} for the drafter" for i in differing[:3]
        )
        raise SpecError(
            f"drafter '{name}': its tokenizer differs from the target's in {len(differing)} ids ({shown}); an external "
            "drafter needs the target's vocabulary"
        )
    return True
