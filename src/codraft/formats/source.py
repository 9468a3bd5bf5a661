"""Where a checkpoint's files lie: a folder here, one file, or a hub repository read by byte ranges."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Protocol

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.hub import EMBEDDED_FOLDERS, PATTERNS, embedded_path, hub_errors, import_client
from codraft.formats.jsonfile import INDEX_FILE, INDEX_SUFFIX, place, plain, quoted, read_weight_map

# Files that the hub's cache keeps whole; of all others byte ranges are read.
SMALL = (".json", ".txt", ".jinja", ".model")
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
# Files that count by how their names end, whatever these begin with.
COUNTED = (".safetensors", INDEX_SUFFIX, ".tiktoken", *PICKLES)
# What following a link that leads nowhere ends with.
DEAD_LINK = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)
# The first range asked of a file: most headers are shorter, and a second request costs more than the bytes.
FIRST_RANGE_BYTES = 128 << 10
TIMEOUT_S = 10.0
RETRIES = 3


class Source(Protocol):
    """Files by name, read in pieces. Names are relative, with `/`."""

    @property
    def label(self) -> str:
        """The model as people name it: the folder or the hub id."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""
        ...

    def sizes(self) -> dict[str, int]:
        """Bytes of every file that a checkpoint may be made of."""
        ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes [start, stop) of a file; SpecError where it cannot be read or is shorter."""
        ...


def open_source(model: str) -> Source:
    """`demo`, a folder, a config.json or safetensors file in one, or a hub id (`owner/name[@revision]`)."""
    if not model:
        raise SpecError("the model's name is empty; name a folder (. is the current one), a hub id or 'demo'")
    if model in EMBEDDED_FOLDERS:
        return open_embedded(model)
    try:
        path = Path(model).expanduser()
        if path.is_dir():
            return FolderSource(path, str(Path(model)))
        if path.is_file():
            return open_file(path, str(Path(model).parent))
    except (OSError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise SpecError(f"cannot read model {quoted(model)}: {reason}; check the path") from error
    return open_hub(model)


def open_embedded(name: str) -> "FolderSource":
    """An embedded model that is already in the cache folder: making it needs torch."""
    folder = embedded_path(name)
    if not (folder / "config.json").is_file():
        raise CapabilityError(
            f"the embedded model '{name}' has not been prepared in {folder} yet; run 'codraft tune {name}' once (it "
            f"needs torch: pip install 'codraft[torch]')"
        )
    return FolderSource(folder, name)


def open_file(path: Path, label: str) -> "FolderSource":
    """The folder of a config.json; of an index, without other indexes; a lone safetensors file and the JSON beside."""
    if path.name == "config.json":
        return FolderSource(path.parent, label)
    if path.name.endswith((INDEX_SUFFIX, ".safetensors")):
        rivals = (INDEX_SUFFIX, ".safetensors") if path.suffix == ".safetensors" else INDEX_SUFFIX
        return FolderSource(path.parent, label, lambda name: name == path.name or not name.endswith(rivals))
    raise SpecError(
        f"model {plain(str(path))} is a file of another kind; name the folder that holds config.json and weights"
    )


class FolderSource:
    """A folder on this machine, or those of its files that `wanted` lets through. Its subfolders count, theirs not."""

    def __init__(self, folder: Path, label: str, wanted: Callable[[str], bool] | None = None) -> None:
        self.folder, self.label, self.bytes_read = folder, label, 0
        sizes = {name: size for name, size in folder_sizes(folder).items() if wanted is None or wanted(name)}
        self._sizes = recordable(sizes, label)

    def sizes(self) -> dict[str, int]:
        """As they were when the folder was opened."""
        return self._sizes

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes [start, stop) of a file."""
        stop = checked_stop(self, name, start, stop)
        self.bytes_read += stop - start
        return read_piece(self.folder / name, start, stop)


def folder_sizes(folder: Path) -> dict[str, int]:
    """Bytes of the plain files in a folder and in its subfolders that are not hidden; dead links are left out."""
    sizes: dict[str, int] = {}
    inner: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found = looked_up(entry)
            if found and is_plain(found):
                sizes[entry.name] = found.st_size
            elif found and stat.S_ISDIR(found.st_mode) and not entry.name.startswith("."):
                inner.append(entry.name)
    for name in inner:
        if os.access(folder / name, os.R_OK | os.X_OK):
            with os.scandir(folder / name) as entries:
                files = ((entry.name, looked_up(entry)) for entry in entries)
                sizes |= {f"{name}/{file}": found.st_size for file, found in files if found and is_plain(found)}
    return sizes


