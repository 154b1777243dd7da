"""How little does a data-parallel training need? Twenty lines; they run alone, and under torchrun."""

# mypy: allow-untyped-calls

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from course_lib.models.zoo import DigitsCNN
from course_lib.train.data import Digits
from course_lib.train.distributed import process_group
from course_lib.train.ranks.global_batches import GlobalBatches


def main(epochs: int = 3) -> float:
    """Train on the digits, 64 in a global batch; the mean loss of the last epoch."""
    with process_group() as ranks:  # becomes a rank; always taken down
        dataset = Digits("train")
        batches = GlobalBatches(dataset, 64, rank=ranks.rank, world_size=ranks.world_size)
        loader = DataLoader(dataset, batch_sampler=batches)  # this rank's share
        model = ranks.wrap(DigitsCNN())  # on its device, with rank 0's weights
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for epoch in range(epochs):
            batches.set_epoch(epoch)  # another order
            total = samples = 0.0
            for (images, labels), scale in zip(loader, batches.scales(), strict=True):
                optimizer.zero_grad()
                loss = cross_entropy(model(images.to(ranks.device)), labels.to(ranks.device))
                (loss * scale).backward()  # scale is 1, but for unequal shares
                optimizer.step()
                total += float(loss.detach()) * len(labels)
                samples += len(labels)
            mean = ranks.mean(total, samples)  # each sample counts once
            ranks.print(f"epoch {epoch + 1}: loss {mean:.3f}")  # rank 0 only
    return mean
