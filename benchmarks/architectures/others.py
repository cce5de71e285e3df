"""Recurrent nets, nets on graphs, and operators of functions."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
import torch_geometric
from torch import Tensor, nn

from architectures.training import Training, architecture, tokens


class Tagger(nn.Module):
    """Sequences of different lengths through a bidirectional LSTM and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, 32, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.gru = nn.GRU(64, 32, batch_first=True)
        self.head = nn.Linear(32, 8)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Map token ids (batch, sequence) to logits."""
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        logits: Tensor = self.head(self.gru(hidden)[0])
        return logits


@architecture("LSTM and GRU on packed sequences, gradients clipped")
def lstm() -> Training:
    model = Tagger().train()
    ids, lengths, tags = tokens(batch=4, length=16), torch.tensor([16, 9, 12, 4]), torch.randint(8, (4, 16))
    return Training(
        model,
        lambda: F.cross_entropy(model(ids, lengths).flatten(0, 1), tags.flatten()),
        optimizer=partial(ClippedAdam, lr=1e-3),
    )


class ClippedAdam(torch.optim.Adam):
    """Adam that clips the gradients first."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Clip and step."""
        nn.utils.clip_grad_norm_([each for group in self.param_groups for each in group["params"]], 0.1)
        super().step(closure)


class SpectralConvolution(nn.Module):
    """Mixes channels of the lowest frequencies."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, modes, dtype=torch.cfloat) / channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map functions (batch, channels, height, width) to functions."""
        spectrum = torch.fft.rfft2(x)
        mixed = torch.zeros_like(spectrum)
        low = (..., slice(self.modes), slice(self.modes))
        mixed[low] = torch.einsum("bixy,ioxy->boxy", spectrum[low], self.weight)
        return torch.fft.irfft2(mixed, s=x.shape[-2:])


class FourierOperator(nn.Module):
    """Fourier neural operator of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Conv2d(1, 8, 1)
        self.spectral = nn.ModuleList(SpectralConvolution(8, 4) for _ in range(2))
        self.local = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(2))
        self.project = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map a function to a function."""
        x = self.lift(x)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            x = F.gelu(spectral(x) + local(x))
        result: Tensor = self.project(x)
        return result


@architecture("Fourier neural operator: complex weights")
def fno() -> Training:
    model = FourierOperator()
    x, y = torch.randn(2, 1, 16, 16), torch.randn(2, 1, 16, 16)
    return Training(model, lambda: F.mse_loss(model(x), y))


@architecture("nn.Transformer with dropout")
def transformer() -> Training:
    model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True).train()
    source, target = torch.randn(2, 8, 32), torch.randn(2, 6, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    return Training(model, lambda: model(source, target, tgt_mask=mask).square().mean())


def graph() -> tuple[Tensor, Tensor, Tensor]:
    """Return features and classes of 20 nodes and 60 edges between them."""
    return torch.randn(20, 16), torch.randint(20, (2, 60)), torch.randint(4, (20,))


@architecture("GCN")
def gcn() -> Training:
    model = torch_geometric.nn.models.GCN(16, 32, 2, 4, dropout=0.2).train()
    features, edges, classes = graph()
    return Training(model, lambda: F.cross_entropy(model(features, edges), classes))


@architecture("GAT: attention over neighbours")
def gat() -> Training:
    model = torch_geometric.nn.models.GAT(16, 32, 2, 4, heads=2).train()
    features, edges, classes = graph()
    return Training(model, lambda: F.cross_entropy(model(features, edges), classes))


@architecture("GIN with pooled graphs")
def gin() -> Training:
    model = torch_geometric.nn.models.GIN(16, 32, 2, 4).train()
    features, edges, _ = graph()
    batch, classes = torch.arange(20) // 10, torch.randint(4, (2,))
    return Training(
        model,
        lambda: F.cross_entropy(torch_geometric.nn.global_add_pool(model(features, edges), batch), classes),
    )


@architecture("Graph convolution by a sparse matrix")
def sparse_gcn() -> Training:
    lift, head = nn.Linear(16, 32), nn.Linear(32, 4)
    model = nn.Sequential(lift, head)
    features, edges, classes = graph()
    adjacency = torch.sparse_coo_tensor(edges, torch.rand(60), (20, 20))

    def loss() -> Tensor:
        hidden = torch.relu(torch.sparse.mm(adjacency, lift(features)))
        return F.cross_entropy(torch.sparse.mm(adjacency, head(hidden)), classes)

    return Training(model, loss)
