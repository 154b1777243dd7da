# %% [markdown]
# # Which card?
#
# Somebody tells you: for so many images buy this card, for longer texts rent that one. It sounds simple. Is it true? You
# can know before you pay, and without having the card.
#
# After this lesson you can
#
# - say whether the driver, CUDA and PyTorch of your computer fit each other;
# - predict how fast a card is for *your* model, from two numbers of its data sheet;
# - find the number on a data sheet that is too good to be true;
# - choose a card by the right questions, with hours and money.
#
# **Time**: 40 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00. Lesson 06 helps, and is not
# needed.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
size = 512 if quick else 1024  # rows of the large matrices
seconds_each = 0.15 if quick else 0.6  # for each measurement

# %%
import time

import torch

from course_lib.accelerators import accelerators, find
from course_lib.machine import best_device, this_machine, usable_cores
from course_lib.teach import check, hint, judge, solution

device = best_device()
torch.set_num_threads(usable_cores())
this_machine()

# %% [markdown]
# ## Driver, CUDA, PyTorch: who needs whom?
#
# Four things must fit together before a card does any work:
#
# | what | who brings it | what it must fit |
# |---|---|---|
# | the **card** | you, or a cloud | its *compute capability*, the generation of its chip, must be one that PyTorch was built for |
# | the **driver** | the maker of the card | it must be as new as the CUDA that PyTorch brings |
# | **CUDA** | comes inside PyTorch | nothing that you have to install; `nvidia-smi` shows the newest that the *driver* can run |
# | the **build of PyTorch** | `pip` | a build for CUDA, for AMD's ROCm, for Apple, or for the processor alone |
#
# The usual mistake is the last line: a build for the processor on a computer with a card. It runs, and is slow, and
# says nothing. The course looks for that:

# %%
from course_lib.teach.doctor.facts import gather_facts
from course_lib.teach.doctor.torch_build import check_device, check_torch

facts = gather_facts()
for found in (check_torch(facts), check_device(facts)):
    if found:
        print(f"{found.status}: {found.name}: {found.found}")
        print(found.cure or "nothing to cure")
print("PyTorch", torch.__version__, "brings CUDA", torch.version.cuda, end="; ")
print("a card is reached:", torch.cuda.is_available())

# %% [markdown]
# `!course doctor` checks this and the rest of the computer, and says what to do.
#
# ## How fast is a computer?
#
# Data sheets speak of *TFLOPS*: million million operations on numbers in a second. Let us see what **your** machine
# reaches. Four operations that every network is made of, each timed here. For each we also count by hand what it
# computes (FLOP) and what it reads and writes (bytes).

# %%
def timed(work):
    work()
    best, until = float("inf"), time.perf_counter() + seconds_each
    while time.perf_counter() < until:
        start = time.perf_counter()
        work()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        best = min(best, time.perf_counter() - start)
    return best

# %%
from course_lib.teach.plots_hardware import Operation, plot_roofline

a, b = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
thin = torch.rand(size, 8, device=device)
long = torch.rand(2**23, device=device)
n = size
works = {  # name: (what to run, FLOP, bytes read and written)
    "large product": (lambda: a @ b, 2 * n**3, 3 * 4 * n**2),
    "thin product": (lambda: a @ thin, 2 * n * n * 8, 4 * (n * n + 2 * 8 * n)),
    "ReLU": (lambda: torch.relu_(long), len(long), 2 * 4 * len(long)),  # _: in place
    "sum": (long.sum, len(long), 4 * len(long)),
}
ops = [Operation(name, *counts, timed(run)) for name, (run, *counts) in works.items()]
for op in ops:
    rate = op.flops / op.seconds / 1e9
    print(f"{op.name:14} {1e3 * op.seconds:8.3f} ms  {rate:8.1f} GFLOP/s of arithmetic")

