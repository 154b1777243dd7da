# %% [markdown]
# # Feed the card
#
# A fast card with a slow loader is a slow card. In this lesson you measure what a training step waits for, and mend
# it, one change at a time.
#
# After this lesson you can
#
# - say what share of the time your step waits, and for what: reading files, turning them into pixels, or putting a
#   batch together;
# - choose the number of workers for your machine by measuring, not by a formula;
# - recognise what goes wrong with workers, also where nothing is reported.
#
# **Time**: 40 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
batch_size = 16 if quick else 64
photographs = 32 if quick else 256
budget_s = 0.3 if quick else 2.0  # seconds for one measurement

# %%
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler below prints no log

import time

import torch
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from course_lib.machine import shared_memory_bytes, this_machine, usable_cores
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.plots_loading import (
    plot_climb, plot_stall, plot_sweep, plot_timeline,
)

cores = usable_cores()
torch.set_num_threads(cores)
if (shared_memory_bytes() or 2**40) < 2**30:
    batch_size = 16  # the memory through which workers hand batches over is small here
this_machine()

# %% [markdown]
# ## A card that you need not own
#
# How long does a training step take on a good card? The authors of the library *timm* measured it: on an NVIDIA RTX
# 3090, ResNet-18, a network that names what is in a picture, trains on 3,482 pictures of 224 × 224 pixels a second,
# 512 at a time (results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv in their repository). `EmulatedStep` takes
# that time in proportion to our smaller batch, and leaves your processor free, as a card does. It computes nothing:
# it is **emulated**. All loading on this page is real, and measured on your machine.
#
# The next cell makes real JPEG files, of the size and detail of photographs, once. With the other forms that we
# make of them below they take some 0.5 MB of disk each, in the folder `images`.

# %%
from course_lib.train.emulate import EmulatedStep
from course_lib.train.photographs import Photographs, write_photographs

card = 3482  # pictures a second that it could use
step = EmulatedStep(batch_size / card)
folder = write_photographs("images", photographs)
dataset = Photographs(folder)
print(f"{step}, for a batch of {batch_size}")
size = sum(file.stat().st_size for file in folder.iterdir()) / len(dataset)
print(f"{len(dataset)} files of {size / 1024:.0f} KiB in images/")

# %%
from course_lib.teach.plots import show_images

shown = [(dataset[i][0] * 0.22 + 0.45).clamp(0, 1) for i in range(8)]  # back to colours
show_images(shown, title="Eight of them, cut at random", ink=False)

# %% [markdown]
# ## The card waits
#
# Now the plain loader that everybody writes first. We look at a clock between the batch and the step.

# %%
loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
step = EmulatedStep(batch_size / card)

def clock_it(loader, steps):
    waited = worked = 0.0
    batches = iter(loader)
    for _ in range(steps):
        t0 = time.perf_counter()
        batch = next(batches)
        t1 = time.perf_counter()
        step(batch)
        waited, worked = waited + t1 - t0, worked + time.perf_counter() - t1
    return waited / steps, worked / steps

wait_s, work_s = clock_it(loader, steps=1 if quick else 3)
print(f"each step waits {1000 * wait_s:.0f} ms and works {1000 * work_s:.0f} ms")
print(f"the card works {100 * work_s / (wait_s + work_s):.0f} % of the time")

# %% [markdown]
# For nearly all of each second, nothing is computed. A card twice as fast would change almost nothing.
# **Before you buy, feed.**
#
# ## What does it wait for?
#
# Somebody must read each file and *decode* it: turn the compressed bytes into pixels. Then each picture is cut, and all
# pictures of a batch are put into one tensor, which is called *collating*. `measure` splits the wait. It runs the step
# with one batch again and again: this is the best that can be. Then it runs it with its loader. It also makes a few
# batches itself, with a clock between the parts. It needs no profiler and no administrator.

# %%
from course_lib.train.loading import measure

starved = measure(loader, step, budget_s=2 * budget_s)
starved

# %%
plot_stall({"JPEG files, no worker": starved})

# %% [markdown]
# Does a profiler see the same? A *profiler* records every call of a program. PyTorch's own gives a mark to each
# request for a batch. It tells how long the batches took, but not what they were spent on.

# %%
from torch.profiler import ProfilerActivity, profile

batches = iter(loader)
with profile(activities=[ProfilerActivity.CPU]) as trace:
    step(next(batches))
