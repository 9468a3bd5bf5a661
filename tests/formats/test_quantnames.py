"""What quantizers put into a checkpoint is told from weights by its name."""

import pytest

from codraft.formats.quantnames import is_packed, is_scale, is_weight, last_part, stem

UP = "layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("name", "kind"),
    [(f"{UP}.weight", "weight"), ("norm.weight", "weight"), (f"{UP}.weight_packed", "packed"),
     (f"{UP}.qweight", "packed"), ("mlp.experts.gate_up_proj_blocks", "packed"), (f"{UP}.packed", "packed"),
     (f"{UP}.weight_scale", "scale"), (f"{UP}.weight_scale_inv", "scale"), (f"{UP}.weight_scale_2", "scale"),
     (f"{UP}.weight_global_scale", "scale"), (f"{UP}.weight_shape", "scale"), (f"{UP}.weight_g_idx", "scale"),
     (f"{UP}.weight_zero_point", "scale"), (f"{UP}.qzeros", "scale"), (f"{UP}.scales", "scale"),
     (f"{UP}.g_idx", "scale"), (f"{UP}.input_scale", "scale"), ("self_attn.k_scale", "scale"),
     ("mlp.experts.gate_up_proj_scales", "scale"), (f"{UP}.bias", None), ("d2t", None), ("mask_hidden", None)],
)  # fmt: skip
def test_a_name_is_of_a_weight_a_packed_one_a_scale_or_none_of_them(name: str, kind: str | None) -> None:
    assert is_packed(name) is (kind == "packed")
    assert is_weight(name) is (kind in ("weight", "packed"))
    assert is_scale(name) is (kind == "scale")


def test_a_name_comes_apart_at_its_last_dot() -> None:
    assert (stem(f"{UP}.weight"), last_part(f"{UP}.weight")) == (UP, "weight")
    assert (stem("d2t"), last_part("d2t")) == ("", "d2t")
