# %% [markdown]
# # Are the cards healthy?
#
# Your job runs on several cards. No error, the loss falls, all cards are said to be busy. And still it is slow. One
# of the cards may be sick, and the usual figures do not tell.
#
# After this lesson you can
#
# - read what `nvidia-smi` prints, line by line, and say what it leaves out;
# - name the sick card among eight, and its fault, from four pictures;
# - say what the three usual thresholds for healthy cards are worth.
#
# **Time**: 35 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00. Lesson 02 helps, and is
# not needed.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
late_by = 0.08  # seconds
steps = 8 if quick else 25

# %%
import random
import time

import psutil
import torch
from tqdm.auto import tqdm

from course_lib.machine import this_machine
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.plots_health import plot_alarms, plot_busy, plot_cards, plot_ranks

this_machine()

# %% [markdown]
# ## Two processes, and something is wrong
#
# To train on several cards, one starts a process for each. Such a process is a *rank*: rank 0, rank 1. Each has a
# copy of the model and its own images. After the backward pass they exchange their gradients and take the mean, so
# that all copies stay equal. This exchange is the *all-reduce*. PyTorch's tool for it is *DDP*, and a library called
# *gloo* carries it out where there are no cards.
#
# The next cell starts two real ranks on your machine. They train twice: first as they are, then with one rank
# whose batch comes late in every step, as from a slow disk. Which one, the lot decides.

# %%
from course_lib.train.ranks.straggler import time_ranks

late = [0.0, 0.0]
late[random.randrange(2)] = late_by
with tqdm(desc="two ranks start, then train", unit="step") as bar:

    def follow(done, of):
        bar.total = of
        bar.update(done - bar.n)

    fair, slow = time_ranks((0.0, 0.0), late, steps=steps, progress=follow)
print(f"as they are:   {1000 * fair.step_s:5.0f} ms a step")
print(f"one rank late: {1000 * slow.step_s:5.0f} ms a step, on both ranks")

# %% [markdown]
# One rank is slow, so **both** are slow. Both take equally long for a step, so the step time does not say who it
# is. Keep this riddle. First see what the usual tool would tell you.
#
# ## nvidia-smi, line by line
#
# `nvidia-smi` comes with every NVIDIA driver. This is what it prints for a job on two cards. The sample was
# written for this lesson, in the format of driver 535.

# %%
from course_lib.files import data_path

text = data_path("nvidia_smi/two_cards.txt").read_text(encoding="utf-8")
print(text)

# %% [markdown]
# | what stands there | what it says |
# |---|---|
# | Driver, CUDA Version | the newest CUDA that this *driver* can run, not the one that PyTorch uses |
# | Temp | degrees Celsius of the chip; near its limit the card slows itself down |
# | Perf | P0 is full speed, P8 is rest |
# | Pwr:Usage/Cap | the watts it draws now, and the most it may draw |
# | Memory-Usage | what is reserved now: PyTorch keeps memory that it has freed, and that counts too |
# | Volatile Uncorr. ECC | memory errors since the driver was loaded that could not be mended: above 0 is serious |
# | GPU-Util | the *utilisation*: the share of the last moment in which **some** program part ran |
# | Processes | who holds memory, on which card |
#
# A program part that runs on a card is a *kernel*: one multiplication of matrices, for example. People paste other
# forms too: a table for spreadsheets (CSV), or one line a second (`nvidia-smi dmon`). `gpu_statuses` reads all of
# them into the same thing. A question mark means: this is not in the text.

# %%
from course_lib.diagnose.gpu_status import gpu_statuses

for name in ("two_cards.txt", "two_cards.csv", "two_cards_dmon.txt"):
    text = data_path(f"nvidia_smi/{name}").read_text(encoding="utf-8")
    status = gpu_statuses(text)[0]
    print(f"{name}: {status.source}\n{status}\n")

# %% [markdown]
# Both cards read 100 %. But look at the power: one draws less than half of what the other draws. Can a card be
# *busy* and do nearly nothing?
#
# ## Busy is not efficient
#
# Try it. We keep one core of your processor busy, or your NVIDIA card if you have one, with tiny matrices and then
# with large ones. A GFLOP is 1,000 million multiplications or additions. Utilisation is what the system, or the
# card's driver, reports.

