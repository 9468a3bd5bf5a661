"""The drafters that lie beside this code in its repository, trained for the embedded model. A wheel is without them."""

import os
from pathlib import Path

from codraft.core.spec import MECHANISMS

MODELS = Path(__file__).parents[3] / "models"
PREFIX = "smollm2-135m-"


def shipped() -> dict[str, str]:
    """Folder by mechanism, in the order of the vocabulary; relative where one stands in the repository."""
    folders = {mechanism: MODELS / f"{PREFIX}{mechanism}" for mechanism in MECHANISMS}
    found = {mechanism: folder for mechanism, folder in folders.items() if (folder / "config.json").is_file()}
    here = Path.cwd().resolve()
    return {
        mechanism: os.path.relpath(folder, here) if folder.is_relative_to(here) else str(folder)
        for mechanism, folder in found.items()
    }