named = [event for event in trace.key_averages() if "DataLoader" in event.key]
profiler_s = sum(event.cpu_time_total for event in named) / 1e6
print(f"torch.profiler: a batch takes {1000 * profiler_s:.0f} ms ({named[0].key})")
wait_ms = 1000 * starved.wait_s
print(f"our split:      a step waits {wait_ms:.0f} ms, mostly {starved.largest}")

# %% [markdown]
# The guide that this course grew out of says that a beginner's card is used for less than 30 % of the time, and that
# loading a batch takes longer than the *forward pass*, the first third of a step. Here is your number.

# %%
busy = 1 - starved.waiting
judge(
    "start.idle", "holds when" if busy < 0.30 else "fails",
    number=round(100 * busy, 1),
    unit="% of the time at work, beside an emulated RTX 3090",
    note="photographs are decoded without workers; a batch takes "
    f"{starved.wait_s / starved.step_alone_s:.0f} times as long as the whole step",
)

# %% [markdown]
# ## Load while the card computes
#
# The first cure costs 15 lines. While the step runs, another *thread* makes the next batch: a thread is a second
# line of work in the same program. The two meet at a *queue*, a shelf with room for a few batches.

# %%
import queue
import threading

def prefetch(loader, ahead=2):
    shelf = queue.Queue(maxsize=ahead)

    def work():
        for batch in loader:
            shelf.put(batch)
        shelf.put(None)  # the end

    threading.Thread(target=work, daemon=True).start()
    while (batch := shelf.get()) is not None:
        yield batch

# %% [markdown]
# The course's `Prefetcher` does the same and also ends its thread when you leave the loop. Both must give the
# same batches:

# %%
from course_lib.train.data import Digits
from course_lib.train.loading.prefetch import Prefetcher

small = DataLoader(Digits("train"), batch_size=256)
for mine, theirs, plain in zip(prefetch(small), Prefetcher(small), small, strict=True):
    torch.testing.assert_close(mine[0], plain[0])
    torch.testing.assert_close(theirs[0], plain[0])
print("the same batches in the same order")

# %% [markdown]
# A thread hides the loading behind the step, if the step is long enough. Ours is short. To make more batches in the
# same time, several must be made **side by side**: `num_workers` starts so many processes, each of which makes whole
# batches. Look at them at work, beside a step that takes half as long as the making of its batch:

# %%
from course_lib.train.loading.settings import LoaderSettings
from course_lib.train.loading.timeline import record_timeline

few, many = (8, 6) if quick else (16, 8)  # small batches, and how many
step_s = starved.wait_s * few / batch_size / 2
slower, timelines = EmulatedStep(step_s), {}
for n in (0, 1, min(2, cores)):
    name, settings = f"{n} worker{'s' if n != 1 else ''}", LoaderSettings(n)
    timelines[name] = record_timeline(
        dataset, slower, settings, batch_size=few, batches=many
    )
title = f"Batches of {few} beside a step of {1000 * step_s:.0f} ms (emulated)"
plot_timeline(timelines, title=title)

# %% [markdown]
# Orange: a batch is made. Blue: the step has it. The number says which batch. Without a worker the two take turns.
# One worker makes batches while the step runs, but half as fast as the step uses them. With two, and a free core for each,
# the gaps in the blue row all but close. Workers start before the first step, and each keeps up to two batches
# ready (`prefetch_factor`).
#
# ## One change at a time
#
# Now the whole way up, each change measured. Guess first: which one will help most?
#
# | change | idea |
# |---|---|
# | workers | several processes make batches |
# | prefetch | more batches lie ready |
# | uint8 over the wire | send each colour value as one byte (uint8), not four (float32); scale (*normalise*) it on the card |
# | decoded to size | JPEG can be decoded at half its size, where fewer pixels are needed |
# | files resized once | store small files: less to decode, in every epoch |
# | memory map | store raw pixels in one file, and read it as if it were memory: nothing to decode |

# %%
from course_lib.train.loading.recipes import MEANINGS, climb, gain_of, recipes, way_up

with tqdm(total=100, bar_format="{desc} |{bar}|") as bar:

    def follow(share, doing):
        bar.set_description_str(doing)
        bar.update(round(100 * share) - bar.n)

    set_ups, step = way_up(folder, cores=cores), EmulatedStep(batch_size / card)
    up = climb(set_ups, step, batch_size=batch_size, budget_s=budget_s, progress=follow)
up

# %%
plot_climb(up, title=f"Batches of {batch_size} beside an RTX 3090 (emulated)")