# %%
from course_lib.diagnose.gpu_status import live_status

device = "cuda" if torch.cuda.is_available() else "cpu"
burst = 200 if device == "cuda" else 1  # a card works through a queue
torch.set_num_threads(1)  # one core

# %%
def keep_busy(size, seconds):
    matrix, me, done = torch.rand(size, size, device=device), psutil.Process(), 0
    start, cpu_start = time.perf_counter(), sum(me.cpu_times()[:2])
    while (lasted := time.perf_counter() - start) < seconds:
        for _ in range(burst):
            matrix @ matrix
        if device == "cuda":
            torch.cuda.synchronize()
        done += burst
    util = 100 * (sum(me.cpu_times()[:2]) - cpu_start) / lasted
    if device == "cuda":
        util = live_status().gpus[0].util_percent or util
    return util, done * 2 * size**3 / lasted / 1e9

# %%
seconds = 0.5 if quick else 1.5
sizes = {"tiny matrices": 8, "large matrices": 4096 if device == "cuda" else 512}
keep_busy(sizes["large matrices"], 0.2)  # warm up
rates = {name: keep_busy(size, seconds) for name, size in sizes.items()}
place = "the card" if device == "cuda" else "one core"
plot_busy(rates, title=f"Busy on {place}, twice")

# %%
tiny, large = rates.values()
times = large[1] / tiny[1]
print(f"utilisation {tiny[0]:.0f} % and {large[0]:.0f} %, work 1 to {times:.0f}")

# %% [markdown]
# The two read nearly the same, and do very different amounts of work. (On a machine that others use, both may read
# less than 100 %.) NVIDIA defines the figure of its cards in this way too: the percent of time "during which one or
# more kernels was executing" (NVML reference, `nvmlUtilization_t`). Any kernel will do. A rank that *waits* in an
# all-reduce of NCCL, the library for NVIDIA cards, runs one that looks again and again whether the others are there.
# That reads 100 %.
#
# **Utilisation says that something ran. Power says how hard it was.** In the dump above, GPU 0 waits, and GPU 1 is
# the one that it waits for. (A reading of figures, not a measurement on cards.)
#
# ## A guessing game
#
# Here are five jobs on eight cards each. In each, one card is sick. The jobs are **simulated**: a model of a job with
# one fault put in. Each row is a card, and time runs to the right. Dark columns are pauses: the start, a test, the
# saving of a file. Ask: **in which panel is one row different?**

# %%
from course_lib.diagnose.health import examine
from course_lib.teach.labs import health as lab

def show_case(number):
    case = lab.guessing_game(number)
    title = f"Case {number}: eight cards of one job (simulated)"
    return plot_cards(case.series, title=title)

def answer(number):
    case = lab.guessing_game(number)
    print(f"put in: {case.fault.replace('_', ' ')} on GPU {case.gpu}.")
    print("Found from the figures:")
    return examine(case.series)[0]

show_case(1)

# %% [markdown]
# Say a card and a panel aloud, then run the next cell.

# %%
answer(1)

# %% [markdown]
# Its **clock**, how many times a second the chip takes a step of its work, is far below the others'. A card that is
# too hot, or gets too little power, lowers it to protect itself: it is *throttled*. Its utilisation is full.

# %%
show_case(2)

# %%
answer(2)

# %% [markdown]
# Its clock is as fast as the others'. Its **utilisation** is low, and its power too: it has nothing to do until its
# batch comes. The rank is *starved*.

# %%
show_case(3)

# %%
answer(3)

# %% [markdown]
# Eight programs on GPU 0. All other ranks have also opened a *context* there: the room that CUDA takes as soon as a
# program touches a card. GPU 0 will be the first to run out of memory. One line mends it:
# `torch.cuda.set_device(local_rank)`.

# %%
show_case(4)

# %%
answer(4)

# %% [markdown]
# Again one card holds more memory, but it has one program: that rank itself keeps more.

# %%
show_case(5)

# %%
answer(5)

