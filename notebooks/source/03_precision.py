# %% [markdown]
# # Half the bytes
#
# "Use half precision: half the memory, twice the speed." It is one line, and it may be true. It may also make your
# training ten times slower, or quietly stop it from learning. This lesson shows which, on your own machine.
#
# After this lesson you can
#
# - say which of the short number formats your device is fast in, and what they lose;
# - see a gradient vanish, bring it back, and know what a gradient scaler does when numbers overflow;
# - train your own model in 16 bits and show that the answer is the same.
#
# **Time**: 35 minutes. **Needs**: any computer; no GPU, no network. You know what a training step is (lesson 00).

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
batch_size = 64
seeds = 3 if quick else 8
epochs = 12 if quick else 20

# %%
import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from course_lib.machine import best_device, usable_cores
from course_lib.models.zoo import DigitsCNN
from course_lib.teach import check, hint, judge, solution
from course_lib.train.data import Digits

device = best_device()
torch.set_num_threads(usable_cores())
train_set, test_set = Digits("train"), Digits("test")
loader = DataLoader(train_set, batch_size, drop_last=True)
batches = [(x.to(device), y.to(device)) for x, y in loader]
print(f"{len(batches)} batches of {batch_size} digits, on {device}")

# %% [markdown]
# ## The advice, tried
#
# Computers calculate with numbers of limited length. PyTorch's usual one has 32 bits: `float32`, or *fp32*. There
# are two that are half as long, *fp16* and *bf16*. Here is one training step of a small network for handwritten
# digits, in each of them. `time_steps` runs them in turns, so that other work on your machine slows all alike.

# %%
from course_lib.teach.plots_gains import Gain, gains_of, plot_gains
from course_lib.train.number_formats.format_times import time_steps

torch.manual_seed(0)
model = DigitsCNN().to(device)
rounds, budget_s = (3, 4) if quick else (20, 8)
times = time_steps(model, batches[0], rounds=rounds, budget_s=budget_s)
times

# %%
gains = gains_of(times, "this network")
plot_gains(gains, title="A training step, compared with fp32 on this machine")

# %% [markdown]
# A point left of the black line: there, the advice made things worse. A device can **hold** a format and have no
# circuits for it: then each number is turned into a long one, computed with, and turned back. Most processors have
# none for fp16. A T4, the card of free Colab, has them for fp16 and not for bf16. So the question is never "can it?"
# but "is it fast?". The heart of all training is the product of two matrices. `choose` times one here, in each format.

# %%
from course_lib.train.precision import choose

mine = choose(device)
mine

# %% [markdown]
# The product and the whole step above need not agree: a step has other parts, and those gain less, or nothing.
#
# For a card that you do not own, the makers' peak rates stand in. *tf32* is a third kind: numbers stay 32 bits long
# in memory, but NVIDIA cards since 2020 can round them for a product. *GradScaler* comes in a moment.

# %%
from course_lib.accelerators import find_accelerator
from course_lib.train.precision import peak_speedups

for name in ("T4", "V100 16GB", "RTX 3090", "H100 80GB"):
    print(f"{name:10} {choose('cuda', peak_speedups(find_accelerator(name)))}\n")

# %% [markdown]
# ## What the bits say
#
# A number is a *sign*, an *exponent* (which power of two: the size), and a *fraction* (the digits). Fewer bits for the
# exponent: a smaller range. Fewer for the fraction: coarser steps. Here is 0.1:

# %%
from course_lib.teach.plots_precision import plot_bits
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS, bits_of

plot_bits([bits_of(0.1, name) for name in FLOAT_FORMATS])

# %%
for number_format in FLOAT_FORMATS.values():
    print(number_format)

# %% [markdown]
# bf16 is fp32 with the end cut off: the same range, coarse steps. fp16 spends its bits the other way: finer steps, but
# nothing above 65,504, and nothing below 0.00000006. Is that small? For a gradient it is not.
#
# ## A gradient vanishes
#
# One weight, one signal, one loss. The true gradient is 2⁻²⁶.

# %%
def gradient(dtype, scale=1.0):
    weight = torch.ones((), dtype=dtype, requires_grad=True)
    signal = torch.tensor(2.0**-14, dtype=dtype)
    loss = (weight * signal).float() * 2.0**-12
    (loss * scale).backward()
    return weight.grad.float().item() / scale