# %% [markdown]
# Each gain is over the line before. "No effect" and "less than a tenth" are results too: leave such a change out. "Not
# certain" is not a result: the measurements spread so much that it may be chance. Measure longer then, with a larger
# `budget_s`. Where only a range stands, the sign is certain and the size is not.
#
# A larger prefetch cannot help where batches are made too slowly all the time: a shelf evens out only what is uneven.
#
# What remains of the gap? With JPEG files your cores are the limit: each picture takes some milliseconds of one core, and no
# setting makes more cores. The memory map has nothing to decode. Through a *worker* its batches still pay for the way
# from one process to the other. A thread has no such way.
#
# And why not always a memory map? It takes more room on the disk, and here each picture keeps its scale: the random
# change of size is gone.

# %%
jpeg_s, raw_s = up.rungs[0].rate.median, up.rungs[-1].rate.median
first, last = 100 * up.rungs[0].of_alone, 100 * up.rungs[-1].of_alone
faster = raw_s / jpeg_s
print(f"from {first:.0f} % to {last:.0f} % of the card: {faster:.0f} times as fast")
print("each recipe can be tried alone:")
for name in recipes(folder, cores=cores):
    print(f"    {name:28} {MEANINGS[name]}")

# %%
with tqdm(total=100, bar_format="{desc} |{bar}|") as bar:
    gain = gain_of(
        "persistent workers", folder, step,
        batch_size=batch_size, cores=cores, budget_s=budget_s, progress=follow,
    )
print(gain)

# %% [markdown]
# ## How many workers?
#
# Everybody has a formula. The guide: the smaller of the CPU cores and four times the GPUs. Lightning, a training
# library: the cores less one. PyTorch warns above the number of cores. None of them looks at the data. We measure:
# first one number after the other, then `tune`, which makes a few batches, computes what to expect (the dashed line),
# and tries only what is promising. It also sets `persistent_workers`, which keeps workers from epoch to epoch, and
# `pin_memory`, which keeps batches where an NVIDIA card can fetch them without waiting. The data set here waits for a
# slow disk (emulated: 4 ms a file).

# %%
from course_lib.train.formats import MemoryMappedPhotographs, SlowDisk, write_memory_map
from course_lib.train.loading.settings import Source
from course_lib.train.loading.step_bench import StepBench
from course_lib.train.loading.trials import run_trial

slow = SlowDisk(MemoryMappedPhotographs(write_memory_map(folder)), 0.004)
quick_step = EmulatedStep(0.018)
bench = StepBench(quick_step, torch.device("cpu"))
source = Source.of(slow, batch_size=16)
sweep, numbers = {}, (0, 1, 2, 4) if quick else (0, 1, 2, 4, 6)
for n in tqdm(numbers, desc="one number of workers after the other"):
    sweep[n] = run_trial(source, LoaderSettings(n), bench, budget_s).samples_per_second

# %%
from course_lib.train.loading import tune

tuned = tune(slow, quick_step, batch_size=16, budget_seconds=2 if quick else 20)
tuned

# %%
from course_lib.claims import best_num_workers
from course_lib.train.loading.rules import lightning_suggestion

guide, lightning = best_num_workers(cores, gpus=1), lightning_suggestion(cores)
chosen = tuned.settings.num_workers
marks = {"the guide, with 1 GPU": guide, "Lightning": lightning, "tune": chosen}
title = "A slow disk (emulated), batches of 16"
plot_sweep(sweep, tuned=tuned, marks=marks, title=title)

# %%
if guide not in sweep:
    trial = run_trial(source, LoaderSettings(guide), bench, budget_s)
    sweep[guide] = trial.samples_per_second
of_best = sweep[guide] / max(*sweep.values(), tuned.samples_per_second)
if of_best < 0.95:
    note = f"it gives {guide}; workers that wait for a disk keep no core busy"
    note += f": {chosen} are better"
else:
    note = "as many workers as cores are enough for this data set"
judge(
    "loading.workers", "fails" if of_best < 0.95 else "holds when",
    number=round(100 * of_best),
    unit="% of the best throughput here with the guide's number", note=note,
)

# %% [markdown]
# Decoding keeps a core busy: more workers than cores cannot help. Waiting keeps none busy: many workers can wait at
# the same time. And a light data set is fastest with **no** worker. That is why no formula over cores can be right for all.
#
# ## Lab: your own curve
#
# Choose a batch size, a number of workers and a card, and press **Measure**. Each measurement is a point of the
# curve. Try 0, 1, 2, and more workers than you have cores. The second card can use 1.3 times what one of your cores
# makes: how many workers feed it? (If you have one core, no number does.) **Cancel** ends a measurement when the next
# batch is there; the notebook's stop button does not. Without sliders:

