"""What conversions refuse of names and files, and MTP modules: out of a target, and between two sets of names."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from codraft.core.conversion import ConversionRecord
from codraft.core.errors import SpecError
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.heads.convert import convert
from codraft.formats.heads.mtp_layout import read_layout
from codraft.formats.heads.plan import Conversion

from tests.checkpoints import Tensor, write_checkpoint
from tests.formats.heads import made
from tests.formats.heads.test_convert_said import refused, run
from tests.formats.heads.test_read import side
from tests.models.inspect.layouts import ALL, mtp_namespace
from tests.models.inspect.pairs import H, L, Side

GOLDEN = Path(__file__).parents[2] / "golden" / "heads"


@pytest.mark.parametrize(("to", "known"), [("zlab", "safeailab, modelopt, speculators"), ("\x1b[", "safeailab")])
def test_an_unknown_layout_is_answered_with_those_of_the_mechanism(to: str, known: str, tmp_path: Path) -> None:
    said = refused(side("eagle3"), to, tmp_path)
    assert f"eagle3 heads are written as {known}" in said
    assert said.isprintable()


@pytest.mark.parametrize(("name", "alias"), [("eagle3", "specforge"), ("dflash", "specforge"), ("dflash", "modelopt")])
def test_projects_that_write_another_ones_layout_are_known(name: str, alias: str, tmp_path: Path) -> None:
    assert run(side(name), alias, tmp_path).to_format == side_family(name)


def side_family(name: str) -> str:
    """The family of a base layout."""
    return {"eagle3": "safeailab", "dflash": "zlab"}[name]


@pytest.mark.parametrize("name", ["peagle", "eagle", "dflash2", "domino"])
def test_heads_that_have_no_other_layout_are_refused_by_name(name: str, tmp_path: Path) -> None:
    said = refused(side(name), "speculators", tmp_path)
    assert f"is a {name} head" in said
    assert "codraft converts heads of EAGLE-3, DFlash, DSpark and MTP" in said


def test_files_that_cannot_be_used_are_refused_with_the_way_out(tmp_path: Path) -> None:
    base = side("eagle3")
    weights, base.tensors = base.tensors, {}
    base.extra["pytorch_model.bin"] = b"\x80\x02."
    folder = base.write(tmp_path / "head")
    (folder / "model.safetensors").unlink()

    def said() -> str:
        with pytest.raises(SpecError) as raised:
            convert(Conversion(source=str(folder), to="modelopt", output=tmp_path / "out"))
        return str(raised.value)

    assert "'pytorch_model.bin', which is pickled" in said()
    assert "safetensors.torch.save_file" in said()
    (folder / "pytorch_model.bin").unlink()
    assert "has no weights" in said()
    write_checkpoint(folder, base.config, weights, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "1 of the files that its index names are not there" in said()
    write_checkpoint(folder, base.config, {**weights, "layers.0.mlp.up_proj.weight": ("BF16", (128, H))})
    (folder / "model.safetensors.index.json").unlink()
    assert "which are one tensor of the head; remove one" in said()
    mask = side("dflash")
    mask.extra["mask_embedding.pt"] = b"\x80\x02."
    assert "mask embedding in mask_embedding.pt" in refused(mask, "zlab", tmp_path / "b")
    plain = write_checkpoint(
        tmp_path / "plain", {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 8},
        {"model.embed_tokens.weight": ("BF16", (4, 8))},
    )  # fmt: skip
    with pytest.raises(SpecError, match="is no drafter's head that codraft knows"):
        convert(Conversion(source=str(plain), to="native", output=tmp_path / "out"))
    with pytest.raises(SpecError, match=r"--target .* is a drafter's head"):
        run(side("eagle3"), "speculators", tmp_path / "c", str(folder))


def modules(source: Path, to: str, output: Path, target: Path | None = None) -> ConversionRecord:
    """One conversion of modules."""
    return convert(Conversion(source=str(source), to=to, output=output, target=None if target is None else str(target)))


def inside(source: Path) -> made.Stored:
    """The tensors of a golden target's modules."""
    point = open_checkpoint(str(source))
    names = set(read_layout(point, "golden").stored())
    return {name: tensor for name, tensor in made.stored(source).items() if name in names}


@pytest.mark.parametrize("name", ["mtp_deepseek_v3", "mtp_glm4_moe", "mtp_qwen3_5", "mtp_qwen3_next"])
def test_modules_are_taken_out_of_a_target_under_their_own_names(name: str, tmp_path: Path) -> None:
    record = modules(GOLDEN / name, "native", tmp_path / "out")

    assert made.stored(tmp_path / "out").items() >= inside(GOLDEN / name).items()
    assert (tmp_path / "out" / "config.json").read_bytes() == (GOLDEN / name / "config.json").read_bytes()
    assert (tmp_path / "out" / "mtp.safetensors").exists()
    total = len(made.stored(GOLDEN / name))
    assert record.notes == [f"{record.tensors} tensors of MTP modules taken out of {total}"]
    # What was taken out holds modules that can be drafted with, and can be taken out again.
    layout = read_layout(open_checkpoint(str(tmp_path / "out")), "out")
    assert layout.modules == read_layout(open_checkpoint(str(GOLDEN / name)), "golden").modules
    modules(tmp_path / "out", "native", tmp_path / "again")
    assert made.stored(tmp_path / "again") == made.stored(tmp_path / "out")