# %% [markdown]
# One machine, and rates that differ many times over. One number, "TFLOPS", cannot be the speed of a computer.
#
# ## The roofline, in ten lines
#
# Two things happen at once: numbers are **moved** from memory, and numbers are **computed**. Whichever takes longer
# decides. So two numbers describe a machine: its *peak* (FLOP a second) and its *bandwidth* (bytes a second). An
# operation is described by one: how much it computes for each byte, its *arithmetic intensity*.

# %%
peak = ops[0].flops / ops[0].seconds  # the best this machine does: a large product
source, target = torch.rand(2**23, device=device), torch.empty(2**23, device=device)
bandwidth = 2 * 4 * len(source) / timed(lambda: target.copy_(source))

def predict_seconds(flop, nbytes):
    compute = flop / peak
    memory = nbytes / bandwidth
    return max(compute, memory)

print(f"measured: peak {peak / 1e9:.0f} GFLOP/s, bandwidth {bandwidth / 1e9:.1f} GB/s")
for op in ops:
    told, took = 1e3 * predict_seconds(op.flops, op.nbytes), 1e3 * op.seconds
    print(f"{op.name:14} predicted {told:8.3f} ms, measured {took:8.3f} ms")

# %%
plot_roofline(peak, bandwidth, ops)

# %% [markdown]
# Under the slope one waits for memory, and more TFLOPS change nothing. Under the flat part one waits for arithmetic. No
# program part is perfect, so dots lie under the roof: a thin product has sides too short to keep all units busy. (A
# dot may also lie above the slope: small data stays in the processor's *cache*, a memory of its own that is faster.)
#
# The course's predictions use the same two clocks. Where both take equally long, a real machine needs more than either;
# so they are joined by a root of squares, and not by `max`. For a matrix product on an RTX 3090, by hand and by
# the library:

# %%
from course_lib.plan.roofline import rates_of, together

rates = rates_of(find("3090"))
flop, nbytes = 2 * 4096**3, 3 * 2 * 4096**2  # half precision: two bytes for a number
by_hand = ((flop / rates.peak("fp16")) ** 2 + (nbytes / rates.bandwidth) ** 2) ** 0.5
by_library = together(flop / rates.peak("fp16"), nbytes / rates.bandwidth, start=0)
assert abs(by_hand - by_library) < 1e-12
print(f"{1e3 * by_hand:.2f} ms at the peaks of the data sheet")
print("(a real product reaches about three quarters of such a peak)")

# %% [markdown]
# ## A whole network, on a card that you do not have
#
# A training step is some hundreds of such operations. The course writes them down without running them (a *trace*), adds
# up their times, and says between which bounds nine of ten measurements lie.

# %%
from course_lib.plan.speed import predict
from course_lib.teach.saved_jobs import job_traces

resnet = job_traces("resnet50", 224, "fp16").at(128)  # traced beforehand, and saved
for name in ("T4", "RTX 3060", "RTX 3090", "RTX 4090", "H100"):
    step = predict(resnet, find(name))
    rate = f"{step.samples_per_second:7,.0f} images/s"
    print(f"{step.card:14}{rate}, bound by {step.bound}, {step.mfu:.0%} of the peak")

# %% [markdown]
# Read the last column. The H100 has fourteen times the 16-bit peak of the 3090, and is nowhere near fourteen times as
# fast: the larger the peak, the smaller the part that is used, for much of a ResNet's step is moving numbers (*bound by*
# says what takes the most time). **Compare bandwidths first, peaks second.**
#
# And your own computer? Lesson 00 counted the work of VGG-16, an old and large network, stage by stage. With the backward
# pass it is three times that of the forward pass. At its very best (the peak that we measured above), 74 epochs of
# ImageNet's 1.28 million pictures take this computer:

# %%
from course_lib.train.stages import VGG16

