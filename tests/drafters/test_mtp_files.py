"""MTP modules out of files: inside a target, beside it, in FP8 blocks, and what is refused."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.core.spec import MtpSpec, Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.load import load_model
from codraft.decode.hf.model import HFModel
from codraft.drafters.beside import Beside
from codraft.drafters.mtp import MtpHead, build
from codraft.drafters.serial import SerialDrafter
from codraft.formats.heads.gate import Sizes

from tests.drafters.heads import assert_replay_is_live, streams_of
from tests.drafters.mtps import Made, V, made

GREEDY = Sampling()
SIZES = Sizes(vocab_size=V, hidden=16, num_layers=2)
PROMPTS = [[5, 9], [7, 7, 7], [4], [3, 11, 2]]


def write(folder: Path, config: dict[str, Any], files: dict[str, dict[str, Tensor]]) -> Path:
    """A checkpoint of several shards."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for file, tensors in files.items():
        save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / file)
    index = {name: file for file, tensors in files.items() for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def target_files(one: Made, folder: Path) -> Path:
    """The whole model of transformers, with the modules in a shard of their own."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(one.family.hf_config(), dtype=torch.float64)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(8)
    model.save_pretrained(folder)
    trunk = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text()) | one.config | {"dtype": "float64"}
    return write(folder, config, {"trunk.safetensors": trunk, "mtp.safetensors": one.tensors})


def beside(folder: Path) -> Beside:
    @cache
    def load() -> HFModel:
        return load_model(str(folder), "float64")

    return Beside(str(folder), folder, SIZES, GREEDY, "float64", load)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tensors that drafters read."""
    names: list[str] = []

    class Watched:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.inner = safe_open(*args, **kwargs)

        def __enter__(self) -> "Watched":
            self.handle = self.inner.__enter__()
            return self

        def __exit__(self, *args: Any) -> None:
            self.inner.__exit__(*args)

        def get_tensor(self, name: str) -> Tensor:
            names.append(name)
            tensor: Tensor = self.handle.get_tensor(name)
            return tensor

    monkeypatch.setattr("codraft.drafters.weights.safe_open", Watched)
    return names


@pytest.mark.parametrize(("name", "modules"), [("deepseek", 2), ("qwen3_5", 1)])
def test_modules_inside_a_target_and_beside_it_draft_the_same(
    name: str, modules: int, tmp_path: Path, read: list[str]
) -> None:
    one = made(name, modules)
    around = beside(target_files(one, tmp_path / "target"))
    inside = build(MtpSpec(), around)
    assert sorted(read) == sorted(one.tensors)

    target = around.load()
    streams = streams_of(target, PROMPTS, GREEDY, 8, 5)
    assert_replay_is_live(target, inside, streams, GREEDY, (1, 2, 2 * modules + 1))
    apart = write(tmp_path / "apart", one.config, {"model.safetensors": one.tensors})
    other = build(MtpSpec(path=str(apart)), around)
    assert (inside.info.id, other.info.id) == (None, str(apart))
    assert drafts(inside, target) == drafts(other, target)
    handed_on = [build(MtpSpec(feedback=way), around) for way in ("pre_norm", "post_norm")]
    assert drafts(handed_on[0], target) != drafts(handed_on[1], target) == drafts(inside, target)


def drafts(drafter: SerialDrafter, target: HFModel) -> list[list[int]]:
    """All drafts of one stream at D = 4."""
    [stream] = streams_of(target, [[5, 9, 3]], GREEDY, 9, 0)
    tokens, found = [*stream.prompt_ids, *stream.output_ids], []
    out = target.forward([tokens[:-1]], target.new_cache(1, 99), taps=drafter.taps)
    states = {tap: out.features[tap][0] for tap in drafter.taps}
    drafter.prefill([Request(0, [5, 9, 3], 9)], [tokens[3]], {tap: [rows[:3]] for tap, rows in states.items()})
    for at in range(3, len(tokens) - 1):
        found.append(drafter.propose([tokens[at]], 4).tokens[0])
        drafter.commit([[]], [tokens[at + 1]], {tap: [rows[at : at + 1]] for tap, rows in states.items()})
    return found


def in_blocks(one: Made, rows: int, columns: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The modules in FP8 with a scale for each block, and what these numbers stand for."""
    stored, meant = dict(one.tensors), dict(one.tensors)
    for name, tensor in one.tensors.items():
        if tensor.dim() != 2 or "layers" not in name or name.endswith(("eh_proj.weight", "gate.weight")):
            continue
        height, width = tensor.shape
        scale = 0.1 + torch.rand(-(-height // rows), -(-width // columns), generator=torch.Generator().manual_seed(1))
        spread = scale.repeat_interleave(rows, 0)[:height].repeat_interleave(columns, 1)[:, :width]
        small = (tensor.float() / spread).to(torch.float8_e4m3fn)
        stored |= {name: small, f"{name}_scale_inv": scale}
        meant[name] = (small.float() * spread).double()
    return stored, meant


@pytest.mark.parametrize("name", ["deepseek", "deepseek_dense"])
def test_fp8_blocks_are_the_numbers_that_they_stand_for(name: str, tmp_path: Path) -> None:
    """Blocks that do not divide the matrices, as DeepSeek's kv_a_proj_with_mqa."""
    one = made(name, 2)
    stored, meant = in_blocks(one, 5, 7)
    quantized = one.config | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [5, 7]}}
    around = beside(target_files(one, tmp_path / "target"))
    small = write(tmp_path / "small", quantized, {"model.safetensors": stored})
    plain = write(tmp_path / "plain", one.config, {"model.safetensors": meant})
    heads = [build(MtpSpec(path=str(folder)), around).head for folder in (small, plain)]
    states = [head.state_dict() for head in heads]  # type: ignore[attr-defined]
    assert states[0].keys() == states[1].keys()
    for key, tensor in states[0].items():
        assert torch.equal(tensor, states[1][key]), key


