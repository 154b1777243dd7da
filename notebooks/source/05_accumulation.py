# %% [markdown]
# # A large batch from small ones
#
# The recipe says: batch size 512. Your card says: out of memory. There is a way to train with 512 that needs the
# memory of 64, and it is six lines long. Four of these lines are easy to get wrong, and nothing complains.
#
# After this lesson you can
#
# - make the update of a large batch from small ones, equal to the twelfth digit;
# - find out whether a training loop, yours or a stranger's, really does that, and what is wrong with it;
# - say what it costs, what it saves, and when to leave it alone.
#
# **Time**: 35 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
global_batch = 512
memory = "64 MiB"
budget_s = 0.1 if quick else 3  # seconds for each measurement

# %%
from copy import deepcopy
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.machine import this_machine, usable_cores
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.plots_accumulation import plot_made_of, plot_update_costs

torch.set_num_threads(usable_cores())
this_machine()

# %% [markdown]
# ## It does not fit
#
# We train the course's small network on 512 images of 16 × 16 pixels at once, in a process that gets 64 MiB of memory
# more than it has at the start. That stands for a small card.

# %%
from course_lib.train.limits import run_limited

def one_update(micro_batch):
    sizes = {"global_batch": global_batch, "micro_batch": micro_batch}
    target = "course_lib.train.update_cost:one_update"
    return run_limited(target, memory=memory, arguments=sizes)

one_update(micro_batch=512)

# %% [markdown]
# The memory went to the *activations*: what each layer has computed, kept until the *backward pass* needs it. They
# grow with the batch. The weights do not.
#
# So take the 512 images in eight parts. Each part goes forward and backward, and its activations are gone before the
# next part comes. What stays is the *gradient*: for each weight, which way to change it. PyTorch adds a new gradient
# to the one that is there. After eight parts, one *update* changes the weights.

# %%
one_update(micro_batch=64)

# %% [markdown]
# The same 512 images, one update, and it fits. (The *value* is the loss.) Each part is a *micro-batch*; the eight that
# make one update are a *window*; the whole is *gradient accumulation*. The 512 are the *global batch*.
#
# ## The same update, to the last digit
#
# Is it really the same? We compare two copies of a small model. One gets a batch of 48, the other six of 8. We count
# in float64, numbers with 16 digits, so that rounding hides nothing.

# %%
torch.manual_seed(0)
one = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 5)).double()
many = deepcopy(one)
images, labels = torch.randn(48, 12).double(), torch.randint(5, (48,))

cross_entropy(one(images), labels).backward()

parts = list(zip(images.split(8), labels.split(8)))
for x, y in parts:
    loss = cross_entropy(many(x), y) / len(parts)  # a mean, divided by their number
    loss.backward()  # adds to the gradient that is there

large, summed = one[0].weight.grad, many[0].weight.grad
difference = (large - summed).norm() / large.norm()
print(f"the gradients differ by {difference:.0e} of their size")

# %% [markdown]
# That is the last digit of a float64. Why the division? `cross_entropy` returns a *mean*. The mean over 48 is the mean
# of six means over 8. Six means *added* are six times too much.
#
# ## The loop that everybody copies
#
# This is the loop of the guide that this course grew out of, and of a thousand others:

# %%
def popular(model, loader, optimizer):
    accum_steps = 4
    for i, (x, y) in enumerate(loader):
        loss = cross_entropy(model(x), y) / accum_steps
        loss.backward()
        if (i + 1) % accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

# %% [markdown]
# Read it, and decide: is it right? Then let `prove` decide. It runs the loop on a small task, with 11 micro-batches in
# a pass over the data and 4 in a window. It compares each update with that of the large batch.

# %%
from course_lib.train.equivalence import Reference, prove

popular_proof = prove(popular)
popular_proof

# %% [markdown]
# How does it know? It takes each update apart. The gradient that an update used is a sum of micro-batch gradients, each
# with some weight, and these weights can be computed. Here they are, for a right loop and for the popular one:

