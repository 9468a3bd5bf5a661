"""Conversions keep every byte and every meaning, there and back, for heads with any options of any family."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.conversion import ConversionRecord
from codraft.core.errors import SpecError
from codraft.formats.heads.convert import convert
from codraft.formats.heads.head import Markov
from codraft.formats.heads.meaning import differences
from codraft.formats.heads.plan import Conversion
from codraft.formats.heads.spellings import LAYOUTS

from tests.formats.heads import made

PAIRS = [
    *(("eagle3", a, b) for a in made.EAGLE3 for b in LAYOUTS["eagle3"]),
    *(("dflash", a, b) for a in made.DFLASH for b in LAYOUTS["dflash"]),
    *(("dspark", a, b) for a in made.DSPARK for b in LAYOUTS["dspark"]),
]
ADDED = {"d2t", "t2d", "embed_tokens.weight", "lm_head.weight"}


# Conversions wait for the disk at their end; in memory they do not.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def strategy(mechanism: str, family: str, *, plain: bool) -> st.SearchStrategy[made.Made]:
    """Heads of a family; `plain` ones have no option that some layout lacks."""
    if mechanism == "eagle3":
        return made.eagle3(family, plain=plain)
    return made.block(mechanism, family, plain=plain)


# What DeepSpec's EAGLE-3 always has, and two layouts never.
NEVER = {("deepspec", "safeailab"), ("deepspec", "modelopt")}


def unlike(one: Path, other: Path) -> list[tuple[Any, Any]]:
    """Options that differ; a Markov head that is not there, or has no confidence head, has no more to say."""
    ours, theirs = made.options_of(one), made.options_of(other)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    return [(a, b) for a, b in pairs if not (isinstance(a, Markov) and isinstance(b, Markov) and said(a) == said(b))]


def said(markov: Markov) -> tuple[Any, ...]:
    """What a Markov head says that counts."""
    joined = markov.confidence and markov.confidence_with_markov
    return markov.rank, markov.kind if markov.rank else None, markov.confidence, joined


def run(source: Path, to: str, output: Path, target: Path | None = None, engine: str | None = None) -> ConversionRecord:
    """One conversion."""
    return convert(
        Conversion(
            source=str(source), to=to, output=output, target=None if target is None else str(target), engine=engine
        )
    )


@pytest.mark.parametrize(("mechanism", "family", "to"), PAIRS)
@settings(max_examples=10)
@given(data=st.data(), plain=st.booleans())
def test_there_and_back_gives_the_same_tensors_and_the_same_head(
    mechanism: str, family: str, to: str, data: st.DataObject, *, plain: bool
) -> None:
    head = data.draw(strategy(mechanism, family, plain=plain))
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        source, target = head.write(folder / "a"), made.write_target(folder / "target")
        said = ""
        try:
            record = run(source, to, folder / "b", target)
        except SpecError as error:
            said = str(error)
        if said:
            # What a layout cannot say is named, and nothing is there.
            assert "files c" in said
            assert "\n" not in said
            assert sorted(path.name for path in folder.iterdir()) == ["a", "target"]
            assert not plain or (family, to) in NEVER
            return
        assert differences(made.meaning(source), made.meaning(folder / "b")) == []
        assert unlike(source, folder / "b") == []
        assert (record.from_format, record.to_format) == (family, to)
        before, after = made.by_canonical(source), made.by_canonical(folder / "b")
        assert {key: before[key] for key in before.keys() & after.keys()} == {
            key: after[key] for key in before.keys() & after.keys()
        }
        assert before.keys() - after.keys() == set(record.dropped)
        assert after.keys() - before.keys() == {*record.filled, *record.derived} <= ADDED
        if family not in LAYOUTS[mechanism]:
            return
        run(folder / "b", family, folder / "again", target)
        assert made.stored(folder / "again") == made.stored(source)
        assert differences(made.meaning(source), made.meaning(folder / "again")) == []
        assert unlike(source, folder / "again") == []


@pytest.mark.parametrize(("mechanism", "family"), [(m, f) for m in ("eagle3", "dflash", "dspark") for f in LAYOUTS[m]])
@settings(max_examples=5)
@given(data=st.data(), shards=st.integers(1, 3))
def test_the_same_layout_is_a_copy(mechanism: str, family: str, data: st.DataObject, shards: int) -> None:
    head = data.draw(strategy(mechanism, family, plain=False))
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        source, result = head.write(Path(name) / "a", shards), Path(name) / "b"
        record = run(source, family, result)

        assert (result / "config.json").read_bytes() == (source / "config.json").read_bytes()
        assert made.stored(result) == made.stored(source)
        assert (record.filled, record.derived, record.dropped) == ([], [], [])
        if shards == 1:
            names = [list(made.stored(folder)) for folder in (source, result)]
            assert sorted(names[0]) == sorted(names[1])


@pytest.mark.parametrize("to", ["safeailab", "modelopt"])
@settings(max_examples=12)
@given(data=st.data())
def test_for_vllm_more_can_be_said_and_means_the_same(to: str, data: st.DataObject) -> None:
    head = data.draw(made.eagle3("speculators"))
    layers = head.config["transformer_layer_config"]["num_hidden_layers"]
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        source, target = head.write(folder / "a"), made.write_target(folder / "target")
        if to == "safeailab" and layers == 2:
            with pytest.raises(SpecError, match="SafeAILab files cannot say 2 layers"):
                run(source, to, folder / "b", target, "vllm")
            return
        run(source, to, folder / "b", target, "vllm")
        assert differences(made.meaning(source), made.meaning(folder / "b")) == []
        # The key that both runners of vLLM read first, as inputs of layers.
        outputs: Any = made.meaning(source)["layer ids"]
        assert made.config_of(folder / "b")["eagle_aux_hidden_state_layer_ids"] == [i + 1 for i in outputs]
