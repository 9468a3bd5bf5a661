"""A drafter's head in the numbers that speculation depends on."""

from codraft.core.inspection import HeadSummary
from codraft.formats.heads.head import BORROWING_MECHANISMS, MAPS, Head
from codraft.formats.quantnames import is_packed, is_scale
from codraft.models.inspect.cached import cached_numbers
from codraft.models.inspect.pair import HeadModel
from codraft.models.inspect.positions import drafter_positions
from codraft.models.memory import DTYPE_BYTES
from codraft.models.summary import weight_bytes


def summarize_head(drafter: HeadModel) -> HeadSummary:
    """What a drafter's config and headers say."""
    head, g = drafter.head, drafter.head.geometry
    first = head.taps[0] if head.taps else None
    weights = {
        name: info
        for name, info in drafter.tensors.items()
        if name not in MAPS and not is_scale(name) and not is_packed(name)
    }
    return HeadSummary(
        id=drafter.checkpoint.label,
        mechanism=head.mechanism,
        family=head.kind.family,
        num_layers=g.num_layers,
        hidden_size=g.hidden,
        target_hidden_size=head.target_hidden,
        vocab_size=head.vocab_size,
        draft_vocab_size=head.draft_vocab_size,
        taps=list(first.outputs) if first else None,
        taps_as_written=list(first.written) if first else None,
        taps_convention=first.convention if first else None,
        block_size=head.block.size if head.block else None,
        max_D=head.max_D,
        mask_token_id=head.block.mask_token_id if head.block else None,
        max_positions=drafter_positions(drafter),
        parameters=sum(info.num_elements for info in weights.values()) or None,
        weight_bytes=weight_bytes(drafter.tensors),
        kv_bytes_per_token={name: cached_numbers(head) * size for name, size in DTYPE_BYTES.items()},
        borrows=borrowed(drafter, head),
    )


def borrowed(drafter: HeadModel, head: Head) -> list[str]:
    """What a head takes from the target; nothing is known without its tensors."""
    if not drafter.tensors or head.mechanism not in (*BORROWING_MECHANISMS, "mtp"):
        return []
    # Modules have copies of the ends below their own prefixes.
    ends = {"embedding": ("embed_tokens.weight",), "output head": ("lm_head.weight", "shared_head.head.weight")}
    return [word for word, names in ends.items() if not any(held.endswith(names) for held in drafter.tensors)]
