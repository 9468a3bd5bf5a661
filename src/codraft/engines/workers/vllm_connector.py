"""vLLM's own connector for hidden states, on a machine without CUDA: copies and writes at once, in one thread.

Belongs to vLLM's environment; `vllm_features.py` names it to the engine there.
"""

import os
from pathlib import Path

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)


class Done:
    """An event that has happened."""

    def query(self) -> bool:
        """Whether it has."""
        return True


class PlainHiddenStatesConnector(ExampleHiddenStatesConnector):  # type: ignore[misc]
    """As its parent, whose streams and events are CUDA's."""

    def _submit_async_write(self, pending: PendingSave) -> None:
        assert self._kv_cache is not None
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)
        slots = (blocks[:, None] * self._block_size + torch.arange(self._block_size)).flatten()
        states = extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids))
        Path(pending.filename).parent.mkdir(parents=True, exist_ok=True)
        save_file({"hidden_states": states.contiguous(), "token_ids": pending.token_ids}, pending.filename)
        lock = self._lock_fds.pop(pending.req_id, None)
        if lock is not None:
            os.close(lock)
        self._req_copy_events[pending.req_id] = Done()