flop_per_picture = 3 * sum(stage.forward_flops for stage in VGG16)
best_days = flop_per_picture * 1_281_167 * 74 / peak / 86_400
work = f"{flop_per_picture / 1e9:.0f} GFLOP for one picture"
print(f"{work}, at {peak / 1e9:.0f} GFLOP a second")
judge(
    "start.compute",
    "holds" if best_days <= 6 else "fails",
    number=best_days, unit="days for VGG-16 at the peak measured here, no less",
    note="the guide says 3 days for a laptop; called right up to twice that",
)

# %% [markdown]
# ## The lost table
#
# The guide had a table of prices and performance, of 2023. It is lost; here it is again, from dated sources. The rates
# were measured by others (Lambda, ResNet-50 with 16-bit numbers, one software for all); the prices are means of what
# was sold on eBay (used) or list prices (new). Beside each rate stands a check: what the course computes for that card
# from the **other eight** rows and the data sheets.

# %%
from course_lib.teach.labs import hardware as lab

table = lab.price_table()
print(f"half of the predictions are within {table.median_error:.0%} of the measurement")
table

# %% [markdown]
# You may have noticed: further up, the course predicted **other** rates for the same cards, such as more for the RTX 4090.
# That was for another software (the next cell names it). For one A100 of 80 GB, Lambda measured 1,582 images a second; NVIDIA itself reports
# 2,470 (github.com/NVIDIA/DeepLearningExamples, PyTorch, ResNet-50). One chip, one network, 1.56 times apart. **A rate
# without its software says little.** Compare cards within one table, never across two.

# %%
import textwrap

from course_lib.teach.plots_hardware import plot_prices

print(textwrap.fill(f"Further up: {step.calibration}", 88))
plot_prices(table)

# %% [markdown]
# The order turns around. Per dollar of its price the used gaming card wins, by far. Per watt the large ones do. Which
# of the two you pay for, the next lessons tell: someone who trains a few hours a week pays for the card; a data centre
# pays for the watts, and for the time.

# %%
by_price, by_energy, by_hours = map(table.best, ("price", "energy", "hours"))
spread = max(r.price_per_rate for r in table.rows) / by_price.price_per_rate
judge(
    "hardware.table", "holds when", number=spread,
    unit="times more for the same images a second, dearest to cheapest; computed",
    note=f"you say what you pay for: by price it is the {by_price.card.name}, by "
    f"energy the {by_energy.card.name}, by hours the {by_hours.card.name}",
)

# %% [markdown]
# ## The guide's tree, walked
#
# *Images: under 100,000 an RTX 3060; up to 1 million an RTX 3090; above, a cloud TPU* (a chip of Google's, for rent
# only). So the **number of images** chooses the card. Let us see what that number does. ResNet-50, 90 epochs:

# %%
from course_lib.teach.plots_hardware import plot_hours_by_images

names = ("RTX 3060", "RTX 3090", "RTX 4090", "A100 80GB")
of_each = {n: 1 / predict(resnet, find(n)).samples_per_second for n in names}
title = "The data set says how long, not which card"
plot_hours_by_images(of_each, 90, (100_000, 1_000_000), title=title)

# %% [markdown]
# Parallel lines. At every size of the data set each card is faster than another by the same factor. Nothing happens
# at 100,000. What *does* rule a card out is its memory, and that depends on the **model and the batch**:

# %%
from course_lib.plan.memory import plan_memory

gpt = job_traces("gpt", 2048, "fp16")
jobs = {"ResNet-50, batch 128": resnet, "GPT, batch 8, 2,048 tokens": gpt.at(8)}
for name, trace in jobs.items():
    for card in ("RTX 3060", "RTX 3090", "A100 80GB"):
        plan = plan_memory(trace, find(card))
        needs, has = plan.safe / 2**30, plan.capacity / 2**30
        print(f"{name:28} {card:10} {needs:5.1f} of {has:5.1f} GiB: {plan.verdict}")

# %%
from course_lib.claims import claim