# %%
def mended(model, loader, optimizer):
    accum_steps, last = 4, len(loader)
    for i, (x, y) in enumerate(loader):
        window = min(accum_steps, last - i // accum_steps * accum_steps)
        (cross_entropy(model(x), y) / window).backward()
        if (i + 1) % accum_steps == 0 or i + 1 == last:
            optimizer.step()
            optimizer.zero_grad()

plot_made_of(
    {"mended": prove(mended), "the popular loop": popular_proof},
    title="What each update is made of (computed)",
)

# %% [markdown]
# Read a row as a recipe. A frame says what belongs in the update, 1 says that it counts as it should. Blue is right;
# orange does not belong there, or counts too much or too little. The popular loop makes no update from micro-batches 9 to 11. Worse, their gradients stay and leak into the first update of the next pass.
# With 1,003 batches and 8 steps, three batches of 1,003 are lost. With 7 batches and 8 steps, nothing is ever learned.
#
# ## A gallery of faults
#
# Three more that people really made. None prints an error. Look at the picture first, and guess what the code does.

# %%
def forgotten(model, window, optimizer):  # prove hands over one window at a time
    for x, y in window:
        (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()

def eager(model, window, optimizer):
    for x, y in window:
        optimizer.zero_grad()
        (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()

def undivided(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        cross_entropy(model(x), y).backward()
    optimizer.step()

# %%
gallery = {"A": prove(forgotten), "B": prove(eager), "C": prove(undivided)}
plot_made_of(gallery, title="Three faults (computed)")

# %%
for letter, its_proof in gallery.items():
    print(f"{letter}: {its_proof.faults[0]}\n")

# %% [markdown]
# **A** has no `zero_grad`: each update repeats all that came before. **B** calls it for each micro-batch: three quarters
# of the work are thrown away. **C** makes each gradient four times too large, as if the learning rate were four times as
# high. With the Adam optimizer that hardly shows, until you clip gradients or compare runs.
#
# ## Texts are not all equally long
#
# A language model's loss is a mean over *tokens*, pieces of words. One batch has 20 of them, the next 200. Divide each
# mean by the number of batches, and a token of the short batch counts ten times as much: a *mean of means*. Popular
# libraries did this until 2024 (Hugging Face, "Fixing Gradient Accumulation", October 2024). `criterion` is the loss
# function that `prove` hands in: this mean over tokens.

# %%
def mean_of_means(model, window, optimizer, criterion):
    optimizer.zero_grad()
    for tokens, targets in window:
        (criterion(model(tokens), targets) / len(window)).backward()
    optimizer.step()

def by_tokens(model, window, optimizer, criterion):
    # -100 marks what does not count
    counts = [int((targets != -100).sum()) for _, targets in window]
    optimizer.zero_grad()
    for count, (tokens, targets) in zip(counts, window):
        (criterion(model(tokens), targets) * count / sum(counts)).backward()
    optimizer.step()

# %%
texts = Reference(weight_by="tokens")
pair = {
    "mean of means": prove(mean_of_means, texts), "by tokens": prove(by_tokens, texts),
}
print(pair["mean of means"].faults[0])
plot_made_of(pair, title="Unequal texts (computed)")

# %% [markdown]
# ## What no loop can make equal
#
# *BatchNorm* subtracts the mean of its batch. From eight parts come eight means, so no accumulation is equal to the
# large batch. *Dropout* switches off parts of the network by lot, and the lot falls differently. Both are no fault of
# the loop, and `prove` says so. It still finds faults beside them.

# %%
def with_batchnorm():
    first, last = nn.Linear(12, 16), nn.Linear(16, 5)
    return nn.Sequential(first, nn.BatchNorm1d(16), nn.ReLU(), last)

prove(mended, Reference(make_model=with_batchnorm))

# %% [markdown]
# (Models with LayerNorm or GroupNorm, which look at each sample alone, have no such trouble.)
#
# ## The same through the library
#
# Three more things must happen once a window. A *scheduler* changes the learning rate as training goes on. *Clipping*
# shortens a gradient that is too long. A *scaler* multiplies losses so that 16-bit gradients do not vanish, and divides
# the gradients again, which is called *unscaling* (lesson 03). The order is: unscale, clip, update, scheduler.
#
# `windows` cuts any stream of batches and gives each its weight, by samples or tokens. `AccumulatingStep` does the rest.

# %%
from course_lib.train.accumulation import AccumulatingStep
from course_lib.train.step import TrainingStep

def through_library(model, loader, optimizer, scheduler, scaler):
    inner = TrainingStep(model, optimizer, grad_scaler=scaler, max_grad_norm=0.1)
    step = AccumulatingStep(inner, 4, scheduler=scheduler)
    for window in step.windows(loader):
        step(window)

library_proof = prove(through_library)
assert library_proof.equivalent, library_proof
assert library_proof.gradient_difference < 1e-12, library_proof
library_proof

# %% [markdown]
# ## What it costs, and what it saves
#
# The same 512 images, in several cuts, on your machine. Activations are counted exactly; times are measured.

# %%
from course_lib.teach.labs import accumulation as lab

cuts = (512, 64, 16) if quick else (512, 128, 32, 8)
costs = [lab.measure(global_batch, cut, budget_s=budget_s) for cut in cuts]
plot_update_costs(costs, title=f"One update from {global_batch} images")

# %%
by_time = sorted(costs, key=lambda cost: cost.seconds)
first, last = by_time[0], by_time[-1]
print(f"fastest here: {first}")
print(f"slowest here: {last}, {last.seconds / first.seconds:.1f} times as long")

# %% [markdown]
# The memory falls with the micro-batch. The work does not: every image still passes forward and backward once.
# **Accumulation buys memory. It saves no work.** What differs is which size the machine likes. On a processor a middle
# size is often the fastest, as its data stay in the *cache*, a small and fast memory. A GPU wants large micro-batches:
# too small, and most of it has nothing to do.
#
# What would a larger model need? The course computes that without a card (*predicted*; lesson 06 shows how):

# %%
from course_lib.accelerators import find_accelerator
from course_lib.plan.batch_size import plan_workload
from course_lib.plan.model_names import named_workload

card = find_accelerator("RTX 3060 12GB")
for micro_batch, steps in ((256, 1), (32, 8)):
    work = named_workload("resnet50", micro_batch=micro_batch, accumulate=steps)
    plan = plan_workload(work, card)
    fits, gib = "fits" if plan.fits else "does not fit", plan.total / 2**30
    print(f"ResNet-50, {steps} x {micro_batch}: {gib:.1f} GiB, {fits} ({card.name})")

# %% [markdown]
# ## Lab: one update, cut as you like
#
# Choose a global batch and a micro-batch, and press **Measure**. Where is your machine's best size? Does the memory
# change when the global batch grows and the micro-batch stays?

# %%
lab.lab()

# %% [markdown]
# ## On several cards: send once
#
# To train on two cards, one starts a process for each, a *rank*. After the backward pass the ranks exchange gradients
# and take the mean. (Lesson 02 is about that.) With accumulation, this is needed only once a window.
# `model.no_sync()` keeps a rank quiet meanwhile. It must cover the **forward** pass too: that is where PyTorch decides
# whether to send. Ranks are processes of their own, so the step stands in a file:

# %%
Path("two_ranks.py").write_text('''
from contextlib import nullcontext
from torch.nn.functional import cross_entropy

def train(model, loader, optimizer, epoch):
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % 4 == 0
        quiet = epoch == 1 and not last  # only in the second pass over the data
        with model.no_sync() if quiet else nullcontext():
            (cross_entropy(model(x), y) / 4).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
''', encoding="utf-8")
ranks_proof = prove("two_ranks.py:train", Reference(ranks=(8, 8)))
ranks_proof

# %%
always, once = ranks_proof.bytes_sent[0]
print(f"a rank sends {always:,} bytes in the first pass")
print(f"and {once:,} in the second, with no_sync")

# %% [markdown]
# Both passes are right, and the second sends a quarter. (Measured between two processes of your computer. What it means
# in seconds depends on the cable.)
#
# ## The guide's rule, judged
#
# "Divide the loss by `accum_steps`, step and `zero_grad` every `accum_steps`." We try it on passes of different length,
# with and without BatchNorm.

# %%
import textwrap

trials = {
    "12 equal batches": Reference(micro_batches=12),
    "11 equal batches": Reference(micro_batches=11),
    "12 equal batches, BatchNorm": Reference(
        micro_batches=12, make_model=with_batchnorm
    ),
    "3 batches, fewer than a window": Reference(micro_batches=3),
}
passed = 0
for name, reference in trials.items():
    outcome = prove(popular, reference)
    passed += outcome.equivalent and not outcome.natural
    told = f"{name}: {outcome.verdict}"
    print(textwrap.fill(told, 88, subsequent_indent="    "))

# %%
judge(
    "accumulation.recipe",
    "holds" if passed == len(trials) else "holds when" if passed else "fails",
    number=passed,
    unit=f"of {len(trials)} trials the same as the large batch; computed here",
    note="the windows come out even, all batches are equally large, and nothing looks "
    "at a whole batch",
)

# %% [markdown]
# ## When to leave it alone
#
# - **The batch fits.** Then accumulation only adds lines that can be wrong.
# - **You want speed.** No image is left out: the work is the same. Mixed precision (lesson 03) and a fed card (lesson 04) help.
# - **The weights alone do not fit.** Accumulation cuts activations and nothing else.
# - **The micro-batch is tiny and the model has BatchNorm.** Its means over two images are noise.
#
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("accumulation.updates")` gives a hint,
# `solution("accumulation.updates")` shows ours.

# %% tags=["exercise"]
# Exercise 5.1 · 4 minutes · ●○○
# A card takes at most `fits` samples at once, and `ranks` cards work side by side. How
# many accumulation steps reach a global batch of at least global_batch?
def steps_needed(global_batch: int, fits: int, ranks: int) -> int:
    # solution
    return -(-global_batch // (fits * ranks))  # division that rounds up
    # end

check("accumulation.steps_needed", steps_needed)

# %% tags=["exercise"]
# Exercise 5.2 · 3 minutes · ●○○
# A loader gives so many batches in an epoch. How many updates does a right loop make
# from them?
def updates_in_epoch(batches: int, accumulation_steps: int) -> int:
    # solution
    return -(-batches // accumulation_steps)
    # end

check("accumulation.updates", updates_in_epoch)

# %% tags=["exercise"]
# Exercise 5.3 · 6 minutes · ●●○
# Each micro-batch of a window has a loss, the mean over its tokens. What is the mean
# over all tokens of the window?
def window_loss(mean_losses: list[float], tokens: list[int]) -> float:
    # solution
    return sum(loss * count for loss, count in zip(mean_losses, tokens)) / sum(tokens)
    # end

check("accumulation.window_loss", window_loss)

# %% tags=["exercise"]
# Exercise 5.4 · 12 minutes · ●●●
# Write one epoch with 4 micro-batches in an update, so that nothing is lost and
# everything counts as it should, whatever len(loader) is. All micro-batches are equally
# large. The check runs `prove` on your function.
def train_epoch(model, loader, optimizer, criterion):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        # solution
        window = min(4, len(loader) - i // 4 * 4)
        (loss / window).backward()
        if (i + 1) % 4 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
        # end

check("accumulation.whole_step", train_epoch)

# %% [markdown]
# ## Bring your own
#
# Put your own loop in place of ours. Its parameters say by name what it needs: `model`, `loader`, `optimizer`, and if
# you use them `criterion`, `scheduler`, `scaler`, `max_norm`. If your windows are not 4 long, say so.

# %%
def my_epoch(model, loader, optimizer, scheduler, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        scheduler.step()

prove(my_epoch, Reference(accumulation_steps=4))

# %% [markdown]
# Three faults in ten lines; yours has fewer, we hope. In a terminal, `course prove my_step.py:my_epoch` does this with a
# file, in a process of its own, and `--ranks 7,5` on two ranks with unequal shares.
#
# ## What to remember
#
# 1. **Divide by what is really in the window**: by its number of micro-batches if all are equal, else by samples or
#    tokens. The last window is shorter.
# 2. **Once a window**: unscale, clip, update, `zero_grad`, scheduler, and the exchange between ranks.
# 3. **Accumulation buys memory and saves no work.** And do not trust a loop that runs: prove it.
#
# **Where to go next.** Memory is still short: lesson 06, *When memory runs out*. It fits and is slow: lesson 03,
# *Half the bytes*. `!course progress` shows the exercises that you have passed.