# %% [markdown]
# The hardest. Same clock, same memory, same utilisation. Only its **power** is *higher* than the others'. It is the
# one that works all the time; the other seven wait for it, at 100 %. This is the *straggler*: a rank with more to
# do than the others.
#
# ## Who is the slow rank? Measure it
#
# Power gives a hint; a clock in each rank gives proof. This is the step that your two ranks ran:

# %%
import inspect

from course_lib.train.ranks import straggler_rank

print(inspect.getsource(straggler_rank.timed_step))

# %%
plot_ranks({"as they are": fair, "one rank late": slow})

# %% [markdown]
# One rank waits for its batch (orange), and the other one waits for that rank (grey). A profiler, a tool that times
# each part of a program, counts the grey as *communication*. So **the rank that spends the least time in the
# all-reduce is the slow one.** By hand, and through the course's library:

# %%
from course_lib.diagnose.health import straggler_by_time

in_all_reduce = torch.tensor(slow.all_reduce_s).median(dim=0).values
found_by_hand = int(in_all_reduce.argmin())
by_library = straggler_by_time(slow.busy_s, data_seconds=slow.part_s("data"))
print("ms in the all-reduce, by rank:", (1000 * in_all_reduce).round().tolist())
print(f"found: rank {found_by_hand}; put in: rank {late.index(late_by)}")
by_library

# %% [markdown]
# ## The three thresholds, judged
#
# The guide that this course grew out of calls training healthy when utilisation is at least 60 %, when memory
# differs by at most 15 % between cards, and when communication takes less than 20 % of a step. How often is that
# right? We have a hundred simulated jobs: 40 healthy ones, and 12 with each of the five faults. A healthy job that
# is called sick is a *false alarm*. A sick job that is called healthy is a *miss*.

# %%
at_the_guides = lab.count_alarms(
    util_percent=60, imbalance_percent=15, communication_percent=20
)
print(at_the_guides)
plot_alarms(at_the_guides)

# %% [markdown]
# Read the column *utilisation*: it finds next to nothing, because a card that waits reads as busy. The black lines
# in the picture compare each card **with the other cards** over time, as you did. They find more, and name the card.
# (The comparison was tuned on other jobs of the same simulation; real jobs are harder.)

# %%
passed, sick = at_the_guides.passing("utilisation")
judge(
    "health.util", "fails" if sick > passed / 10 else "holds",
    number=100 * sick / passed, unit=f"% of {passed} simulated jobs above it are sick",
    note=f"{at_the_guides.sick - sick} of {at_the_guides.sick} sick jobs were under it",
)
memory = at_the_guides.by_rule["memory"]
of_memory = memory["memory_imbalance"] + memory["contexts_on_first_card"]
others = sum(memory.values()) - of_memory - memory["healthy"]
judge(
    "health.balance", "holds when" if of_memory > 12 else "fails",
    number=of_memory, unit="of 24 simulated faults of memory found",
    note=f"the fault is one of memory: it finds {others} of 36 others, "
    f"{memory['healthy']} false alarms",
)

# %% [markdown]
# The third threshold needs a clock inside the job: your own two ranks are the witness. `waiting=True` counts as a
# profiler does, `waiting=False` only the exchange itself.

# %%
exchange = fair.communication_share(waiting=False)
as_shown = slow.communication_share(waiting=True)
print(f"ranks as they are: {exchange:.0%} for the exchange alone")
print(f"one rank late:     {as_shown:.0%} with the waiting")
verdict = "fails" if exchange >= 0.2 else "holds" if as_shown < 0.2 else "holds when"
judge(
    "health.comm", verdict,
    number=round(100 * exchange, 1),
    unit="% of a step, two ranks over gloo, measured here",
    note="no rank makes the others wait; "
    f"with a late one a profiler shows {as_shown:.0%}. "
    "Cards with links or a network of their own: cannot be tested here",
)

# %% [markdown]
# A high share of communication is often no matter of the network at all. **Look for a straggler first.**
#
# ## Lab: move the thresholds
#
# Is there a better setting? Move one slider at a time. With utilisation at 0, memory at 100 and communication at
# 100 the rules are switched off. Then look: which slider finds which fault? What does it cost in false alarms? Can you
# find all sick jobs without one?

