"""Rotary positions: the old keys (rope_theta, rope_scaling) and the new ones (rope_parameters, also by layer type)."""

from dataclasses import replace

from codraft.formats.fields import Fields, shown
from codraft.models.architecture import Rope

THETA = ("rope_theta", "rotary_emb_base", "rope_base", "rotary_base", "rope_embedding_base", "rope_freq_constant")
# Names of full layers within rope_parameters that are kept by layer type, and of windowed ones.
FULL = ("full_attention", "main", "hybrid")
LOCAL = ("sliding_attention", "chunked_attention", "hybrid_sliding")
# Without a word in the config every transformers family that rotates takes this.
USUAL_THETA = 10_000.0


def read_rope(fields: Fields, head_dim: int | None, rotated_dim: int | None = None) -> tuple[Rope, Rope | None]:
    """Rope of the full layers, and of windowed layers where theirs is another. `rotated_dim` is MLA's rotated part."""
    parameters = fields.inner("rope_parameters", "rope_scaling")
    main, local = parameters, None
    if parameters is not None:
        main = parameters.inner(*FULL) or (parameters.inner(*LOCAL) if parameters.key(*LOCAL) else parameters)
        local = parameters.inner(*LOCAL) if parameters.key(*FULL) else None
    rope = one_rope(fields, main, head_dim, rotated_dim)
    if local is not None:
        other = one_rope(fields, local, head_dim, rotated_dim)
    elif (theta := fields.ratio("rope_local_base_freq", "swa_rope_theta")) is not None:
        key = fields.key("rope_local_base_freq", "swa_rope_theta")
        other = Rope(
            theta=theta,
            kind="default",
            factor=None,
            original_max_positions=None,
            partial=rope.partial,
            theta_key=None if key is None else fields.dotted(key),
        )
    else:
        return rope, None
    same = replace(other, theta_key=rope.theta_key) == rope
    return rope, None if same else other


def one_rope(fields: Fields, scaling: Fields | None, head_dim: int | None, rotated_dim: int | None) -> Rope:
    """The rope that `scaling` describes, its theta there or beside it."""
    scaling = scaling or Fields({})
    at = scaling if scaling.key(*THETA) else fields
    name = at.key(*THETA)
    theta = pace(at, name)
    rope_type = scaling.text("rope_type", "type") or "default"
    return Rope(
        theta=USUAL_THETA if theta is None else theta,
        kind=shown(rope_type),
        factor=scaling.ratio("factor"),
        original_max_positions=(
            scaling.size("original_max_position_embeddings") or fields.size("original_max_position_embeddings")
        ),
        partial=partial(fields, scaling, head_dim, rotated_dim),
        theta_key=None if name is None else at.dotted(name),
    )


def pace(at: Fields, name: str | None) -> float | None:
    """Theta; of a list by layer (Step-3.5) the first."""
    listed = None if name is None else at.get(name)
    if name is not None and isinstance(listed, list) and listed:
        return Fields({name: listed[0]}, at.path, at.file).ratio(name)
    return at.ratio(*THETA)


def partial(fields: Fields, scaling: Fields, head_dim: int | None, rotated_dim: int | None) -> float:
    """Share of the head that is rotated."""
    names = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage")
    share = scaling.ratio(*names) or fields.ratio(*names)
    if rotated_dim is not None and head_dim:
        return rotated_dim / head_dim
    if share is None and head_dim and (width := fields.size("rotary_dim", "rotary_ndims")) is not None:
        share = width / head_dim
    return 1.0 if share is None else min(share, 1.0)
