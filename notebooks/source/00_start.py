# %% [markdown]
# # Where does the time go?
#
# Your training is slow. Before you buy a faster card (a graphics card, a *GPU*), find out what the training does
# all day.
#
# After this lesson you can
#
# - split one training step into its parts and say which part is slow, on your own machine;
# - turn a step time into samples per second, and into the hours of a whole run;
# - say how much you can gain at most by mending one part, before you pay for it.
#
# **Time**: 25 minutes. **Needs**: any computer; no GPU, no network. You know Python, and you have trained a
# model once.
#
# **How to use this page.** Click a grey cell and press **Shift+Enter**: it runs, and the next one is chosen.
# Go from top to bottom. The *kernel* is the Python that runs behind this page: if something looks strange, choose
# **Kernel → Restart Kernel** in the menu and start again from the top: a restarted kernel has forgotten what the
# cells made, and your text and answers stay. The black square ■ above the page stops a cell that runs. This page is
# your own copy, so change whatever you like.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
batch_size = 64
epochs = 6 if quick else 12
seed = 0

# %%
import time
from copy import deepcopy
from itertools import islice

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from course_lib.machine import best_device, this_machine, usable_cores
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.plots import plot_learning, plot_split, show_files, show_images

device = best_device()
torch.set_num_threads(usable_cores())  # a container may grant fewer than there are
this_machine()

# %% [markdown]
# That is the machine you train on. *Device* is where the arithmetic happens: `cuda` is an NVIDIA card, `mps`
# an Apple GPU, `cpu` the processor itself. When something does not work, type `!course doctor` in a cell: it
# looks at all of this and says what to do.
#
# ## First, a training that works
#
# The data: 1,797 handwritten digits, 8 × 8 pixels each. Four fifths are for training; the rest is kept for the
# test. The model is a small *convolutional neural network* (CNN).

# %%
from course_lib.models.zoo import DigitsCNN
from course_lib.train.data import Digits

train_set, test_set = Digits("train"), Digits("test")
title = f"16 of the {len(train_set):,} digits for training"
show_images([train_set[i] for i in range(16)], title=title)

# %% [markdown]
# One image is a *sample*. A *batch* is the handful of samples that the model sees at once, here 64. A `DataLoader`
# makes the batches. One *step* takes one batch, sees how wrong the model is, and corrects it a little. One *epoch*
# is one pass over all training images.
#
# `AdamW` is the *optimizer*: the rule by which each step changes the model; `lr` says how much. Run it, and watch
# two numbers. The *loss* says how wrong the model is; the *accuracy* is the share of test digits
# that it reads right.

# %%
from course_lib.train.loop import train

torch.manual_seed(seed)
train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
test_loader = DataLoader(test_set, batch_size=256)
model = DigitsCNN().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with plot_learning(epochs=epochs) as picture:
    history = train(
        model, train_loader, optimizer,
        epochs=epochs, test_loader=test_loader, callback=picture.update,
    )
history

# %% [markdown]
# A model that reads handwriting, trained on your machine in seconds. The loss falls, and the accuracy climbs: 97 %
# or more of digits that the model never saw are read right.
#
# ## Then, a training that crawls
#
# Those digits lay in memory, ready to use. Your own pictures do not: they are files. Somebody must open each
# one, decode the JPEG, turn it, cut it, change its light and shrink it. The next cell makes a few hundred real
# JPEG files, once. Then **the same model** trains on them, in batches of the same size.

# %%
from course_lib.train.images import ImageFiles, write_image_files

folder = write_image_files("images", count=128 if quick else 256)
file_set = ImageFiles(folder, image_size=8)
file_loader = DataLoader(file_set, batch_size=batch_size, shuffle=True)
show_files(folder, count=8, title="Eight of the files: digits, as a camera sees them")

# %%
def fresh_copy():
    torch.manual_seed(seed)  # the same order of batches each time
    its_model = deepcopy(model)
    return its_model, torch.optim.AdamW(its_model.parameters(), lr=1e-3)

def forever(loader):
    while True:
        yield from loader

# %%
from course_lib.train.step import TrainingStep

def images_per_second(loader, steps):
    step, batches, seen = TrainingStep(*fresh_copy()), forever(loader), 0
    step(next(batches))  # the first step warms up and is not counted
    start = time.perf_counter()
    for images, labels in islice(batches, steps):
        loss = step((images, labels))
        seen += len(images)
    loss.item()  # asks for the number, and so waits until the device is done
    return seen / (time.perf_counter() - start)

rate_in_memory = images_per_second(train_loader, steps=20)
rate_from_files = images_per_second(file_loader, steps=1 if quick else 3)
print(f"from memory: {rate_in_memory:6.0f} images a second")
print(f"from files:  {rate_from_files:6.0f} images a second")
print(f"files are {rate_in_memory / rate_from_files:.0f} times slower")