@pytest.mark.parametrize("with_target", [True, False])
@pytest.mark.parametrize("name", ["mtp_qwen3_5", "mtp_qwen3_next"])
def test_a_module_goes_to_the_librarys_names_and_back(name: str, with_target: bool, tmp_path: Path) -> None:
    source = GOLDEN / name
    target = source if with_target else None
    record = modules(source, "speculators", tmp_path / "b", target)
    again = modules(tmp_path / "b", "native", tmp_path / "c", target)

    assert made.stored(tmp_path / "c") == inside(source)
    names = set(made.stored(tmp_path / "b"))
    assert all(one.startswith("mtp_layers.0.") for one in names)
    assert {f"mtp_layers.0.{one}.weight" for one in (
        "input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm")} <= names  # fmt: skip
    fused = name == "mtp_qwen3_next"
    assert ("mtp_layers.0.mlp.experts.gate_up_proj" in names) is fused
    assert any("experts fused" in note for note in record.notes) is fused
    assert any("experts parted" in note for note in again.notes) is fused
    config = made.config_of(tmp_path / "b")
    assert (config["speculators_model_type"], config["num_nextn_predict_layers"]) == ("mtp", 1)
    if with_target:
        assert made.config_of(tmp_path / "c") == made.config_of(source)
    # Both are read as the modules that they were.
    for folder in (tmp_path / "b", tmp_path / "c"):
        read_layout(open_checkpoint(str(folder)), "converted")


def test_experts_are_fused_in_the_order_of_their_numbers_gate_before_up(tmp_path: Path) -> None:
    source = GOLDEN / "mtp_qwen3_next"
    modules(source, "speculators", tmp_path / "b")

    old, new = made.stored(source), made.stored(tmp_path / "b")
    dtype, shape, raw = new["mtp_layers.0.mlp.experts.gate_up_proj"]
    values = np.frombuffer(raw, "<f4").reshape(shape)
    assert dtype == "F32"
    for i in range(shape[0]):
        parts = [old[f"mtp.layers.0.mlp.experts.{i}.{part}_proj.weight"] for part in ("gate", "up")]
        wanted = np.concatenate([np.frombuffer(part[2], "<f4").reshape(part[1]) for part in parts])
        assert (values[i] == wanted).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [("mtp_deepseek_v3", "these are 2 modules; write --to native"),
     ("mtp_glm4_moe", "these are modules of model_type 'glm4_moe'")],
)  # fmt: skip
def test_modules_that_the_library_has_no_class_for_are_refused(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="speculators files of MTP hold one module of qwen3_next") as raised:
        modules(GOLDEN / name, "speculators", tmp_path / "out")
    assert words in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_module_of_a_model_that_has_none_has_no_native_names(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no target of model_type 'qwen3' has MTP modules of its own"):
        modules(GOLDEN / "mtp_speculators_qwen3", "native", tmp_path / "b")


def test_a_file_of_modules_that_the_index_passes_over_is_found(tmp_path: Path) -> None:
    base = mtp_namespace()
    mtp: dict[str, Tensor] = {name: tensor for name, tensor in base.tensors.items() if name.startswith("mtp.")}
    trunk = Side(base.config, {name: tensor for name, tensor in base.tensors.items() if name not in mtp})
    trunk.index, trunk.extra = True, {"mtp.safetensors": mtp}
    record = modules(trunk.write(tmp_path / "target"), "native", tmp_path / "out")

    assert set(made.stored(tmp_path / "out")) == set(mtp)
    assert record.tensors == len(mtp)


@pytest.mark.parametrize("gone", ["mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0."])
def test_modules_that_lack_something_are_refused(gone: str, tmp_path: Path) -> None:
    base = mtp_namespace()
    base.tensors = {name: tensor for name, tensor in base.tensors.items() if not name.startswith(gone)}
    said = refused(base, "native", tmp_path)
    assert "its MTP modules lack" in said


def test_stages_of_dspark_in_the_namespace_are_no_modules(tmp_path: Path) -> None:
    base = mtp_namespace()
    base.config["dspark_markov_rank"] = 8
    assert "DSpark stages of DeepSeek-V4" in refused(base, "native", tmp_path)


def test_a_module_in_eight_bits_is_taken_out_as_it_is(tmp_path: Path) -> None:
    base = ALL["mtp_quantized"]().target
    module = {name: tensor for name, tensor in base.tensors.items() if f".layers.{L}." in name}
    name = f"model.layers.{L}.self_attn.q_proj.weight"
    base.tensors |= {name: ("F8_E4M3", (64, H)), f"{name}_scale_inv": ("F32", (1, 1))}
    source = base.write(tmp_path / "target")
    modules(source, "native", tmp_path / "out")

    found = made.stored(tmp_path / "out")
    assert set(found) == {*module, f"{name}_scale_inv"}
    assert found[name] == made.stored(source)[name]


@pytest.mark.parametrize("name", ["mtp_glm4_moe", "mtp_qwen3_next"])
def test_modules_of_another_shape_than_the_config_says_are_refused_though_the_layout_stays(
    name: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / name, source)
    config = json.loads((source / "config.json").read_text())
    for change, words in (
        ({"head_dim": 64}, "and it should be"),
        ({"num_nextn_predict_layers": 5}, "the config counts 5"),
    ):
        (source / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(SpecError, match=words):
            modules(source, "native", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_modules_of_a_family_that_codraft_does_not_know_are_copied_and_that_is_said(tmp_path: Path) -> None:
    base = mtp_namespace()
    source = base.write(tmp_path / "target")
    record = modules(source, "native", tmp_path / "out")
    assert any("are copied unchecked" in note for note in record.notes)
