"""What a head's layers cache, in numbers for a token."""

from codraft.formats.fields import Fields
from codraft.formats.heads.head import Head


def cached_numbers(head: Head) -> int:
    """Numbers that a head's layers cache for a token: keys and values, or the latent of MLA with its rotated part."""
    g = head.geometry
    fields = Fields(head.text, head.text_path)
    latent = fields.size("kv_lora_rank", lowest=0)
    if latent:
        return g.num_layers * (latent + (fields.size("qk_rope_head_dim", lowest=0) or 0))
    return 2 * g.num_layers * g.num_kv_heads * g.head_dim
