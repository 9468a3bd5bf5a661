"""A checkpoint without its weights: config, index, tensor headers, names of weight files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.jsonfile import INDEX_FILE, INDEX_SUFFIX, MAX_TENSORS, quoted, read_json, read_weight_map
from codraft.formats.safetensors import TensorInfo, read_header
from codraft.formats.source import PICKLES, HubSource, Source, open_source

WEIGHTS = "model.safetensors"
# What Model-Optimizer writes beside config.json, and the keys of that which make it unnecessary.
HF_QUANT = "hf_quant_config"
QUANTIZATION = ("quantization_config", "compression_config", HF_QUANT, "quantization")
# Weights in another layout, or of another kind, that lie beside the model's own.
ASIDE = ("consolidated", "adapter_model")
# Pickled, but no weights: what a trainer leaves behind.
TRAINER_FILES = ("training_args.*", "optimizer.*", "scheduler.*", "scaler.*", "rng_state*")
HUB_THREADS = 8
# All headers of a checkpoint; a million tensors with names of 100 characters have 200 MB.
MAX_HEADERS_BYTES = 256 << 20

Headers = Mapping[str, Mapping[str, TensorInfo]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What model.safetensors.index.json says beside what lies there; all lists are sorted.

    `absent_files`: shards that it names and that are not there. `absent_tensors`: tensors that it names and that their
    shard does not hold, where the shard is there. `unlisted_files`: weight files that lie there and that it does not
    name (mtp.safetensors is the usual one). `unlisted_tensors`: tensors in listed shards that it does not name.
    """

    file: str
    weight_map: Mapping[str, str]
    absent_files: list[str]
    absent_tensors: list[str]
    unlisted_files: list[str]
    unlisted_tensors: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that can be known without reading weights.

    `config` holds what a hf_quant_config.json says under the key of that name, where it names no quantization itself.
    `tensors` holds those an engine would find: of the indexed shards, or of model.safetensors, or of all safetensors
    files at the top where there is neither. `files` names these files as far as they are there: none where all indexed
    shards are absent (`index.absent_files`), whatever lies beside. `unlisted` holds the tensors of the other files,
    save those that `tensors` has. `duplicated` names tensors that several of `files` hold; the indexed one or else the
    first stands. `pickled` names weight files in pickle format (.bin, .pt), which are not opened.
    """

    source: Source
    config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]
    files: list[str] = field(default_factory=list)
    index: Index | None = None
    unlisted: Mapping[str, TensorInfo] = field(default_factory=dict)
    duplicated: list[str] = field(default_factory=list)
    pickled: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The model as people name it."""
        return self.source.label

    @property
    def lacks_files(self) -> bool:
        """Whether indexed shards are missing, so that nothing can be said of what the checkpoint lacks."""
        return self.index is not None and bool(self.index.absent_files)


def open_checkpoint(model: str) -> Checkpoint:
    """Config and headers of `demo`, a folder, a file in one, or a hub id. Without weight files `tensors` is empty."""
    return read_checkpoint(open_source(model))


def read_checkpoint(source: Source) -> Checkpoint:
    """Everything but the weights of a source."""
    present = sorted(name for name in source.sizes() if name.endswith(".safetensors"))
    check_format(source, present)
    config = with_quantization(source, read_json(source, "config.json"))
    index_file = find_index(source)
    weight_map = {} if index_file is None else read_weight_map(source, index_file)
    named = sorted(set(weight_map.values())) if index_file else unindexed(present)
    files = [name for name in named if name in source.sizes()]
    others = [name for name in present if name not in files and "/" not in name]
    headers = read_headers(source, [*files, *others])
    tensors, duplicated = joined(source, {name: headers[name] for name in files}, weight_map)
    unlisted = {name: info for file in others for name, info in headers[file].items() if name not in tensors}
    return Checkpoint(
        source=source,
        config=config,
        tensors=tensors,
        files=files,
        index=None if index_file is None else compared(index_file, weight_map, headers, files, others),
        unlisted=unlisted,
        duplicated=duplicated,
        pickled=sorted(name for name in source.sizes() if is_pickled(name)),
    )


def with_quantization(source: Source, config: dict[str, Any]) -> dict[str, Any]:
    """A config with the content of hf_quant_config.json under that key, where it names no quantization itself."""
    file = f"{HF_QUANT}.json"
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    named = any(isinstance(part.get(key), Mapping) for part in parts for key in QUANTIZATION)
    if named or file not in source.sizes():
        return config
    return {**config, HF_QUANT: read_json(source, file)}