for dtype in (torch.float32, torch.bfloat16, torch.float16):
    print(f"{dtype}: {gradient(dtype):.3g}")
scaled = gradient(torch.float16, scale=2.0**16)
print(f"torch.float16, loss multiplied by 2^16 before: {scaled:.3g}")

# %% [markdown]
# In fp16 it is zero: this weight will never learn. The cure is almost silly. Multiply the loss by a large number:
# then all gradients are that much larger, and none vanishes. Before the weights are changed, divide again, in fp32. The
# number is called the *scale*, and this is *loss scaling* (Micikevicius et al., 2018).
#
# But which scale? Too small, and gradients vanish. Too large, and they become infinite. So it is found by trying:
# **double it now and then; if something became infinite, skip that update and halve it.** By hand:

# %%
def small_model(seed=0):
    torch.manual_seed(seed)
    layers = nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    return nn.Sequential(*layers).to(device)

# %%
def train_by_hand(model, some_batches, scale=2.0**16, every=10):
    optimizer, good = torch.optim.SGD(model.parameters(), lr=0.1), 0
    for images, labels in some_batches:
        yield scale  # the one of this step
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = cross_entropy(model(images), labels)
        (loss * scale).backward()
        gradients = [weight.grad.div_(scale) for weight in model.parameters()]
        if all(g.isfinite().all() for g in gradients):
            optimizer.step()
            good += 1
            scale, good = (2 * scale, 0) if good == every else (scale, good)
        else:
            scale, good = scale / 2, 0

# %% [markdown]
# `torch.autocast` runs the products inside of it in fp16 and leaves the weights in fp32. It goes around the forward
# pass and the loss; the backward pass uses the same types by itself. Now a real overflow. Somebody forgot to divide
# the pixels of some batches by 255:

# %%
from itertools import cycle, islice

from course_lib.train.number_formats.scaler_life import too_large

steps = 80
spoiled = {25, 26, 55}
some_batches = list(too_large(islice(cycle(batches), steps), at=spoiled))
by_hand = small_model()
scales_by_hand = list(train_by_hand(by_hand, some_batches))

# %% [markdown]
# PyTorch has this ready: `torch.amp.GradScaler`. `TrainingStep`, the step of lesson 00, uses it where the format
# needs one. Both must agree on the scale of each step and on the weights at the end.

# %%
from course_lib.teach.plots_precision import plot_scaler
from course_lib.train.number_formats.scaler_life import scaler_life
from course_lib.train.step import TrainingStep

by_library = small_model()
optimizer = torch.optim.SGD(by_library.parameters(), lr=0.1)
scaler = GradScaler(device, growth_interval=10)  # usually 2000; 10 lets us watch it
step = TrainingStep(by_library, optimizer, precision="fp16", grad_scaler=scaler)
life = scaler_life(step, some_batches)

assert [one.scale for one in life.steps] == scales_by_hand
torch.testing.assert_close(list(by_hand.parameters()), list(by_library.parameters()))
plot_scaler(life)

# %%
life

# %% [markdown]
# The crosses are updates that were not made. That is no error: the batch is lost, the weights stay clean, and
# training goes on. A cross where no batch was spoiled: the scale itself had been doubled once too often. **A scaler
# that skips now and then is healthy. One that skips every step is telling you something**: look for inputs or a
# learning rate that are too large.
#
# ## What autocast decided about your model
#
# Autocast does not shorten everything: products go in 16 bits, delicate sums in fp32. Which operation of *this* model
# went where? We look at one real step.

# %%
from course_lib.teach.plots_precision import plot_dtypes
from course_lib.train.number_formats.dtype_inspector import inspect_dtypes

report = inspect_dtypes(model, batches[0], mine if mine.dtype else "bf16")
in_fp32 = ", ".join(report.kept_in_fp32())
print(f"{len(report.casts)} conversions; kept in fp32: {in_fp32}")
plot_dtypes(report)

