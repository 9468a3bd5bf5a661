"""DSpark's serial heads: a bias of each slot's logits by the token before it, through a narrow product [DSpark].

W1 has a row of width r for every token of the target's vocabulary, W2 a column for every token that can be drafted.
A drafted token costs a row of W1 and an r x V product, and no pass of the backbone.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from codraft.drafters.layers.attention import wide


class VanillaMarkov(nn.Module):
    """W2 W1[previous]."""

    def __init__(self, vocab_size: int, draft_vocab_size: int, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab_size, bias=False)

    def begin(self, hidden_NH: Tensor) -> Tensor:
        """[N, s] memory of a block before its first draft; this one remembers nothing (s = 0)."""
        return hidden_NH.new_zeros((len(hidden_NH), 0))

    def forward(self, previous_N: Tensor, hidden_NH: Tensor, memory_Ns: Tensor) -> tuple[Tensor, Tensor]:
        """([N, V'] bias, [N, s] memory after it); `hidden_NH` is the backbone's, of the slots that draft."""
        latent_Nr, memory_Ns = self.latent(self.markov_w1(previous_N), hidden_NH, memory_Ns)
        return self.markov_w2(latent_Nr), memory_Ns

    def latent(self, embedding_Nr: Tensor, hidden_NH: Tensor, memory_Ns: Tensor) -> tuple[Tensor, Tensor]:
        """What W2 multiplies."""
        return embedding_Nr, memory_Ns


class GatedMarkov(VanillaMarkov):
    """W2 (sigmoid(G [hidden ; e]) * e), e = W1[previous]."""

    def __init__(self, vocab_size: int, draft_vocab_size: int, rank: int, hidden: int, *, bias: bool = True) -> None:
        super().__init__(vocab_size, draft_vocab_size, rank)
        self.gate_proj = nn.Linear(hidden + rank, rank, bias=bias)

    def latent(self, embedding_Nr: Tensor, hidden_NH: Tensor, memory_Ns: Tensor) -> tuple[Tensor, Tensor]:
        """See `VanillaMarkov.latent`."""
        gate_Nr = self.gate_proj(torch.cat((hidden_NH, embedding_Nr), dim=-1)).sigmoid()
        return gate_Nr * embedding_Nr, memory_Ns


class RnnMarkov(VanillaMarkov):
    """W2 tanh(o), with (g, c, o) = J [s ; e ; hidden] and s = g s + (1 - g) tanh(c), sigmoid in g; s begins at 0."""

    def __init__(self, vocab_size: int, draft_vocab_size: int, rank: int, hidden: int, *, bias: bool = True) -> None:
        super().__init__(vocab_size, draft_vocab_size, rank)
        self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank, bias=bias)

    def begin(self, hidden_NH: Tensor) -> Tensor:
        """See `VanillaMarkov.begin`; s = r."""
        return hidden_NH.new_zeros((len(hidden_NH), self.rank))

    def latent(self, embedding_Nr: Tensor, hidden_NH: Tensor, memory_Ns: Tensor) -> tuple[Tensor, Tensor]:
        """See `VanillaMarkov.latent`."""
        joint = self.joint_proj(torch.cat((memory_Ns, embedding_Nr, hidden_NH), dim=-1))
        gate_Nr, candidate_Nr, output_Nr = joint.chunk(3, dim=-1)
        gate_Nr = gate_Nr.sigmoid()
        return output_Nr.tanh(), gate_Nr * memory_Ns + (1 - gate_Nr) * candidate_Nr.tanh()


class ConfidenceHead(nn.Module):
    """Chance that a slot's draft is accepted if all before it are, from its hidden state (and W1[previous])."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, read_NC: Tensor) -> Tensor:
        """[N], in float32 at least whatever the weights are."""
        dtype = wide(read_NC.dtype)
        logit_N1 = nn.functional.linear(read_NC.to(dtype), self.proj.weight.to(dtype), self.proj.bias.to(dtype))
        return logit_N1[:, 0].sigmoid()


def markov_head(
    kind: str, vocab_size: int, draft_vocab_size: int, rank: int, hidden: int, *, bias: bool
) -> VanillaMarkov:
    """The head that a config names, one of formats/heads/head.py's MARKOV_KINDS."""
    makers: Mapping[str, Callable[[], VanillaMarkov]] = {
        "vanilla": lambda: VanillaMarkov(vocab_size, draft_vocab_size, rank),
        "gated": lambda: GatedMarkov(vocab_size, draft_vocab_size, rank, hidden, bias=bias),
        "rnn": lambda: RnnMarkov(vocab_size, draft_vocab_size, rank, hidden, bias=bias),
    }
    return makers[kind]()