# %% [markdown]
# Nothing about the model changed. Where did the time go?
#
# ## Take a step apart, by hand
#
# A training step has four parts. **Data**: get the next batch. **Forward**: run the model and compute the loss.
# **Backward**: compute the *gradients*, which say for each number in the model (each *weight*) which way to change
# it. **Optimizer**: change the weights. Look at a clock between them, and you know.
#
# One trap: a GPU works on its own. Python hands it the work and goes on at once, so a clock read too early
# measures nothing. `now` waits for the device first.

# %%
def now():
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()

# %%
def split_by_hand(loader, model, optimizer, steps):
    times, batches = [], forever(loader)
    for _ in range(steps):
        t0 = now()
        images, labels = (part.to(device) for part in next(batches))
        t1 = now()
        loss = cross_entropy(model(images), labels)
        t2 = now()
        loss.backward()
        t3 = now()
        optimizer.step()
        optimizer.zero_grad()
        t4 = now()
        times.append((t1 - t0, t2 - t1, t3 - t2, t4 - t3))
    return torch.tensor(times).mean(dim=0).tolist(), loss.item()

# %%
steps = 2 if quick else 4
parts, loss_by_hand = split_by_hand(file_loader, *fresh_copy(), steps)
for name, seconds in zip(("data", "forward", "backward", "optimizer"), parts):
    print(f"{name:9} {1000 * seconds:7.1f} ms  {seconds / sum(parts):4.0%}")

# %% [markdown]
# There it is. The first line is how long the model waits for pictures; in the other three it works.
#
# ## The same, with a timer that fits into any loop
#
# `StepTimer` from the course's library does what you just did, for your own loops too. It tells *transfer*,
# the copy of the batch to the device, from the waiting, and does not slow a GPU down. A timer must not change
# the training, so we check: after the same steps the loss must be the same number.

# %%
from course_lib.train.timing import StepTimer

copied_model, copied_optimizer = fresh_copy()
timer = StepTimer(device, warmup=0)
step = TrainingStep(copied_model, copied_optimizer, timer=timer)
for batch in timer.batches(islice(forever(file_loader), steps)):
    loss = step(batch)

was_trained = "the model was trained since: run the cell above again, then this one"
torch.testing.assert_close(loss.item(), loss_by_hand, msg=was_trained)
from_files = timer.split()
from_files

# %%
from course_lib.train.loop import measure_split

from_memory = measure_split(train_loader, model, steps=20 if quick else 50)
plot_split({"image files": from_files, "digits in memory": from_memory})

# %% [markdown]
# Two bars, one model. Orange is waiting for data; the blues and the green are the model at work. The step that
# reads files is nearly all orange. A card that computes twice as fast would make the blue and green parts half as
# long, and leave the orange as it is: files are opened and decoded by the processor. **Before you buy, look at the
# orange.**
#
# The part of the step in which the model works is what a GPU's *utilisation* would show, more or less. Beginners
# are often told that theirs stays under 30 %. Is it so for you?

# %%
busy = 1 - from_files.shares["data"] - from_files.shares["transfer"]
busy_in_memory = 1 - from_memory.shares["data"] - from_memory.shares["transfer"]
judge(
    "start.idle",
    "holds when" if busy < 0.30 else "fails",
    number=round(100 * busy, 1),
    unit="% of the step at work; measured here",
    note="the images are files; with digits in memory it works for "
    f"{100 * busy_in_memory:.0f} %",
)

# %% [markdown]
# ## And a really big model?
#
# VGG-16, a network of 2014, learned to name what is in a photograph from 1.28 million pictures: the data set
# *ImageNet*. How long would *your* machine take? Running it for days is not needed. The network is a chain of
# *stages*, and each can be timed alone, for one picture, in a few hundred milliseconds.
#
# The stages in the last row of the table would need more memory than a small machine has. For them we count: a
# *FLOP* is one multiplication or one addition; a GFLOP is a thousand million of them. Forward and backward together
# cost about three times the FLOPs of the forward pass. We know how many FLOPs a second the timed stages did, and take
# the last ones to be as fast. So each row says *measured* or *scaled*.

# %%
from tqdm.auto import tqdm

from course_lib.train.forecast import forecast

with tqdm(desc="timing VGG-16", unit="stage", total=5) as bar:
    vgg = forecast(
        device=device, budget_s=2 if quick else 8,
        progress=lambda done, of: bar.update(),
    )
vgg

# %% [markdown]
# Read the lines under the table from top to bottom: it is all the arithmetic there is. 74 epochs are what the
# authors of VGG trained for (Simonyan and Zisserman, 2014). The guide that this course grew out of says "3 days" for
# a laptop. We call the claim right when your number lies within a factor of two.

# %%
days = vgg.days(74)
factor = days / 3  # the guide says 3 days
if factor > 1:
    note = f"on this machine it takes {factor:.3g} times as long"
else:
    note = f"on this machine it takes {factor:.0%} of that"
epoch_s = history.seconds / epochs
judge(
    "start.compute",
    "holds" if 0.5 <= factor <= 2 else "fails",
    number=days,
    unit="days for VGG-16, forecast; an epoch of our small CNN took "
    f"{epoch_s:.2g} s, measured",
    note=note,
)