# %% [markdown]
# The convolutions and the `addmm` (a linear layer) are the expensive ones, and they are short. The loss is not: it
# would be worth little in 8 bits of fraction. The weights were never touched. Do not write `model.half()`: it
# shortens the weights too. What that costs comes below.
#
# ## How large are your numbers?
#
# We train the network for a while and look at all numbers of one step, each as it is in fp32. *Activations* are what the
# layers hand on in the forward pass. *Activation gradients* come back through them, and *weight gradients* are what
# changes the weights. Late in training the gradients are small, as the loss is.

# %%
from course_lib.teach.labs import precision as lab

ranges = lab.digits_ranges()
ranges

# %%
lab.survivors("fp16", power=0, ranges=ranges)

# %%
lab.survivors("fp16", power=16, ranges=ranges)

# %% [markdown]
# Yellow is the part that one overlooks. These numbers are not zero, but they lie below fp16's smallest full number and
# keep only a few of their bits. A scale moves everything to the right, into the green.
#
# ## Lab: move the numbers
#
# Choose a format, a scale and the kind of number. Find the largest scale at which nothing is infinite in fp16, for
# gradients and then for activations. Then choose bf16 and try to lose anything at all.

# %%
lab.lab()  # lab.lab(value_ranges(...)) shows the numbers of your own step

# %% [markdown]
# bf16 holds them all at any scale. Its price is in the last column of the table above: by how much a number is off, in
# the mean. One number can be off by up to 0.4 %, eight times as much as in fp16. Does that spoil the answer?
#
# ## The same answer?
#
# A small network, trained from several random starts (*seeds*) in each format, with a small learning rate. One row is
# the thing not to do: the weights themselves in bf16.

# %%
from course_lib.train.loop import evaluate, train

def all_of(data, dtype):
    images, labels = next(iter(DataLoader(data, len(data))))
    return images.to(device, dtype), labels.to(device)

def accuracy(seed, precision=None, dtype=torch.float32):
    net = small_model(seed).to(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4)
    images, labels = all_of(train_set, dtype)
    for _ in range(epochs):
        order = torch.randperm(len(labels)).split(64)
        shuffled = [(images[few], labels[few]) for few in order]
        train(net, shuffled, optimizer, epochs=1, precision=precision, progress=False)
    return evaluate(net, [all_of(test_set, dtype)], precision=precision).accuracy

# %%
from tqdm.auto import tqdm

from course_lib.teach.plots_gains import plot_seeds

rows = {
    "fp32": {},
    "bf16 autocast": {"precision": "bf16"}, "fp16 autocast": {"precision": "fp16"},
    "bf16 weights too": {"dtype": torch.bfloat16},
}
accuracies = {
    name: [accuracy(seed, **rows[name]) for seed in range(seeds)]
    for name in tqdm(rows, unit="row")
}
plot_seeds(accuracies, title=f"After {epochs} epochs, {seeds} seeds each")

# %% [markdown]
# Compare the formats with the spread between seeds of *one* row. If they lie closer together than that, nobody can
# tell them apart: the answer is the same. The last row lags behind, for a reason that you can compute:

# %%
weight = torch.tensor(1.0, dtype=torch.bfloat16)
for _ in range(1000):
    weight += 0.001  # a thousand small updates
print(f"1 + 1000 × 0.001 in bf16 is {weight.item()}")

# %% [markdown]
# The step from 1 to the next bf16 number is 0.0078. An update of 0.001 is rounded away, each time. **Keep the weights
# in fp32 and let autocast shorten the arithmetic.**
#
# ## Memory
#
# The activations that a forward pass keeps for the backward pass are counted where PyTorch saves them.

# %%
from course_lib.train.saved_memory import saved_bytes
from course_lib.units import format_bytes

short = "bf16" if mine.dtype is None else mine.format
kept = {name: saved_bytes(model, batches[0], name) for name in ("fp32", short)}
for name, many in kept.items():
    print(f"{name}: {format_bytes(many)} kept, measured here")
left = kept[short] / kept["fp32"]
print(f"left: {left:.0%}. Weights, gradients, optimizer: unchanged")

# %% [markdown]
# ## Your next card
#
# The same for a larger network, ResNet-18 with 64 photographs, on cards that are not here. Nothing is run: the step is
# traced, and time and memory are **predicted**. The range says where the truth lies in nine of ten cases.

