"""What must have happened before a learner's training step is timed? The first step of any optimizer.

It imports half of torch, which takes a busy machine many seconds.
"""


def import_what_a_first_step_imports() -> None:
    """Take a step, of one number."""
    import torch

    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    torch.optim.SGD([weight], lr=0.1).step()
