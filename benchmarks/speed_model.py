"""How are the shares of ``data/speed.json`` fitted? All cases at once, each kind a product over its words.

The law is that of ``course_lib/plan/roofline.py``, written for all pieces of work of all cases as arrays.
For each kind, the logarithm of its two shares is a sum: what its family is expected to reach, a correction
for each word of its name, one for itself, and, for the newer software stack, corrections for that. Each
correction is held near zero by a normal prior, wide where kernels differ much (grouped convolutions),
narrow where physics leaves little room (adding two tensors). The error is that of the logarithm of the step
time, with a heavy-tailed loss: a few models run kernels that nothing in their shapes tells. Families of
models count by the root of their size, so that the many cousins of one network do not outvote the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from speed_cases import Case

from course_lib.accelerators import find_accelerator
from course_lib.plan.kind_words import words
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.roofline import rates_of
from course_lib.plan.step_work import optimizer_launches, optimizer_work
from course_lib.plan.work import Work

FLOAT = torch.float64
REFERENCE = "RTX 3090"
PASSES = ("forward", "data", "weight", "backward")
SGD = optimizer_rule("sgd")

# By family: the shares of arithmetic and bandwidth that are expected, and the spread (of the logarithm)
# around them.
PRIOR = {
    "convolution": (0.8, 0.6, 0.3), "grouped": (0.5, 0.03, 1.2), "depthwise": (0.3, 0.6, 0.7),
    "matmul": (0.7, 0.7, 0.2), "attention": (0.4, 0.7, 0.4), "norm": (1.0, 0.85, 0.2),
    "softmax": (1.0, 0.8, 0.25), "pointwise": (1.0, 0.85, 0.12), "reduction": (1.0, 0.7, 0.35),
    "copy": (1.0, 0.8, 0.25), "gather": (1.0, 0.4, 0.6), "pool": (1.0, 0.6, 0.5),
    "optimizer": (1.0, 0.8, 0.4),
}  # fmt: skip
BY32 = 0.5  # share of the bandwidth expected of grouped convolutions that cuDNN has kernels of their own for
# How far a family's memory clock follows SMs times clock rather than bandwidth, before a second card is seen.
# Chosen on the tables of the RTX 3090 and 4090.
ISSUE = {"norm": 0.3, "softmax": 0.5, "attention": 0.5, "depthwise": 0.2}
# PyTorch 1.12 updates each tensor on its own: zero the gradient, add the new one, decay, momentum, update.
OPTIMIZER_KERNELS = {"timm-2022": 5.0, "current": 0.0}
NEWER = "current"  # the stack whose corrections come on top


@dataclass(frozen=True)
class Settings:
    """What the fit is told beside the cases; chosen on the dev tables."""

    sigma: float = 0.04  # expected error of a well-told step
    tail: float = 0.08  # from here on, the loss grows slowly
    word: float = 0.8  # spread of a word, in that of its family
    kind: float = 0.6  # spread of a kind's own correction
    stack: float = 0.15  # spread of the newer stack's corrections
    tile: float = 0.7  # spread of the logarithm of a tile's side
    side: float = 32.0  # the side that is expected
    start_us: float = 2.0
    launch_us: float = 6.0  # not fitted: no row of the tables waits for the processor
    iterations: int = 200
    family_weight: float = 0.0


@dataclass
class Arrays:
    """The pieces of work of all cases, one entry each, and the cases they belong to."""

    cases: Sequence[Case]
    kinds: list[tuple[str, str, str]] = field(default_factory=list)  # kind, family, stack

    def __post_init__(self) -> None:
        index: dict[tuple[str, str, str], int] = {}
        rows: list[tuple[float, ...]] = []
        cards = {case.table.card: rates_of(find_accelerator(case.table.card)) for case in self.cases}
        home = rates_of(find_accelerator(REFERENCE))
        for number, case in enumerate(self.cases):
            rates = cards[case.table.card]
            stack = NEWER if case.table.stack == NEWER else ""
            half, single = rates.sustained("fp16"), rates.sustained("fp32")
            assert rates.issue is not None
            assert home.issue is not None
            for piece, count in pieces(case).items():
                kind = index.setdefault((piece.kind, piece.family, stack), len(index))
                rows.append(
                    (
                        number, kind, piece.flops / (half if piece.half else single),
                        piece.nbytes / rates.bandwidth, *piece.dims, count, piece.kernels,
                        math.log(rates.issue / home.issue) - math.log(rates.bandwidth / home.bandwidth),
                        float(bool(rates.cache) and piece.nbytes < 1.2 * (rates.cache or 0)),
                        piece.groups, float(stack == NEWER),
                    )
                )  # fmt: skip
        self.kinds = list(index)
        table = torch.tensor(rows, dtype=FLOAT)
        self.case, self.kind = table[:, 0].long(), table[:, 1].long()
        self.compute, self.memory = table[:, 2], table[:, 3]
        dims = table[:, 4:7]
        self.inverse = torch.where(dims > 0, 1 / dims.clamp(min=1), torch.zeros_like(dims))
        self.count, self.kernels, self.shift, self.cached = table[:, 7:11].unbind(1)
        groups, self.newer = table[:, 11], table[:, 12].long()
        self.few = torch.where(groups > 0, 1 / groups.clamp(min=1), torch.zeros_like(groups))
        self.narrow = torch.where(groups > 0, self.inverse[:, 1], torch.zeros_like(groups))
        self.truth = torch.tensor([math.log(case.seconds) for case in self.cases], dtype=FLOAT)
        self.launches = torch.tensor([launches(case) for case in self.cases], dtype=FLOAT)


def launches(case: Case) -> int:
    """How many operations the processor hands out in a step."""
    own = optimizer_launches(case.work, SGD, OPTIMIZER_KERNELS[case.table.stack])
    return case.work.launches + (own if case.table.mode == "train" else 0)


def pieces(case: Case) -> Counter[Work]:
    """The pieces of work of one step, the optimizer's among them where it is a training step."""
    found: Counter[Work] = Counter()
    for (piece, _, _), count in case.work.pieces.items():
        found[piece] += count
    if case.table.mode == "train":
        found[optimizer_work(case.work, SGD, OPTIMIZER_KERNELS[case.table.stack])] += 1
    return found


