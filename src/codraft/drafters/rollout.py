"""Serial heads, teacher-forced: D steps from every row of a stream at once. Replay reads it, and training will.

Row t pairs feature t with token t + 1 and stands for the anchor at position t + 1. Step k of a row takes in the
stream's token t + 1 + k and predicts token t + 2 + k. What a row may look at is what live decoding would have: keys of
true features up to t, and the keys that its own steps made after that. That is the mask of training-time test
[EAGLE-3]: causal over true features, diagonal over the roll-out.

A head of several modules takes them in turn, module k mod n at step k. While each is met for the first time it runs
over all rows, attending causally over its own keys, so a row's inputs up to there are true ones [DeepSeekV3]; when
they come round again the rows go on alone.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from codraft.decode.target import Tap
from codraft.drafters.layers.attention import Sight, attend, causal

# Rows whose scores against a whole stream are held at once, at most and at least.
ROWS_AT_ONCE, FEWEST_ROWS = 512, 16


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


class Building:
    """Sight over a whole stream, causal; keeps keys and values of every layer."""

    def __init__(self) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`."""
        self.layers.append((k_NgD, v_NgE))
        rows_N = torch.arange(len(q_NhD), device=q_NhD.device)
        seen = []
        for start in range(0, len(q_NhD), ROWS_AT_ONCE):
            end = min(start + ROWS_AT_ONCE, len(q_NhD))
            first = 0 if window is None else max(0, start + 1 - window)
            mask_QM = causal(rows_N[start:end], rows_N[first:end], window)
            seen.append(
                attend(q_NhD[start:end], k_NgD[first:end], v_NgE[first:end], mask_QM, scale=scale, sinks_h=sinks_h)
            )
        return torch.cat(seen)


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

    def __init__(self, true: list[tuple[Tensor, Tensor]], chains: list[Chain], rows_N: Tensor) -> None:
        self.true, self.chains, self.rows_N = true, chains, rows_N
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
        # Rows of a chunk also meet each other's keys, behind the mask: few rows where chains are long.
        at_once = max(FEWEST_ROWS, min(ROWS_AT_ONCE, len(keys) // kept))
        seen = []
        for start in range(0, len(q_NhD), at_once):
            part = slice(start, start + at_once)
            rows_Q = self.rows_N[part]
            last = int(rows_Q[-1]) + 1
            first = 0 if window is None else min(last, max(0, int(rows_Q[0]) + 1 + len(chain.keys) - window))
            slots_M = torch.arange(first, last, device=keys.device)
            true_QM = slots_M <= rows_Q[:, None]
            if window is not None:
                true_QM &= rows_Q[:, None] + len(chain.keys) - slots_M < window
            own_QR = torch.eye(len(rows_Q), dtype=torch.bool, device=keys.device).repeat_interleave(kept, dim=1)
            seen.append(
                attend(
                    q_NhD[part],
                    torch.cat((keys[first:last], own_NcgD[part].flatten(0, 1))),
                    torch.cat((values[first:last], own_NcgE[part].flatten(0, 1))),
                    torch.cat((true_QM, own_QR), dim=1),
                    scale=scale,
                    sinks_h=sinks_h,
                )
            )
        return torch.cat(seen)


class Rollout:
    """Steps of a head from every row of one stream. `rows_N` are the rows of the last step, ascending."""

    def __init__(self, head: SerialHead, fused_RH: Tensor, tokens_T: Tensor) -> None:
        self.head, self.tokens_T = head, tokens_T
        num_rows = min(len(fused_RH), len(tokens_T) - 1)
        self.hidden_NH = fused_RH[:num_rows]
        self.rows_N = torch.arange(num_rows, device=tokens_T.device)
        self.k = 0
        self._true: list[list[tuple[Tensor, Tensor]]] = []
        self._chains = [[Chain() for _ in range(head.layers_per_module)] for _ in range(head.num_modules)]

    def step(self) -> Tensor:
        """[N, H] to be read out, of the rows `rows_N` for which the stream has a token to take in."""
        n, k = self.head.num_modules, self.k
        module = k % n
        self._select(self.rows_N + 1 + k < len(self.tokens_T))
        sight: Building | OwnChain
        if k < n:
            sight = Building()
            self._true.append(sight.layers)
        else:
            sight = OwnChain(self._true[module], self._chains[module], self.rows_N)
        tokens_N = self.tokens_T[self.rows_N + 1 + k]
        self.hidden_NH, readable_NH = self.head.run(module, self.hidden_NH, tokens_N, self.rows_N + k, sight)
        self.k += 1
        return readable_NH

    def retain(self, mask_N: Tensor) -> None:
        """Go on with these of the last step's rows only. Until every module was met it changes nothing: those to come
        still run over all rows, so a mask must also say what earlier ones said."""
        if self.k >= self.head.num_modules:
            self._select(mask_N)

    def _select(self, mask_N: Tensor) -> None:
        if bool(mask_N.all()):
            return
        self.rows_N, self.hidden_NH = self.rows_N[mask_N], self.hidden_NH[mask_N]
        for chain in (chain for module in self._chains for chain in module):
            chain.select(mask_N)
