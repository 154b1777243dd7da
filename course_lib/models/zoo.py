"""Which models does the course train, and how is one built by name?

`DigitsCNN` is the course's own; every model of torchvision can be had by its name. Weights are always
random: nothing is downloaded.
"""

import difflib
import inspect
from typing import Any

from torch import Tensor, nn

from course_lib.errors import CourseError


class DigitsCNN(nn.Module):
    """A small convolutional network for handwritten digits, with 57,000 parameters.

    Takes images of shape (batch, in_channels, height, width), 8 × 8 pixels or more, and returns one
    score (logit) a class, shape (batch, num_classes). The last pooling averages over the whole picture,
    so any size of at least 2 × 2 works, with the same parameters.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, dropout: float = 0.1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(64, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, in_channels, height, width) to logits (batch, num_classes)."""
        logits: Tensor = self.classifier(self.features(images))
        return logits


OWN: dict[str, type[nn.Module]] = {"digits_cnn": DigitsCNN}


def names() -> list[str]:
    """Every name that `build` knows: the course's own first, then those of torchvision."""
    from torchvision.models import list_models

    return [*OWN, *list_models()]


def build(name: str, num_classes: int | None = None) -> nn.Module:
    """Build a model with random weights.

    `num_classes` is the length of the model's output; left out, it is the model's own default (10 for
    the digits, 1000 for ImageNet models). Raises CourseError for a name that is not known, with the
    nearest that are.
    """
    if num_classes is not None and num_classes < 1:
        raise CourseError(f"A model needs at least one class, not {num_classes}.")
    settings: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    key = name.strip().lower().replace("-", "_")
    if key in OWN:
        return OWN[key](**settings)

    from torchvision.models import get_model_builder, list_models

    if key not in list_models():
        near = difflib.get_close_matches(key, names(), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "course_lib.models.zoo.names() lists all."
        raise CourseError(f"There is no model named {name!r}: {hint}")
    builder = get_model_builder(key)
    accepted = inspect.signature(builder).parameters
    settings["weights"] = None
    if "weights_backbone" in accepted:  # a detection model would fetch these by default
        settings["weights_backbone"] = None
    if key in ("googlenet", "inception_v3"):  # these two warn unless told how to start
        settings["init_weights"] = True
    model: nn.Module = builder(**settings)
    return model
