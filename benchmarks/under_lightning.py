"""How does Lightning's Trainer run one epoch of a classifier at its fastest setting (`barebones=True`)?"""

import logging
import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer


def train_under_lightning(
    model: nn.Module, optimizer: Optimizer, loader: Iterable[Any], **trainer: Any
) -> None:
    """One epoch on the CPU, in silence; `trainer` are further arguments of `lightning.Trainer`."""
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            images, labels = batch
            return cross_entropy(self.model(images), labels)

        def configure_optimizers(self) -> Optimizer:
            return optimizer

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, barebones=True, **trainer)
        runs.fit(Classifier(), train_dataloaders=loader)
