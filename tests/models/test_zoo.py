import subprocess
import sys

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN, build, names


@pytest.mark.parametrize("size", [8, 9, 16, 28, 32])
def test_the_small_cnn_takes_any_size_with_the_same_parameters(size: int) -> None:
    model = DigitsCNN()
    assert model(torch.rand(3, 1, size, size)).shape == (3, 10)
    assert 30_000 < sum(parameter.numel() for parameter in model.parameters()) < 100_000


def test_it_learns_a_batch_by_heart() -> None:
    torch.manual_seed(0)
    model = DigitsCNN(num_classes=4, in_channels=3, dropout=0.0)
    images, labels = torch.rand(12, 3, 8, 8), torch.arange(12) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert (model(images).argmax(1) == labels).all()


def test_models_come_by_name_with_the_classes_asked_for() -> None:
    assert isinstance(build("digits_cnn"), DigitsCNN)
    assert build("digits-cnn", num_classes=7)(torch.rand(2, 1, 8, 8)).shape == (2, 7)
    with torch.device("meta"):
        assert build("resnet18", num_classes=5).fc.out_features == 5
        assert build("ResNet18").fc.out_features == 1000


@pytest.mark.filterwarnings("error")
def test_every_name_can_be_built_without_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **settings: object) -> None:
        raise AssertionError("weights were asked for")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", no_network)
    known = names()
    assert known[0] == "digits_cnn"
    with torch.device("meta"):
        for name in ("vgg16", "googlenet", "inception_v3", "fasterrcnn_resnet50_fpn", "deeplabv3_resnet50"):
            assert name in known
            assert sum(parameter.numel() for parameter in build(name).parameters()) > 1e6


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(CourseError, match="did you mean resnet50 or"):
        build("resnet5O")
    with pytest.raises(CourseError, match="did you mean digits_cnn"):
        build("digit_cnn")
    with pytest.raises(CourseError, match=r"names\(\) lists all"):
        build("qqqq")
    with pytest.raises(CourseError, match="at least one class"):
        build("digits_cnn", num_classes=0)


def test_torchvision_is_imported_only_when_asked_for() -> None:
    code = (
        "import sys; from course_lib.models.zoo import build; build('digits_cnn'); "
        "print('torchvision' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
