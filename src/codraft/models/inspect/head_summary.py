"""A drafter's head in the numbers that speculation depends on."""

from codraft.core.inspection import HeadSummary
from codraft.formats.fields import Fields
from codraft.formats.heads.head import Head
from codraft.formats.heads.layout import is_scale
from codraft.models.inspect.pair import HeadModel
from codraft.models.inspect.positions import drafter_positions

# Bytes of an element of the cache, by the names the records use.
CACHE_DTYPES = {"f32": 4, "bf16": 2, "fp8": 1}
# No weights: the maps of a reduced vocabulary.
MAPS = ("d2t", "t2d")


def summarize_head(drafter: HeadModel) -> HeadSummary:
    """What a drafter's config and headers say."""
    head, g = drafter.head, drafter.head.geometry
    first = head.taps[0] if head.taps else None
    weights = {name: info for name, info in drafter.tensors.items() if name not in MAPS and not is_scale(name)}
    by_dtype: dict[str, int] = {}
    for info in drafter.tensors.values():
        by_dtype[info.dtype] = by_dtype.get(info.dtype, 0) + info.num_bytes
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
        weight_bytes=by_dtype,
        kv_bytes_per_token={name: cached_numbers(head) * size for name, size in CACHE_DTYPES.items()},
        borrows=borrowed(drafter, head),
    )


def cached_numbers(head: Head) -> int:
    """Numbers that a head's layers cache for a token: keys and values, or the latent of MLA with its rotated part."""
    g = head.geometry
    fields = Fields(head.text, head.text_path)
    latent = fields.size("kv_lora_rank", lowest=0)
    if latent:
        return g.num_layers * (latent + (fields.size("qk_rope_head_dim", lowest=0) or 0))
    return 2 * g.num_layers * g.num_kv_heads * g.head_dim


def borrowed(drafter: HeadModel, head: Head) -> list[str]:
    """What a head takes from the target; nothing is known without its tensors."""
    if not drafter.tensors or head.mechanism not in ("eagle3", "dflash", "dspark"):
        return []
    names = {"embed_tokens.weight": "embedding", "lm_head.weight": "output head"}
    return [word for name, word in names.items() if name not in drafter.tensors]