def check_format(source: Source, present: list[str]) -> None:
    """Refuse what is not a transformers checkpoint, with the way to one."""
    files = source.sizes()
    where = f"model {source.label}"
    if "adapter_config.json" in files and all(name.startswith("adapter_model") for name in present):
        raise SpecError(f"{where} is a LoRA adapter (adapter_config.json); merge it into its base model first")
    if "config.json" in files:
        return
    foreign = [name for name in sorted(files) if name == "params.json" or name.endswith(".gguf")]
    if foreign:
        raise SpecError(
            f"{where} has no config.json but {quoted(foreign[0])}, which is another format; convert it to a "
            f"transformers checkpoint first"
        )
    raise SpecError(f"{where} has no config.json; name the folder or hub id that holds config.json and weights")


def find_index(source: Source) -> str | None:
    """The index that engines read, or else the only one there is."""
    found = [name for name in source.sizes() if name.endswith(INDEX_SUFFIX) and "/" not in name]
    if INDEX_FILE in found:
        return INDEX_FILE
    return found[0] if len(found) == 1 else None


def unindexed(present: list[str]) -> list[str]:
    """The files an engine would read where no index names any."""
    top = [name for name in present if "/" not in name]
    return [WEIGHTS] if WEIGHTS in top else [name for name in top if not name.startswith(ASIDE)] or top


def is_pickled(name: str) -> bool:
    """Is this a weight file in pickle format, by its name?"""
    return name.endswith(PICKLES) and "/" not in name and not any(fnmatchcase(name, kind) for kind in TRAINER_FILES)


def read_headers(source: Source, files: list[str]) -> dict[str, dict[str, TensorInfo]]:
    """Tensors of each file. A hub is asked for several at a time; local files are read faster one by one."""
    if not isinstance(source, HubSource):
        return within_bounds(source, ((file, read_header(source, file)[0]) for file in files))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(HUB_THREADS) as pool:
        found = pool.map(lambda file: read_header(source, file)[0], files)
        try:
            return within_bounds(source, zip(files, found, strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def within_bounds(
    source: Source, found: Iterable[tuple[str, dict[str, TensorInfo]]]
) -> dict[str, dict[str, TensorInfo]]:
    """Headers by file as they come, refused where they are too many for one model."""
    before, num_tensors = source.bytes_read, 0
    headers: dict[str, dict[str, TensorInfo]] = {}
    for file, table in found:
        headers[file] = table
        num_tensors += len(table)
        if num_tensors > MAX_TENSORS or source.bytes_read - before > MAX_HEADERS_BYTES:
            most = f"{MAX_TENSORS} tensors" if num_tensors > MAX_TENSORS else f"{MAX_HEADERS_BYTES} bytes of headers"
            raise SpecError(
                f"model {source.label} has more than {most} up to {quoted(file)}; check that it is one model's folder"
            )
    return headers


def joined(source: Source, headers: Headers, weight_map: Mapping[str, str]) -> tuple[dict[str, TensorInfo], list[str]]:
    """(tensors of all files, names that several files hold). Without an index two of different shape are refused."""
    tensors: dict[str, TensorInfo] = {}
    duplicated: set[str] = set()
    for file, table in headers.items():
        twice = table.keys() & tensors.keys()
        for name in twice:
            check_same(source, tensors[name], table[name], weight_map)
        kept = {name: tensors[name] for name in twice if weight_map.get(name) != file}
        tensors |= table
        tensors |= kept
        duplicated |= twice
    return tensors, sorted(duplicated)


def check_same(source: Source, one: TensorInfo, other: TensorInfo, weight_map: Mapping[str, str]) -> None:
    """Two tensors of one name and different shapes are refused where no index tells which counts."""
    if one.shape != other.shape and not weight_map:
        raise SpecError(
            f"model {source.label}: tensor {quoted(one.name)} is in {quoted(one.file)} and in {quoted(other.file)} "
            f"with different shapes, and no index says which counts; remove one file"
        )


def compared(
    file: str, weight_map: Mapping[str, str], headers: Headers, files: Iterable[str], others: list[str]
) -> Index:
    """The index `file` beside the shards that are there (`files`) and the other weight files."""
    held = {name for shard in files for name in headers[shard]}
    return Index(
        file=file,
        weight_map=weight_map,
        absent_files=sorted(set(weight_map.values()) - headers.keys()),
        absent_tensors=sorted(
            name for name, shard in weight_map.items() if shard in headers and name not in headers[shard]
        ),
        unlisted_files=others,
        unlisted_tensors=sorted(held - weight_map.keys()),
    )