def test_copies_of_embedding_and_head_are_used_where_the_file_has_them(tmp_path: Path) -> None:
    """In a module of DeepSeek's, and at the root of a file that holds nothing else; never those of a trunk."""
    one = made("deepseek", 2)
    around = beside(target_files(one, tmp_path / "target"))
    generator = torch.Generator().manual_seed(3)
    embed, head, second = (torch.randn((V, 16), generator=generator, dtype=torch.float64) for _ in range(3))
    inner = {"model.layers.2.embed_tokens.weight": embed, "model.layers.2.shared_head.head.weight": head,
             "model.layers.3.embed_tokens.weight": embed, "model.layers.3.shared_head.head.weight": second}  # fmt: skip
    root = {"model.embed_tokens.weight": embed, "lm_head.weight": head}
    for extra, heads in ((inner, [head, second]), (root, [head, head])):
        folder = write(tmp_path / f"own{len(extra)}", one.config, {"model.safetensors": one.tensors | extra})
        drafter = build(MtpSpec(path=str(folder)), around)
        module = drafter.head
        assert isinstance(module, MtpHead)
        assert module.embed_tokens is not None
        assert torch.equal(module.embed_tokens.weight, embed)
        states = torch.randn((2, 16), dtype=torch.float64)
        for i, own in enumerate(heads):
            torch.testing.assert_close(module.logits(i, states), states @ own.T)
        tables = 1 + len({id(own) for own in heads})
        assert module.device_bytes(0) == build(MtpSpec(), around).device_bytes(0, 0) + 8 * tables * embed.numel()
    borrowed = build(MtpSpec(path=str(tmp_path / "target")), around).head
    assert isinstance(borrowed, MtpHead)
    assert borrowed.embed_tokens is None
    assert not borrowed.heads


def test_modules_of_another_target_are_refused_with_both_sizes(tmp_path: Path) -> None:
    one = made("glm")
    folder = write(tmp_path / "apart", one.config, {"model.safetensors": one.tensors})
    with pytest.raises(SpecError, match="hidden_size is 16 beside its MTP modules, and the target's is 32"):
        build(MtpSpec(path=str(folder)), replace(beside(tmp_path), sizes=replace(SIZES, hidden=32)))
    with pytest.raises(SpecError, match=f"vocab_size is {V} beside its MTP modules, and the target's is {V + 8}"):
        build(MtpSpec(path=str(folder)), replace(beside(tmp_path), sizes=replace(SIZES, vocab_size=V + 8)))


def test_a_target_without_modules_says_how_to_name_some(tmp_path: Path) -> None:
    one = made("glm")
    trunk = {"model.layers.0.input_layernorm.weight": torch.ones(16), "lm_head.weight": torch.ones(V, 16)}
    folder = write(tmp_path / "bare", one.config, {"model.safetensors": trunk})
    with pytest.raises(SpecError, match=r"target .*bare holds no MTP module; name a folder that does, as mtp:PATH"):
        build(MtpSpec(), beside(folder))


def test_modules_that_nobody_trained_are_noted(tmp_path: Path) -> None:
    one = made("glm")
    sound = beside(target_files(one, tmp_path / "sound"))
    build(MtpSpec(), sound)
    assert sound.notes == []
    name = next(name for name in one.tensors if name.endswith("eh_proj.weight"))
    one.tensors[name] = torch.zeros_like(one.tensors[name])
    empty = beside(target_files(one, tmp_path / "empty"))
    build(MtpSpec(), empty)
    assert [f"looks untrained: matrices that hold one value everywhere: {name}" in note for note in empty.notes] == [
        True
    ]