# %%
from course_lib.teach.labs import loading as lab

few_cores = min(2, cores)
points = {
    n: lab.measure_rate(16, n, folder=folder, budget_s=budget_s).median
    for n in (0, few_cores)
}
plot_sweep(points, title="Photographs, batches of 16, beside an RTX 3090 (emulated)")

# %%
lab.lab()

# %% [markdown]
# ## What goes wrong with workers
#
# Workers are processes, and that has consequences. Each of these faults is made to happen **for real**, in a child
# process of its own, so that your page goes on. Read first what it says, then why.

# %%
from IPython.display import display

from course_lib.train.loading.faults import KINDS, provoke

kinds = ["same_augmentations"]
if not quick:
    kinds += ["class_of_a_notebook", "too_many_open_files"]
for kind in tqdm(kinds, desc="faults, in children"):
    display(provoke(kind))

# %% [markdown]
# *Augmentations* are random changes of each picture, so that the model sees more variety. The same ones in each worker
# are the most dangerous fault, because **nothing fails**: with two workers the model sees half the variety. Three more
# of this silent kind are in the list. Try one: `provoke("shared_file")`.

# %%
for kind, known in KINDS.items():
    print(f"{kind:22} {known.title}")

# %% [markdown]
# The guide says that 80 % of all performance problems are solved in the data pipeline. One machine cannot count the problems of
# all learners. What it can say is how much of *this* one was.

# %%
judge(
    "capstone.pipeline", "cannot be tested here",
    number=round(100 * starved.waiting),
    unit="% of the time of our first loader was waiting for data",
    note="it would take many people's trainings, counted",
)

# %% [markdown]
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("loading.amdahl")` in a cell gives a hint.

# %% tags=["exercise"]
# Exercise 4.1 · 6 minutes · ●●○
# A share of the time (0 to 1) is made faster by a factor; the rest stays as it is.
# How many times as fast is the whole? (This is Amdahl's law.)
def amdahl(share: float, factor: float) -> float:
    # solution
    return 1 / (1 - share + share / factor)
    # end

check("loading.amdahl", amdahl)

# %% tags=["exercise"]
# Exercise 4.2 · 4 minutes · ●○○
# One worker makes a batch in make_s seconds; a step uses it up in step_s. How many
# workers are needed, at the fewest, so that the step never waits? (There are cores
# enough.)
import math

def workers_needed(make_s: float, step_s: float) -> int:
    # solution
    return math.ceil(make_s / step_s)
    # end

check("loading.workers_needed", workers_needed)

# %% tags=["exercise"]
# Exercise 4.3 · 8 minutes · ●●●
# How many seconds does each step wait, once all is running? Without workers the batch
# is made before the step, in make_s seconds. With workers, all of them make batches
# all the time, also while the step runs.
def waiting_s(make_s: float, step_s: float, workers: int) -> float:
    # solution
    if workers == 0:
        return make_s
    return max(0.0, make_s / workers - step_s)
    # end

check("loading.waiting", waiting_s)

# %% tags=["exercise"]
# Exercise 4.4 · 4 minutes · ●●○
# Somebody measures on 2 cores: 110 pictures a second with 0 workers, 200 with 2, 201
# with 8. Both cores are at 99 %, and the card works 12 % of the time. What limits it?
#   "a"  the disk           "b"  the card        "c"  the cores, by decoding
#   "d"  too few workers    "e"  handing the batches over
# solution
limit = "c"
# end

check("loading.limit", limit)

# %% [markdown]
# ## Bring your own
#
# Put your own data set in place of ours, from a `.py` file beside this page, and the time of your step. In a terminal:
# `course tune my_data:train_set --batch 64 --step-ms 18`.

# %%
my_dataset = Photographs(folder, wire="uint8")
my_step_s = 0.2

my_step, budget = EmulatedStep(my_step_s), 2 if quick else 30
tune(my_dataset, my_step, batch_size=32, budget_seconds=budget)

# %% [markdown]
# ## What to remember
#
# 1. **Measure the wait before you buy**: replay one batch, then use the real loader. The difference is what you can win.
# 2. **What a worker waits for decides how many you need**: cores for decoding, as many as you like for waiting,
#    none where a batch costs next to nothing.
# 3. **The largest gains change the data, not the loader**: smaller files, bytes in place of floats, pixels stored ready.
#
# Next on the usual road: lesson 06, when memory runs out.