# %%
from course_lib.models.zoo import build
from course_lib.plan.memory import plan_memory
from course_lib.plan.speed import predict
from course_lib.plan.tracer import trace
from course_lib.plan.workload import workload_from

resnet, photos = build("resnet18"), torch.empty(64, 3, 224, 224)
labels, traces = torch.zeros(64, dtype=torch.long), {}
for name in ("fp32", "fp16"):
    work = workload_from(resnet, photos, labels, precision=name, micro_batch=64)
    traces[name] = trace(work)

# %%
from course_lib.units import format_seconds

for name in ("T4", "RTX 3090", "A100 80GB"):
    for number_format, traced in traces.items():
        card = find_accelerator(name)
        guess, need = predict(traced, card), plan_memory(traced, card)
        span = f"{format_seconds(guess.low)} to {format_seconds(guess.high)}"
        told = f"{format_seconds(guess.seconds):>7} ({span})"
        print(f"{name:9} {number_format}: {told}, {format_bytes(need.total)}")

# %% [markdown]
# And this is what NVIDIA itself reports of whole trainings on one card, with fp16. On the A100, the comparison is
# with TF32, its default there.

# %%
from course_lib.train.number_formats.published_speedups import published_speedups

shown = {}
for row in published_speedups():
    shown[f"{row.model}, {row.card.split()[0]}"] = Gain(row.times, how="published")
for name, gain in gains.items():
    if name.startswith(short):
        shown[f"{short}, our digits, here"] = gain
plot_gains(shown, title="What mixed precision was worth, by NVIDIA, and here",
           axis="times as fast as without (fp32 on V100, TF32 on A100)")

# %% [markdown]
# From 3.3 to 1.05. The gain depends on the model as much as on the card: large products gain, small operations and a
# loader that is late do not.
#
# The recipe of the guide that this course grew out of reads: autocast around forward and loss, and a GradScaler. Is it
# right for you?

# %%
measured = times.times[short]
gain = measured.speedup or 0.0
if gain > 1.05 and measured.low > 1:  # faster in nearly every round
    verdict = "holds when"
    note = f"the format is fast on the device, as {short} is here for this network"
else:
    verdict = "fails"
    note = f"{short} does not surely make this network's step faster here"
judge(
    "precision.recipe", verdict, number=gain,
    unit=f"times as fast as fp32, a step of the network in {short}; measured here",
    note=f"{note}. The scaler is needed in fp16 only; its scale did adapt by itself: "
    f"of {steps} updates, {len(life.skipped)} were skipped",
)

# %% [markdown]
# ## Other levers of one line
#
# *channels_last* keeps the channels of a pixel side by side in memory, as fast convolutions want them. A *fused*
# optimizer changes all weights in one call. Each lever is pulled alone, on this machine. The interval holds the true
# value in 19 of 20 cases; an interval around 1 is **no effect seen**, and such a line should not go into your code.

# %%
from course_lib.train.levers import time_levers

rounds, budget_s = (12, 1.0) if quick else (60, 10)
time_levers(model, batches[0], rounds=rounds, budget_s=budget_s)

# %% [markdown]
# A fifth is `torch.compile(model)`. It needs a C++ compiler and may take a minute, so it is your choice:
# `time_levers(model, batches[0], levers=("torch.compile",))`.
#
# ## Old names
#
# Much of what you find on the web was written for older versions of PyTorch.
#
# | what you find | write instead |
# |---|---|
# | `torch.cuda.amp.autocast()` | `torch.autocast("cuda", dtype=torch.float16)` |
# | `torch.cuda.amp.GradScaler()` | `torch.amp.GradScaler("cuda")` |
# | `torch.cpu.amp.autocast()` | `torch.autocast("cpu", dtype=torch.bfloat16)` |
# | `torch.backends.cuda.matmul.allow_tf32 = True` | `torch.backends.cuda.matmul.fp32_precision = "tf32"` (2.9 and newer) |
# | `apex.amp.initialize(...)` | `torch.autocast` and `torch.amp.GradScaler` |
#
# PyTorch says so itself, if you let it:

# %%
import warnings

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    torch.cpu.amp.autocast(dtype=torch.bfloat16)
    torch.cuda.amp.GradScaler(enabled=False)
for warning in said:
    print(str(warning.message).splitlines()[0])