two_million = of_each["RTX 4090"] * 2_000_000 * 90 / 3600
sent_to = claim("hardware.cv").formula(2_000_000)
judge(
    "hardware.cv", "fails", number=two_million,
    unit="hours for 2 million images x 90 epochs on one RTX 4090; predicted",
    note=f"the guide sends them to a {sent_to}; model and batch rule a card out, "
    "images only say for how long",
)

# %% [markdown]
# Not fast, but no reason for a TPU. And is that faster? Where the same code was run on both (Google's own Flax example,
# ResNet-50, 100 epochs), eight cores of a TPU v3 took 4.4 hours and eight V100 cards 4.3 hours
# (github.com/google/flax, examples/imagenet).
#
# *Text: under 512 tokens an RTX 3090, longer ones a cloud TPU.* A *token* is a word or a piece of one. In *attention*, the
# part that makes language models what they are, each token looks at all others, so long texts mean more work. Is
# there a cliff at 512? A GPT as large as GPT-2 small, always 8,192 tokens in a batch:

# %%
rates = lab.tokens_per_second("RTX 3090")
for length, tokens in rates.items():
    print(f"texts of {length:5,} tokens: {tokens:9,.0f} tokens/s, predicted (RTX 3090)")
at_512, at_2048 = rates[512] / rates[128], rates[2048] / rates[128]
judge(
    "hardware.nlp", "fails" if at_512 > 0.7 else "holds", number=100 * at_512,
    unit="% of the tokens a second at 512 that there are at 128; predicted",
    note=f"no cliff: at 2,048 it is {at_2048:.0%}. The work of attention grows with "
    "the length, slowly; memory decides, as above",
)

# %% [markdown]
# ## Better questions, in this order
#
# 1. **Does one step fit** into the memory? (Lesson 06 makes it fit.)
# 2. **How long** does it take? Samples × epochs / rate. Is that acceptable?
# 3. If not, **does it scale**? Several cards must exchange their gradients (lesson 02).
# 4. **Buy or rent**, at the use you really make of it? (Lesson 09.)
# 5. **What binds you**: may the data leave the house? Does your code run there?
#
# The first three, for an image network of another kind (ViT-B/16, which has attention too). *PCIe* is the slot that every
# card sits in; *NVLink* is a faster link between NVIDIA's large cards.

# %%
from course_lib.plan.scaling import scale

mine, my_card = job_traces("vit_b_16", 224, "fp16").at(64), find("4090")
fits = plan_memory(mine, my_card, optimizer="adamw")
step = predict(mine, my_card, optimizer="adamw")
print(f"1. {fits.verdict}: {fits.safe / 2**30:.1f} of {fits.capacity / 2**30:.1f} GiB")
hours = step.seconds_for(1_281_167, 90) / 3600
print(f"2. {hours:.0f} hours for 90 epochs of ImageNet")
for link in ("PCIe 4.0", "NVLink 3"):
    many = scale(step, 4, link)
    faster = f"{many.speedup:.2f} times as fast ({many.efficiency:.0%} each)"
    print(f"3. four of them over {link}: {faster}")

# %% [markdown]
# ## Lab: twenty cards and your budget
#
# Both axes are predictions. Green cards are the *Pareto front*: no other is both faster and cheaper. Only among them is
# there something to choose. Try:
#
# 1. Move **samples** from one end to the other. Does the front change, or only the axes?
# 2. Set the network to **gpt**, the size to **large**, and the batch up. Which cards drop to a smaller batch?
# 3. Set the **precision** to fp32. Which cards fall back most, and why those?
# 4. Which card would you take for 20 dollars?

# %%
lab.which_card(model="resnet50", samples=1_281_167, epochs=90, budget=20)

# %%
lab.lab()

