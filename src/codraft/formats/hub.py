"""The cache folder, and models and data sets fetched from the hub.

No hub is reachable from the machines codraft is developed on; this code is tested against a local server.
"""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.files import sha256_file, write_failure
from codraft.formats.jsonfile import printable

# What a causal LM needs; weights as safetensors only.
PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt"]
# Early drafter heads have their weights in this one.
PICKLE = "pytorch_model.bin"

# Folders of the embedded models in the cache. Bump the version when what is written changes, so that old caches are not
# mistaken for new ones.
EMBEDDED_FOLDERS = {"demo": "smollm2-135m-instruct-v1", "demo-noisy": "smollm2-135m-noisy-v1"}


def cache_root() -> Path:
    """`CODRAFT_CACHE`, or the platform's cache folder."""
    if given := os.environ.get("CODRAFT_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "codraft"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "codraft"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "codraft"


def embedded_path(name: str) -> Path:
    """Where the checkpoint of an embedded model (`demo`, `demo-noisy`) lies once it is made."""
    return cache_root() / "models" / EMBEDDED_FOLDERS[name]


def import_client() -> None:
    """SpecError where the hub's client does not even start, which reads its settings when it is imported."""
    try:
        import huggingface_hub.constants  # noqa: F401
    except ValueError as error:
        names = [
            name for name, value in sorted(os.environ.items()) if name.startswith("HF_") and repr(value) in str(error)
        ]
        which = f"the environment variable {names[0]}" if names else "the environment variables HF_..."
        raise SpecError(f"the hub's client does not start ({printable(str(error))}); mend or unset {which}") from error


@contextmanager
def hub_errors(model_id: str) -> Iterator[None]:
    """Whatever the hub's client raises about a model becomes one sentence."""
    import_client()
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repo, _, revision = model_id.partition("@")
    try:
        yield
    except SpecError:
        raise
    except HFValidationError as error:
        raise SpecError(
            f"model '{model_id}' is neither a folder here nor a hub id (owner/name); check the path"
        ) from error
    except GatedRepoError as error:
        raise SpecError(
            f"hub model '{repo}' is gated; accept its terms on its page and log in (hf auth login)"
        ) from error
    except RepositoryNotFoundError as error:
        raise SpecError(
            f"model '{model_id}' is neither a folder here nor on the hub; check the name (private models need a token)"
        ) from error
    except RevisionNotFoundError as error:
        raise SpecError(f"hub model '{repo}' has no revision '{revision}'; check what follows the @") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise SpecError(write_failure(Path("the hub's cache folder"), error)) from error
        raise SpecError(
            f"model '{model_id}' is not a folder here and the hub cannot be reached ({why(error)}); give a local "
            f"folder, or 'demo'"
        ) from error


def why(error: Exception) -> str:
    """The first line of what went wrong; the server may have written it."""
    return printable((str(error) or type(error).__name__).splitlines()[0])


def fetch_model(model_id: str, *, sha256: Mapping[str, str] | None = None, pickled: bool = False) -> Path:
    """Local snapshot of a hub model; `ID@REVISION` pins one, `sha256` the content of named files. `pickled`: of a
    repository without safetensors `pytorch_model.bin` too, for callers that read nothing but plain tensors of it."""
    repo, _, revision = model_id.partition("@")
    with hub_errors(model_id):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(repo, revision=revision or None, allow_patterns=PATTERNS)
        if pickled and not any(Path(folder).rglob("*.safetensors")):
            folder = snapshot_download(repo, revision=revision or None, allow_patterns=[*PATTERNS, PICKLE])
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise SpecError(f"hub model '{model_id}' has no config.json, so it is not a transformers model")
    for name, expected in (sha256 or {}).items():
        found = sha256_file(path / name) if (path / name).is_file() else "no such file"
        if found != expected:
            raise SpecError(
                f"hub model '{model_id}': {name} is not the pinned file (sha256 {found[:12]}, expected "
                f"{expected[:12]}); delete {path.parents[1]} and try again"
            )
    return path


def fetch_dataset(repo: str, pattern: str, *, instead: str) -> list[Path]:
    """Local copies of a hub data set's files that match `pattern`, in order; `instead` ends the refusal."""
    import_client()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = snapshot_download(repo, repo_type="dataset", allow_patterns=[pattern])
    except RepositoryNotFoundError as error:
        raise SpecError(
            f"hub data set '{repo}' is not on the hub, or asks for a token (hf auth login); {instead}"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise SpecError(write_failure(Path("the hub's cache folder"), error)) from error
        raise SpecError(f"hub data set '{repo}' cannot be fetched ({why(error).rstrip('.')}); {instead}") from error
    files = sorted(Path(folder).glob(pattern))
    if not files:
        raise SpecError(f"hub data set '{repo}' gave no file {pattern}; {instead}")
    return files