def looked_up(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """What lies behind an entry of a folder, None where its link is dead or leads in a circle."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in DEAD_LINK:
            return None
        raise


def is_plain(found: os.stat_result) -> bool:
    """Is it a regular file, neither folder nor pipe nor device?"""
    return stat.S_ISREG(found.st_mode)


def recordable(sizes: dict[str, int], label: str) -> dict[str, int]:
    """The files whose names a record can hold; refused where one of the others counts."""
    kept: dict[str, int] = {}
    for name, size in sizes.items():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            if name.endswith(COUNTED) and "/" not in name:
                raise SpecError(
                    f"model {label} has a file {quoted(name)}, whose name is not UTF-8 text and fits no record; rename "
                    f"it"
                ) from error
        else:
            kept[name] = size
    return kept


def checked_stop(source: Source, name: str, start: int, stop: int | None) -> int:
    """`stop`, or the end of the file; refused before anything is read where the file is not there or shorter."""
    size = source.sizes().get(name)
    if size is None:
        raise SpecError(f"{source.label} has no file {quoted(name)}; check the download")
    stop = size if stop is None else stop
    if not 0 <= start <= stop <= size:
        raise SpecError(
            f"{place(source, name)} has {size} bytes, so bytes {start} to {stop} are not there; fetch it again"
        )
    return stop


def read_piece(path: Path, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of a local file."""
    where = plain(str(path))
    try:
        with open(path, "rb", opener=opened_at_once) as handle:
            if not is_plain(os.fstat(handle.fileno())):
                raise SpecError(f"{where} is no longer a regular file; check the file")
            handle.seek(start)
            data = handle.read(stop - start)
    except OSError as error:
        raise SpecError(f"cannot read {where}: {error.strerror or error}; check the file") from error
    if len(data) < stop - start:
        raise SpecError(f"{where} ends at byte {start + len(data)}, {stop} were expected; fetch it again")
    return data


def opened_at_once(path: str, flags: int) -> int:
    """An open file's number; a pipe that has taken the file's place is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class HubSource:
    """A hub repository at one commit. Small files go through the hub's cache; of the others only ranges are read, from
    several threads if need be."""

    def __init__(self, label: str, commit: str, sizes: dict[str, int]) -> None:
        self.label, self.commit, self.bytes_read = label, commit, 0
        self._sizes = sizes
        self._heads: dict[str, bytes] = {}
        self._lock = Lock()

    @property
    def repo(self) -> str:
        """owner/name."""
        return self.label.partition("@")[0]

    def sizes(self) -> dict[str, int]:
        """As the hub lists them."""
        return self._sizes

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes [start, stop) of a file. The first request for a file's start fetches a little more, and keeps it."""
        stop = checked_stop(self, name, start, stop)
        if name.endswith(SMALL):
            data = read_piece(self.cached(name), start, stop)
            self.count(len(data))
            return data
        if start == 0 and stop <= FIRST_RANGE_BYTES and name not in self._heads:
            self._heads[name] = self.fetch_range(name, 0, min(self._sizes[name], FIRST_RANGE_BYTES))
        held = self._heads.get(name, b"")[start:stop]
        return held + self.fetch_range(name, start + len(held), stop)

    def cached(self, name: str) -> Path:
        """A small file in the hub's cache, fetched if it is not there yet."""
        with hub_errors(self.label):
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(self.repo, name, revision=self.commit))

    def fetch_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes [start, stop) by one request; never more, whatever the server sends."""
        if start >= stop:
            return b""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff  # type: ignore[attr-defined]

        url = hf_hub_url(self.repo, name, revision=self.commit)
        headers = {**build_hf_headers(), "Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        data = bytearray()
        with (
            hub_errors(self.label),
            http_stream_backoff("GET", url, headers=headers, timeout=TIMEOUT_S, max_retries=RETRIES) as response,
        ):
            hf_raise_for_status(response)
            if response.status_code != 206:
                raise SpecError(
                    f"the hub gives {place(self, name)} only as a whole (no byte ranges); fetch the model and name its "
                    f"folder"
                )
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) >= stop - start:
                    break
        if len(data) < stop - start:
            raise SpecError(f"the hub sent {len(data)} of {stop - start} bytes of {place(self, name)}; try again")
        self.count(stop - start)
        return bytes(data[: stop - start])

    def count(self, num_bytes: int) -> None:
        """Add to the bytes read."""
        with self._lock:
            self.bytes_read += num_bytes


def open_hub(model: str) -> Source:
    """A hub repository, or its whole copy in the hub's cache where the hub cannot be asked."""
    import_client()
    from huggingface_hub import HfApi

    repo, _, revision = model.partition("@")
    try:
        with hub_errors(model):
            info = HfApi().model_info(repo, revision=revision or None, files_metadata=True, timeout=TIMEOUT_S)
    except SpecError:
        copy = cached_copy(model)
        if copy is None:
            raise
        return copy
    sizes = {file.rfilename: file.size for file in info.siblings or [] if file.rfilename.count("/") <= 1}
    known = {name: size for name, size in sizes.items() if size is not None}
    return HubSource(model, str(info.sha), recordable(known, model))


def cached_copy(model: str) -> FolderSource | None:
    """The copy of a repository in the hub's cache, None where there is none or its weights are not all there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    repo, _, revision = model.partition("@")
    try:
        folder = snapshot_download(repo, revision=revision or None, allow_patterns=PATTERNS, local_files_only=True)
    except (OSError, HFValidationError):
        return None
    source = FolderSource(Path(folder), model)
    files = source.sizes()
    needed = set(read_weight_map(source).values()) if INDEX_FILE in files else set()
    complete = needed <= files.keys() and any(name.endswith(".safetensors") for name in files)
    return source if complete else None