# %% [markdown]
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("precision.scale")` in a cell gives a hint,
# `solution("precision.scale")` shows ours.

# %% tags=["exercise"]
# Exercise 3.1 · 5 minutes · ●●○
# The smallest number that fp16 holds in full is 2**-14. What is the smallest scale, a
# power of two and at least 1, that lifts this gradient (a number above 0) to that size
# or above?
def scale_that_saves(gradient: float) -> float:
    # solution
    scale = 1.0
    while gradient * scale < 2**-14:
        scale *= 2
    return scale
    # end

check("precision.scale", scale_that_saves)

# %% tags=["exercise"]
# Exercise 3.2 · 5 minutes · ●●○
# A weight is kept in bf16, and an update is added to it, in bf16 too. Is it another
# number then ("changes"), or the same one ("stays")?
import torch

def update_in_bf16(weight: float, update: float) -> str:
    # solution
    before = torch.tensor(weight, dtype=torch.bfloat16)
    after = before + torch.tensor(update, dtype=torch.bfloat16)
    return "stays" if after == before else "changes"
    # end

check("precision.small_update", update_in_bf16)

# %% tags=["exercise"]
# Exercise 3.3 · 4 minutes · ●○○
# Training with AdamW under autocast. parameters: numbers in the model; activations:
# numbers that are kept for the backward pass. AdamW keeps two more numbers for each
# parameter. How many bytes in all?
def training_bytes(parameters: int, activations: int) -> int:
    # solution
    return 4 * (1 + 1 + 2) * parameters + 2 * activations
    # end

check("precision.bytes", training_bytes)

# %% [markdown]
# The next step is in fp16, clips its gradients, and was found in the wild, more or less. It runs without an error.
# Three things are wrong with it.

# %%
def broken_step(model, optimizer, scaler, inputs, targets, max_norm):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()

# %% tags=["exercise"]
# Exercise 3.4 · 8 minutes · ●●●
# Write it so that it is right. Nothing need be returned. The check runs it for some
# steps on a small model, with a batch that overflows.
import torch
from torch.nn.functional import cross_entropy

def mended_step(model, optimizer, scaler, inputs, targets, max_norm):
    # solution
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    # end

check("precision.mended_step", mended_step)

# %% [markdown]
# ## Bring your own
#
# Put your model, one batch of yours (inputs, targets) and your loss in place of ours.

# %%
from course_lib.errors import CourseError
from course_lib.train.number_formats.value_ranges import value_ranges

my_model, my_batch, my_loss = small_model(), batches[0], cross_entropy
try:
    print(inspect_dtypes(my_model, my_batch, "bf16", my_loss), "\n")
    print(value_ranges(my_model, my_batch, my_loss), "\n")
    print(time_steps(my_model, my_batch, loss_fn=my_loss, rounds=10, budget_s=1.0))
except CourseError as error:
    print(error)

# %% [markdown]
# For a whole run: `train(model, loader, optimizer, epochs=10, precision=choose(device))`. In a loop of your own, these
# lines are right for every format (without fp16, `scaler` is disabled and does nothing):
#
# ```python
# precision = choose(device)
# scaler = torch.amp.GradScaler(device, enabled=precision.needs_scaling)
# for inputs, targets in loader:
#     optimizer.zero_grad()
#     with precision.autocast():
#         loss = loss_fn(model(inputs), targets)
#     scaler.scale(loss).backward()
#     scaler.unscale_(optimizer)  # only where you clip:
#     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
#     scaler.step(optimizer)
#     scaler.update()
# ```
#
# What you have gained in memory can become a larger batch: `!course plan resnet50 --batch 64 --precision fp16 --on T4` tells whether it fits.
#
# ## What to remember
#
# 1. **Fast, not merely possible.** Measure the format on the device before you use it. bf16 first, where it is fast.
# 2. **fp16 loses small numbers, bf16 loses digits.** So fp16 needs a scaler, and bf16 does not.
# 3. **Weights stay in fp32; autocast shortens the arithmetic.** Then the answer is the same within the spread of seeds.
#
# **Where to go next.** A batch that still does not fit: lesson 05, *A large batch from small ones*. Not sure which card
# would be fast enough: lesson 01, *Which card?*
