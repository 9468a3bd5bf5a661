"""One teacher-forced pass of a model over a stream, in chunks reduced at once: no [positions, V] is ever held."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from codraft.decode.target import Tap, Target

# Positions whose logits are held at once: [512, V] in float32 is 100 MB for a vocabulary of 50K.
CHUNK = 512
# From the logits [N, V] before some output tokens [N] to a value [N] for each of them.
Reduce = Callable[[Tensor, Tensor], Tensor]


@torch.inference_mode()
def forced_pass(
    model: Target, inputs: Sequence[int], targets: Sequence[int], reduce: Reduce | None, taps: Sequence[Tap] = ()
) -> tuple[Tensor | None, dict[Tap, list[Tensor]]]:
    """Values [T] of `targets`, the tokens that follow the last T inputs, and the tapped features of all inputs.

    Without `reduce` no logits are asked for and the values are None.
    """
    first = len(inputs) - len(targets)
    cache = model.new_cache(1, len(inputs))
    values: list[Tensor] = []
    features: dict[Tap, list[Tensor]] = {tap: [] for tap in taps}
    for start in range(0, len(inputs), CHUNK):
        chunk = inputs[start : start + CHUNK]
        end = start + len(chunk)
        wanted = max(0, end - max(start, first)) if reduce else 0
        out = model.forward([chunk], cache, num_logits=max(wanted, 1), taps=taps)
        for tap in taps:
            features[tap].append(out.features[tap][0])
        if reduce and wanted:
            logits_NV = out.logits[0]
            tokens_N = torch.tensor(targets[end - wanted - first : end - first], device=logits_NV.device)
            values.append(reduce(logits_NV, tokens_N))
    return torch.cat(values) if values else None, {tap: [torch.cat(states)] for tap, states in features.items()}