# %% [markdown]
# ## When memory runs out
#
# Besides slowness there is a second wall. Here is what it looks like when you run into it. We ask for a *tensor*,
# a block of numbers, with a thousand million million of them. Your machine refuses, as it must:

# %%
try:
    torch.empty(10**15, device=device)
except RuntimeError as error:
    print(f"{type(error).__name__}: {str(error).splitlines()[0]}")

# %% [markdown]
# On an NVIDIA card the message begins with `CUDA out of memory`. It always says how much was asked for. The
# usual reason is a batch that is too large. Save such a message as a file, and `!course explain message.txt` reads
# it for you; lesson 06 makes the training fit. That it is a beginner's *most frequent* error, one machine cannot tell:

# %%
judge(
    "start.memory", "cannot be tested here",
    note="it would take the questions of many beginners, counted",
)
judge(
    "start.causes", "cannot be tested here",
    note="one cause of three showed here, the pipeline; the last lesson counts them",
)

# %% [markdown]
# ## Lab: feed the model
#
# A loader can have helpers: *workers*, processes of their own that prepare the next batches while the model
# computes. One worker hides the loading behind the computing, which saves at most the computing's share of the step.
# Two share the loading too, if two cores are free for them. Here they are without sliders, over the image files:

# %%
from course_lib.teach.labs import start as lab

most, files = min(2, usable_cores()), {"folder": folder, "budget_s": 1 if quick else 3}
alone = lab.measure_loader(batch_size, num_workers=0, **files)
helped = lab.measure_loader(batch_size, num_workers=most, **files)
plot_split({"no worker": alone, f"with {most} worker(s)": helped})

# %% [markdown]
# Now you. The slider goes as far as your machine has cores. Choose, press **Measure**, and compare the bars. Each
# bar is a real measurement of a few seconds. Try 0 workers against 1 or 2. Then a small batch against a large one:
# which part shrinks, and which does not? (If the sliders are gone another day, run this cell again.)

# %%
lab.lab()

# %% [markdown]
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. A wrong try costs nothing. `hint("start.bottleneck")` in a
# cell gives a hint, `solution("start.bottleneck")` shows ours.

# %% tags=["exercise"]
# Exercise 0.1 · 5 minutes · ●○○
# A step took these seconds: split["data"], split["transfer"], split["forward"],
# split["backward"], split["optimizer"], split["rest"]. The model computes in the
# forward pass, in the backward pass and in the optimizer. What is the step limited
# by: "data", "transfer", "compute" or "rest"?
def bottleneck(split: dict[str, float]) -> str:
    # solution
    compute = split["forward"] + split["backward"] + split["optimizer"]
    parts = {name: split[name] for name in ("data", "transfer", "rest")}
    parts["compute"] = compute
    return max(parts, key=parts.get)
    # end

check("start.bottleneck", bottleneck)

# %% tags=["exercise"]
# Exercise 0.2 · 3 minutes · ●○○
# A step of batch_size images takes step_seconds. How many images a second is that?
def samples_per_second(batch_size: int, step_seconds: float) -> float:
    # solution
    return batch_size / step_seconds
    # end

check("start.throughput", samples_per_second)

# %% tags=["exercise"]
# Exercise 0.3 · 5 minutes · ●●○
# How many seconds does one epoch take? Every sample is used once. The last batch may be
# smaller than the others; it takes as long as a full one.
def epoch_seconds(samples: int, batch_size: int, step_seconds: float) -> float:
    # solution
    steps = -(-samples // batch_size)  # division that rounds up
    return steps * step_seconds
    # end

check("start.epoch_time", epoch_seconds)

# %% tags=["exercise"]
# Exercise 0.4 · 5 minutes · ●●○
# A step waits data_wait_s for its batch, then computes for compute_s. Suppose the
# loader were perfect, and the wait gone: by what factor would training be faster?
def best_speedup(data_wait_s: float, compute_s: float) -> float:
    # solution
    return (data_wait_s + compute_s) / compute_s
    # end

check("start.speedup_limit", best_speedup)

# %% [markdown]
# ## Bring your own
#
# Put your own loader and model in place of ours. The loader must yield pairs (inputs, targets). The model is
# copied first, so yours is not changed. The loss is cross-entropy, the usual one for naming what is in an image;
# another one goes in as `loss_fn=`.

# %%
my_loader = file_loader
my_model = model

my_split = measure_split(
    my_loader, my_model, steps=5, warmup=1, budget_s=5 if quick else 20
)
plot_split({"my step": my_split})

# %% [markdown]
# This is where your time goes. And this is the lesson that it calls for:

# %%
from course_lib.teach.road import where_next

where_next(my_split)

# %% [markdown]
# ## What to remember
#
# 1. **Split the step before you change anything.** Data, transfer, forward, backward, optimizer: one is largest.
# 2. **A faster card shortens only the part that computes; a better loader only the wait.** The best possible
#    speed-up is the whole step divided by the part that stays.
# 3. **A long training can be forecast from a short one**: seconds a step, times the steps of an epoch, times the
#    epochs.
#
# `!course progress` shows the exercises that you have passed.
