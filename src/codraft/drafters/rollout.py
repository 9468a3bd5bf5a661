"""Serial heads, teacher-forced: D steps from every row of a stream at once. Replay reads it, and training.

Row t pairs feature t with token t + 1 and stands for the anchor at position t + 1. Step k of a row takes in the
stream's token t + 1 + k and predicts token t + 2 + k. What a row may look at is what live decoding would have: keys of
true features up to t, and the keys that its own steps made after that. That is the mask of training-time test
[EAGLE-3]: causal over true features, diagonal over the roll-out.

A head of several modules takes them in turn, module k mod n at step k. While each is met for the first time it runs
over all rows, attending causally over its own keys, so a row's inputs up to there are true ones [DeepSeekV3]; when
they come round again the rows go on alone.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from codraft.decode.target import Tap
from codraft.drafters.layers import flex
from codraft.drafters.layers.attention import Sight, attend, attend_own, causal

# Rows whose scores against a whole stream are held at once.
ROWS_AT_ONCE = 512


class SerialHead(Protocol):
    """A head that drafts one token a step: modules of decoder layers over (hidden state, token embedding) pairs."""

    num_modules: int
    layers_per_module: int

    def fuse(self, features: Mapping[Tap, Tensor]) -> Tensor:
        """[N, H] from the tapped features, each [N, C]: what the first module reads instead of its own output."""
        ...

    def run(
        self, module: int, hidden_NH: Tensor, tokens_N: Tensor, positions_N: Tensor, sight: Sight
    ) -> tuple[Tensor, Tensor]:
        """One pass of a module: ([N, H] to be fed to the next step, [N, H] to be read out)."""
        ...

    def device_bytes(self, rows: int) -> int:
        """Of its own weights, borrowed ones not counted, and of the keys and values of `rows` rows."""
        ...

    def logits(self, module: int, readable_NH: Tensor) -> Tensor:
        """[N, V'] over the head's own vocabulary."""
        ...


class Part(NamedTuple):
    """One stream among several: `rows` of a pass, `keys` of the true rows, and the row that its first token makes."""

    rows: slice
    keys: slice
    start: int


class Building:
    """Sight over whole streams, causal; keeps keys and values of every layer. `parts`: the rows of each stream."""

    def __init__(self, parts: Sequence[Part] | None = None) -> None:
        self.parts = parts
        self.layers: list[tuple[Tensor, Tensor]] = []

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`."""
        self.layers.append((k_NgD, v_NgE))
        if flex.fits(q_NhD, sinks_h):
            stream_N, at_N = self._places(q_NhD)
            seen_by = flex.within(stream_N, at_N, stream_N, at_N, window)
            return flex.attend_where(q_NhD, k_NgD, v_NgE, seen_by, scale=scale)
        spans = [slice(0, len(q_NhD))] if self.parts is None else [part.rows for part in self.parts]
        seen = []
        for span in spans:
            rows_N = torch.arange(span.stop - span.start, device=q_NhD.device)
            q, k, v = q_NhD[span], k_NgD[span], v_NgE[span]
            for start in range(0, len(q), ROWS_AT_ONCE):
                end = min(start + ROWS_AT_ONCE, len(q))
                first = 0 if window is None else max(0, start + 1 - window)
                mask_QM = causal(rows_N[start:end], rows_N[first:end], window)
                seen.append(attend(q[start:end], k[first:end], v[first:end], mask_QM, scale=scale, sinks_h=sinks_h))
        return torch.cat(seen)

    def _places(self, q_NhD: Tensor) -> tuple[Tensor, Tensor]:
        """(number of its stream, place in it) of every row."""
        parts = self.parts or [Part(slice(0, len(q_NhD)), slice(0, len(q_NhD)), 0)]
        return numbered([part.rows for part in parts], q_NhD.device)


def numbered(spans: Sequence[slice], device: torch.device) -> tuple[Tensor, Tensor]:
    """(which span, place in it) of every row of spans that lie side by side."""
    lengths = [span.stop - span.start for span in spans]
    span_N = torch.arange(len(spans), device=device).repeat_interleave(torch.tensor(lengths, device=device))
    return span_N, torch.cat([torch.arange(length, device=device) for length in lengths])


class Chain:
    """Keys and values of one layer that rows made of their own guesses, [N, g, D] a step."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def select(self, mask_N: Tensor) -> None:
        """Keep these rows."""
        self.keys = [k_NgD[mask_N] for k_NgD in self.keys]
        self.values = [v_NgE[mask_N] for v_NgE in self.values]


class OwnChain:
    """Sight of rows going on alone: true keys up to their own row, then the keys of their own steps."""

    def __init__(
        self,
        true: list[tuple[Tensor, Tensor]],
        chains: list[Chain],
        rows_N: Tensor,
        parts: Sequence[Part] | None = None,
    ) -> None:
        self.true, self.chains, self.rows_N, self.parts = true, chains, rows_N, parts
        self.layer = 0

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`."""
        chain, (keys, values) = self.chains[self.layer], self.true[self.layer]
        self.layer += 1
        chain.keys.append(k_NgD)
        chain.values.append(v_NgE)
        # A row's own keys are the nearest: of a window they take the first places.
        kept = len(chain.keys) if window is None else min(window, len(chain.keys))
        own_NcgD, own_NcgE = torch.stack(chain.keys[-kept:], 1), torch.stack(chain.values[-kept:], 1)
        # How far back of its own row a row still sees.
        back = None if window is None else window - len(chain.keys)
        parts = self.parts or [Part(slice(0, len(q_NhD)), slice(0, len(keys)), 0)]
        if flex.fits(q_NhD, sinks_h):
            return self._at_once(q_NhD, (keys, values), (own_NcgD, own_NcgE), parts, back, scale)
        seen = []
        for part in parts:
            k, v = keys[part.keys], values[part.keys]
            for start in range(part.rows.start, part.rows.stop, ROWS_AT_ONCE):
                rows = slice(start, min(start + ROWS_AT_ONCE, part.rows.stop))
                places_Q = self.rows_N[rows] - part.start
                last = int(places_Q[-1]) + 1
                first = 0 if back is None else min(last, max(0, int(places_Q[0]) + 1 - back))
                distance_QM = places_Q[:, None] - torch.arange(first, last, device=keys.device)
                true_QM = distance_QM >= 0 if back is None else (distance_QM >= 0) & (distance_QM < back)
                seen.append(
                    attend_own(
                        q_NhD[rows],
                        k[first:last],
                        v[first:last],
                        true_QM,
                        own_NcgD[rows],
                        own_NcgE[rows],
                        scale=scale,
                        sinks_h=sinks_h,
                    )
                )
        return torch.cat(seen)

    def _at_once(
        self,
        q_NhD: Tensor,
        true: tuple[Tensor, Tensor],
        own: tuple[Tensor, Tensor],
        parts: Sequence[Part],
        back: int | None,
        scale: float,
    ) -> Tensor:
        """All streams in one pass of flex attention."""
        keys, values = (
            torch.cat((shared, mine.transpose(0, 1).flatten(0, 1))) for shared, mine in zip(true, own, strict=True)
        )
        stream_N, _ = numbered([part.rows for part in parts], q_NhD.device)
        starts = torch.tensor([part.start for part in parts], device=q_NhD.device)
        stream_M = torch.full((len(true[0]),), -1, device=q_NhD.device)
        at_M = torch.zeros_like(stream_M)
        for number, part in enumerate(parts):
            stream_M[part.keys] = number
            at_M[part.keys] = torch.arange(part.keys.stop - part.keys.start, device=q_NhD.device)
        seen = flex.within(stream_N, self.rows_N - starts[stream_N], stream_M, at_M, back)
        seen = flex.then_own(seen, len(stream_M), len(q_NhD), q_NhD.device)
        return flex.attend_where(q_NhD, keys, values, seen, scale=scale)


class Rollout:
    """Steps of a head from every row of one stream, or of several one after the other.

    `fused_RH` [R, H] are the fused features of the tokens, of a last one maybe not. `bounds` are where streams begin,
    and their end: [0, n, n + m] of two. `rows_N` are the rows of the last step, ascending, numbered over all streams
    as their tokens are.
    """

    def __init__(
        self, head: SerialHead, fused_RH: Tensor, tokens_T: Tensor, bounds: Sequence[int] | None = None
    ) -> None:
        self.head, self.tokens_T = head, tokens_T
        device = tokens_T.device
        bounds = [0, len(tokens_T)] if bounds is None else bounds
        self._starts, self._first_of = list(bounds[:-1]), torch.tensor(bounds[:-1], device=device)
        lengths = torch.tensor(bounds, device=device).diff()
        self._start_T = self._first_of.repeat_interleave(lengths)
        # One past the last token of the stream that a token is of.
        self.end_T = torch.tensor(bounds[1:], device=device).repeat_interleave(lengths)
        rows_R = torch.arange(min(len(fused_RH), len(tokens_T)), device=device)
        self.rows_N = rows_R[rows_R + 1 < self.end_T[rows_R]]
        self.hidden_NH = fused_RH[self.rows_N] if len(self.rows_N) < len(fused_RH) else fused_RH
        self.k = 0
        self._true: list[list[tuple[Tensor, Tensor]]] = []
        self._true_parts: list[list[slice]] = []
        self._chains = [[Chain() for _ in range(head.layers_per_module)] for _ in range(head.num_modules)]

    def step(self) -> Tensor:
        """[N, H] to be read out, of the rows `rows_N` for which their stream has a token to take in."""
        n, k = self.head.num_modules, self.k
        module = k % n
        self._select(self.rows_N + 1 + k < self.end_T[self.rows_N])
        spans = self._spans()
        sight: Building | OwnChain
        if k < n:
            sight = Building([Part(span, span, start) for span, start in zip(spans, self._starts, strict=True)])
            self._true.append(sight.layers)
            self._true_parts.append(spans)
        else:
            places = zip(spans, self._true_parts[module], self._starts, strict=True)
            parts = [Part(*place) for place in places if place[0].stop > place[0].start]
            sight = OwnChain(self._true[module], self._chains[module], self.rows_N, parts)
        tokens_N = self.tokens_T[self.rows_N + 1 + k]
        positions_N = self.rows_N - self._start_T[self.rows_N] + k
        self.hidden_NH, readable_NH = self.head.run(module, self.hidden_NH, tokens_N, positions_N, sight)
        self.k += 1
        return readable_NH

    def retain(self, mask_N: Tensor) -> None:
        """Go on with these of the last step's rows only. Until every module was met it changes nothing: those to come
        still run over all rows, so a mask must also say what earlier ones said."""
        if self.k >= self.head.num_modules:
            self._select(mask_N)

    def _spans(self) -> list[slice]:
        """The rows of each stream."""
        if len(self._starts) == 1:
            return [slice(0, len(self.rows_N))]
        edges = [*torch.searchsorted(self.rows_N, self._first_of).tolist(), len(self.rows_N)]
        return [slice(first, last) for first, last in pairwise(edges)]

    def _select(self, mask_N: Tensor) -> None:
        if bool(mask_N.all()):
            return
        self.rows_N, self.hidden_NH = self.rows_N[mask_N], self.hidden_NH[mask_N]
        for chain in (chain for module in self._chains for chain in module):
            chain.select(mask_N)