class SpeedModel:
    """The law for arrays of work, with its parameters in one vector of standard normal coordinates."""

    def __init__(self, arrays: Arrays, settings: Settings | None = None) -> None:
        self.arrays, self.settings = arrays, settings or Settings()
        self.word_index: dict[str, int] = {}
        spread: list[float] = []
        place: list[tuple[int, int]] = []
        s = self.settings
        for number, (kind, family, stack) in enumerate(arrays.kinds):
            wide = PRIOR[family][2]
            own = [(word, wide if word == family else wide * s.word) for word in words(kind, family)]
            own.append((f"kind {kind}", wide * s.kind))
            if stack:
                moved = REWRITTEN if family in ("grouped", "depthwise") else s.stack
                own += [(f"newer {word}", wide * moved) for word in words(kind, family)[:2]]
                own.append((f"newer kind {kind}", wide * moved / 2))
            for word, width in own:
                if word not in self.word_index:
                    self.word_index[word] = len(self.word_index)
                    spread.append(width)
                place.append((number, self.word_index[word]))
        self.mix = torch.zeros(len(arrays.kinds), len(spread), dtype=FLOAT)
        for number, column in place:
            self.mix[number, column] = spread[column]
        self.spread = spread
        self.expected = torch.tensor(
            [_expected(kind, family) for kind, family, _ in arrays.kinds], dtype=FLOAT
        )
        self.plain = torch.tensor([".nchw" in kind for kind, _, _ in arrays.kinds])
        self.tiles: dict[str, int] = {}
        tile_of = [self.tiles.setdefault(tile_name(k, f), len(self.tiles)) for k, f, _ in arrays.kinds]
        self.tile_of = torch.tensor(tile_of)[arrays.kind]
        self.families = sorted(PRIOR)
        family_of = [self.families.index(family) for _, family, _ in arrays.kinds]
        self.family_of = torch.tensor(family_of)[arrays.kind]
        self.issue_prior = torch.tensor([ISSUE.get(family, 0.0) for family in self.families], dtype=FLOAT)
        self.sizes = (2 * len(spread), 3 * len(self.tiles), len(self.families), 2, 4)
        self.zero = torch.zeros(sum(self.sizes), dtype=FLOAT)

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Words (two shares each), tiles (three sides each), issue shares, start and cache, and the group
        tiles of both stacks (two sides each).
        """
        words_, tiles, issue, rest, by_group = x.split(self.sizes)
        return words_.view(-1, 2), tiles.view(-1, 3), issue, rest, by_group.view(2, 2)

    def shares(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithms of the two shares of each kind."""
        return self.expected + self.mix @ self.split(x)[0]

    def group_tiles(self, x: torch.Tensor) -> torch.Tensor:
        """Groups and columns at which the bytes of a convolution group by group take twice as long, by
        stack.
        """
        expected = torch.tensor(GROUP_TILE, dtype=FLOAT)
        return expected * torch.exp(self.settings.tile * self.split(x)[4])

    def each_seconds(self, x: torch.Tensor) -> torch.Tensor:
        """The predicted seconds of each piece of work, as often as it runs."""
        a, s = self.arrays, self.settings
        _, tiles, issue, rest, _ = self.split(x)
        log_share = self.shares(x)[a.kind]
        tile = (s.side * torch.exp(s.tile * tiles))[self.tile_of]
        compute = a.compute * torch.exp(-log_share[:, 0]) * (1 + tile * a.inverse).prod(1)
        follows = (self.issue_prior + 0.2 * issue)[self.family_of]
        gain = a.cached * (CACHE_GAIN + CACHE_SPREAD * rest[1])
        memory = a.memory * torch.exp(-log_share[:, 1] - follows * a.shift - gain)
        groups, columns = self.group_tiles(x)[a.newer].unbind(1)
        memory = memory * (1 + groups * a.few) * (1 + columns * a.narrow)
        start = s.start_us * 1e-6 * torch.exp(0.3 * rest[0])
        return (torch.sqrt(compute**2 + memory**2 + 1e-24) + start * a.kernels) * a.count

    def log_seconds(self, x: torch.Tensor) -> torch.Tensor:
        """The logarithm of the predicted step time of each case."""
        a, s = self.arrays, self.settings
        busy = torch.zeros(len(a.cases), dtype=FLOAT).index_add(0, a.case, self.each_seconds(x))
        launch = s.launch_us * 1e-6 * a.launches
        return torch.log(busy**8 + launch**8) / 8

    def loss(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Minus the logarithm of the posterior, up to a constant, over 100."""
        s = self.settings
        error = (self.log_seconds(x) - self.arrays.truth) / s.tail
        data = (s.tail / s.sigma) ** 2 * (torch.log1p(error**2) * weight).sum()
        beyond = torch.relu(self.shares(x)[self.plain, 1] - math.log(MOST_MEMORY)) / BEYOND
        return (data + (x**2).sum() + (beyond**2).sum()) / 100

    def fit(self, weight: torch.Tensor) -> torch.Tensor:
        """The parameters with the highest posterior; cases of weight 0 are not looked at."""
        x = self.zero.clone().requires_grad_(True)
        search = torch.optim.LBFGS(
            [x], max_iter=self.settings.iterations, history_size=30, line_search_fn="strong_wolfe",
            tolerance_change=1e-10, tolerance_grad=1e-7,
        )  # fmt: skip

        def closure() -> torch.Tensor:
            search.zero_grad()
            value = self.loss(x, weight)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        search.step(closure)  # type: ignore[arg-type]
        return x.detach()


# Of kinds in plain layout. Above this share of the bandwidth lies nothing that a cache can explain: grouped
# and depthwise convolutions would drift there, since arithmetic holds them up and their bytes do not matter.
# In channels last none goes far beyond it, and the same bound made families that were left out worse.
MOST_MEMORY = 2.0
BEYOND = 0.1  # spread of the logarithm beyond it
REWRITTEN = 0.6  # the same for kernels that cuDNN has replaced since
GROUP_TILE = (3.0, 24.0)  # groups and columns that are expected, see plan/roofline.py
CACHE_GAIN = 0.2  # expected logarithm of the gain of bytes that fit the cache
CACHE_SPREAD = 0.05  # small: what looks like it on a small cache is mostly how kernels of short work begin


def _expected(kind: str, family: str) -> tuple[float, float]:
    compute, memory, _ = PRIOR[family]
    return math.log(compute), math.log(BY32 if "_by32" in kind else memory)


def tile_name(kind: str, family: str) -> str:
    """The kinds that share one tile: a family in one pass."""
    part = next((word for word in kind.split(".")[1:] if word in PASSES), "")
    return f"{family}.{part}" if part else family


def case_weights(cases: Sequence[Case], power: float) -> torch.Tensor:
    """Twice one over the size of the family (in its table) to the given power; AGAIN in place of twice."""
    sizes = Counter((case.family, case.table.path.name) for case in cases)
    return torch.tensor(
        [
            (AGAIN if case.table.mode == "train" and not case.table.channels_last else 2)
            * sizes[case.family, case.table.path.name] ** -power
            for case in cases
        ],
        dtype=FLOAT,
    )


# Training steps in plain layout are those of the channels-last table once more: what is strange in a model is
# strange in both, and would count twice. With equal weight, grouped convolutions in channels last are told
# worse.
AGAIN = 1


def folds(groups: Sequence[str], count: int) -> list[int]:
    """For each case the number of its fold; a group is never split, and folds are of about one size."""
    sizes = Counter(groups)
    load = [0] * count
    fold: dict[str, int] = {}
    for group in sorted(sizes, key=lambda name: (-sizes[name], name)):
        fold[group] = load.index(min(load))
        load[fold[group]] += sizes[group]
    return [fold[group] for group in groups]


def left_out(model: SpeedModel, groups: Sequence[str], count: int) -> list[float]:
    """The logarithm of the time of each case, by a fit that has seen no case of its fold."""
    weight = case_weights(model.arrays.cases, model.settings.family_weight)
    fold = torch.tensor(folds(groups, count))
    told = torch.zeros(len(groups), dtype=FLOAT)
    for number in range(count):
        out = fold == number
        if out.any():
            x = model.fit(weight * (~out))
            told[out] = model.log_seconds(x)[out].detach()
    return [float(value) for value in told]


def as_row(model: SpeedModel, x: torch.Tensor, stack: str) -> dict[str, Any]:
    """The fitted numbers of one stack as an entry of ``data/speed.json``, without intervals and note."""
    _, tiles, issue, rest, _ = model.split(x)
    group_tile = model.group_tiles(x)[int(stack == NEWER)]
    s = model.settings
    sides = s.side * torch.exp(s.tile * tiles)
    follows = model.issue_prior + 0.2 * issue

    def entry(log_compute: float, log_memory: float, kind: str, family: str) -> dict[str, Any]:
        made: dict[str, Any] = {
            "compute": round(math.exp(log_compute), 4), "memory": round(math.exp(log_memory), 4),
            "issue": round(float(follows[model.families.index(family)]), 3),
        }  # fmt: skip
        if family == "grouped":
            made["group_tile"] = [round(float(side), 2) for side in group_tile]
        if (tile := model.tiles.get(tile_name(kind, family))) is not None and family in _WITH_SIDES:
            made["tile"] = [round(float(side), 1) for side in sides[tile]]
        return made

    correction = {
        word: (model.spread[column] * model.split(x)[0][column]).tolist()
        for word, column in model.word_index.items()
    }
    newer = {
        word.removeprefix("newer "): pair for word, pair in correction.items() if word.startswith("newer ")
    }
    own = {word: pair for word, pair in correction.items() if not word.startswith("newer ")}
    if stack == NEWER:
        own = {word: _add(pair, newer.get(word, NOTHING)) for word, pair in own.items()}
    by32 = math.log(BY32 / PRIOR["grouped"][1])
    own["grouped _by32"] = _add(own.get("grouped _by32", NOTHING), (0.0, by32))

    def told(kind: str, family: str) -> tuple[float, float]:
        """The shares of any kind, from those of its words that were met."""
        total = (math.log(PRIOR[family][0]), math.log(PRIOR[family][1]))
        for word in (*words(kind, family), f"kind {kind}"):
            total = _add(total, own.get(word, NOTHING))
        return total

    kinds = {kind: family for kind, family, _ in model.arrays.kinds}
    seen = {kind for kind, _, other in model.arrays.kinds if (other == NEWER) == (stack == NEWER)}
    table = {}
    for kind, family in sorted(kinds.items()):
        table[kind] = entry(*told(kind, family), kind, family)
        if kind not in seen:
            table[kind]["other_stack"] = True
    return {
        "reference": REFERENCE,
        "kinds": table,
        "families": {family: entry(*told("", family), family, family) for family in model.families},
        "words": {
            word: [round(value, 4) for value in values]
            for word, values in sorted(own.items())
            if not word.startswith("kind ") and word not in PRIOR
        },
        "optimizer_kernels": OPTIMIZER_KERNELS[stack],
        "start_us": round(s.start_us * math.exp(0.3 * float(rest[0])), 3),
        "launch_us": s.launch_us,
        "cache_gain": round(math.exp(CACHE_GAIN + CACHE_SPREAD * float(rest[1])), 3),
    }


def _add(one: Sequence[float], two: Sequence[float]) -> tuple[float, float]:
    return one[0] + two[0], one[1] + two[1]


NOTHING = (0.0, 0.0)
_WITH_SIDES = ("convolution", "grouped", "depthwise", "matmul", "attention")