# %%
lab.lab()

# %% [markdown]
# There is no such setting among these jobs: the course's tests have looked for it. A mild straggler hides below
# every threshold, and a busy network looks like one. A threshold looks at the whole job. A sick card shows against
# its neighbours.
#
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("health.straggler")` in a cell gives a hint,
# `solution("health.straggler")` shows ours.

# %% tags=["exercise"]
# Exercise 7.1 · 4 minutes · ●○○
# used_mib: the memory in use on each card. By what share of the fullest card do the
# fullest and the emptiest differ? 0 when all hold the same.
def memory_difference(used_mib: list[float]) -> float:
    # solution
    return (max(used_mib) - min(used_mib)) / max(used_mib)
    # end

check("health.memory_difference", memory_difference)

# %% tags=["exercise"]
# Exercise 7.2 · 6 minutes · ●●○
# all_reduce_s[step][rank]: the seconds that each rank spent in the all-reduce. Which
# rank (its number) do the others wait for? Any rank is late once in a while: look at
# all steps together.
def straggler(all_reduce_s: list[list[float]]) -> int:
    # solution
    totals = [sum(of_rank) for of_rank in zip(*all_reduce_s)]
    return totals.index(min(totals))
    # end

check("health.straggler", straggler)

# %% tags=["exercise"]
# Exercise 7.3 · 8 minutes · ●●●
# busy_s: the seconds that each rank needs for a step when it waits for nobody. In each
# step each rank does one batch. Are more batches done in a second with all ranks
# ("keep"), or without the slowest ("leave out")?
def leave_out(busy_s: list[float]) -> str:
    # solution
    others = sorted(busy_s)[:-1]
    now = len(busy_s) / max(busy_s)
    then = len(others) / max(others)
    return "leave out" if then > now else "keep"
    # end

check("health.leave_out", leave_out)

# %%
show_case(6)

# %% tags=["exercise"]
# Exercise 7.4 · 4 minutes · ●●○
# Nobody tells you anything about case 6. What is wrong with it?
#   "a"  one card is throttled          "b"  one rank is starved: its batches come late
#   "c"  one rank has more work to do   "d"  seven cards are broken
#   "e"  nothing: all cards are busy
# solution
my_diagnosis = "c"
# end

check("health.which_card", my_diagnosis)

# %% [markdown]
# ## Bring your own
#
# What do the cards of this computer say, now?

# %%
import textwrap

from course_lib.errors import CourseError

try:
    print(live_status())
except CourseError as error:
    print(textwrap.fill(str(error), 80, break_on_hyphens=False))

# %% [markdown]
# Paste any form of `nvidia-smi` (or of `gpustat`, `nvtop` and their like) into the box, or the error with which a
# job on several cards ended: from your own machine, or from a forum. Press **Explain**. The text is only read, never run.

# %%
from course_lib.diagnose.recognise import explain
from course_lib.teach.paste_box import PasteBox

asked = "Paste what nvidia-smi printed, or an error, from its first line to its last."
PasteBox(explain, asked)

# %% [markdown]
# The same without a box. Put your text, or your file, in place of ours:

# %%
my_text = data_path("nvidia_smi/first_card_crowded.txt").read_text(encoding="utf-8")
explain(my_text)

# %% [markdown]
# In a terminal, `nvidia-smi | course explain -` does this, and `course watch` shows cards and cores live. For a job
# on several cards take 60 looks, one a second: `nvidia-smi dmon -c 60 > cards.txt`.
#
# ## What to remember
#
# 1. **100 % utilisation says that something ran.** A card that waits for another reads 100 % too. Look at the power.
# 2. **Compare the cards with each other, over time.** The odd one is the sick one: its clock, its utilisation, its
#    power, its memory.
# 3. **The slow rank is the one that waits least.** Measure the time in the all-reduce before you blame the network.
#
# **Where to go next.** A starved rank: lesson 04, *Feed the card*. Much communication and no straggler: lesson 02,
# *Many cards*. All is well: lesson 09, *What does it cost?* `!course progress` shows the exercises that you have passed.