# %% [markdown]
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("hardware.attainable")` in a cell gives a hint,
# `solution("hardware.attainable")` shows ours.

# %% tags=["exercise"]
# Exercise 1.1 · 3 minutes · ●○○
# A card trains samples_per_second. How many hours does the whole training take?
def training_hours(samples: int, epochs: int, samples_per_second: float) -> float:
    # solution
    return samples * epochs / samples_per_second / 3600
    # end

check("hardware.hours", training_hours)

# %% tags=["exercise"]
# Exercise 1.2 · 6 minutes · ●●○
# An operation computes flops_per_byte for each byte that it moves. How many TFLOPS can
# it reach at most: where is the roof? TFLOPS are 10**12 operations a second; GB/s are
# 10**9 bytes a second.
def attainable(
    peak_tflops: float, bandwidth_gb_s: float, flops_per_byte: float
) -> float:
    # solution
    fed_by_memory = bandwidth_gb_s * flops_per_byte / 1000  # GFLOP/s to TFLOPS
    return min(peak_tflops, fed_by_memory)
    # end

check("hardware.attainable", attainable)

# %% [markdown]
# Data sheets print the largest number that is true of something. Two ways to double a peak: count *2:4 sparsity*, as if
# half of every matrix were zero; or count *FP16 accumulation*, sums kept in 16 bits, which training does not use. An honest
# (*dense*) peak follows from the chip: its number of *SMs* (the blocks that a chip is made of), times its clock, times
# what one SM does in a clock.

# %% tags=["exercise"]
# Exercise 1.3 · 8 minutes · ●●●
# "dense" if the published TFLOPS agree with the chip to 5 %, "doubled" if they are
# twice that (to 5 %), else "wrong". flops_per_clock: what one SM does in one clock,
# dense, with sums in 32 bits. boost_mhz: million clocks a second.
def how_counted(
    published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int
) -> str:
    # solution
    dense = sm_count * boost_mhz * 1e6 * flops_per_clock / 1e12
    if abs(published_tflops / dense - 1) <= 0.05:
        return "dense"
    return "doubled" if abs(published_tflops / dense / 2 - 1) <= 0.05 else "wrong"
    # end

check("hardware.how_counted", how_counted)

# %% tags=["exercise"]
# Exercise 1.4 · 5 minutes · ●●○
# Five lines from public tables. Four are true, or only counted generously. One cannot
# be true of that card. Which?
#   "a"  H100 SXM: 1,979 TFLOPS in 16 bits
#   "b"  RTX 4090: 330 TFLOPS in 16 bits
#   "c"  L4 (72 W): memory bandwidth 3,350 GB/s
#   "d"  L4: 24 GB on the box, 22 GiB for a program
#   "e"  RTX 3090: memory bandwidth 936 GB/s
# solution
my_odd_one = "c"
# end

check("hardware.odd_one", my_odd_one)

# %% [markdown]
# ## Bring your own
#
# Your card, or the one you dream of. Write its name as you know it; an unknown one gets near matches.

# %%
from course_lib.plan.card_page import describe

my_dream = find("rtx 4070 ti super")
print(describe(my_dream))

# %% [markdown]
# In a terminal, with a model of torchvision, timm or your own (`module:factory`). Without `--on` it goes over all cards:

# %%
# !course plan resnet18 --batch 64 --precision fp16 --samples 50000 --epochs 30 \
#     --on "RTX 3060" --on "RTX 4090"

# %% [markdown]
# Put your card there, and your model. A name that is not in the table is refused: the course does not guess.
# `course calibrate` measures the computer at hand in two minutes; `--on "this machine"` then predicts for it.
#
# ## What to remember
#
# 1. **Two numbers describe a card**: its bandwidth and its dense peak. Most networks wait for the first.
# 2. **Memory is a gate, speed a matter of patience.** The model decides what fits, the data set how long you pay.
# 3. **Distrust round and doubled numbers.** Dense, sums in 32 bits, one card, one date.
#
# **Where to go next.** What an hour on it costs, owned or rented: lesson 09, *What does it cost?* Whether two are better
# than one: lesson 02, *Many cards*.
