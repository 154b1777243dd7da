# %% [markdown]
# # Many cards
#
# One card is too slow, so you take two. Will it be twice as fast? Will it even run? You find out on your own
# computer: two processes play two cards.
#
# After this lesson you can
#
# - turn a training for one card into one for many, and start it;
# - say which rank failed first, and why, when all of them print errors;
# - tell whether more cards would help, before you rent them.
#
# **Time**: 40 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # few and short launches
steps = 30 if quick else 60
pairs = 6 if quick else 15

# %%
import inspect
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from course_lib.bounds import whole_in
from course_lib.machine import this_machine, usable_cores
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.plots_ddp import plot_buckets, plot_samples, plot_scaling

whole_in(steps, "steps, in the cell of parameters,", 30, 10_000)
whole_in(pairs, "pairs, in the cell of parameters,", 3, 1_000)
torch.set_num_threads(1)
this_machine()

# %% [markdown]
# ## The usual listing
#
# To train on two cards, one starts a process for each, a *rank*: rank 0, rank 1. Each has a copy of the model, and its
# own samples, dealt out by a *sampler*. PyTorch's tool for this is *DDP*, DistributedDataParallel. This listing is
# ours, in the manner of the guide that this course grew out of:

# %%
from course_lib.teach.listing import LISTING, MENDS, run_listing

print(LISTING)

# %% [markdown]
# We start it as it is, on two ranks, then with one fault more mended each time. Of the versions that run through, you
# see the first and the last.

# %%
with TemporaryDirectory() as folder:
    attempts = run_listing(Path(folder))
for attempt in attempts:
    told = f"{attempt.mended} mended: {attempt}"
    print(textwrap.fill(told, 88, subsequent_indent=10 * " "), "\n")

# %% [markdown]
# Compare the losses of these two. The first one *runs*, without any error, and hardly learns. All the faults, also
# those that do not show on your machine:

# %%
for number, mend in enumerate(MENDS, start=1):
    print(f"{number}. {mend.fault}\n   shows as: {mend.shows}")

# %%
needed = sum(attempt.error is not None or not attempt.printed for attempt in attempts)
judge(
    "ddp.template", "holds when", number=len(MENDS), unit="faults in the listing",
    note=f"they are mended first; {needed} stopped it here, the other "
    f"{len(MENDS) - needed} raised no error",
)

# %% [markdown]
# The *backend* is the library that carries data between ranks: `nccl` between NVIDIA cards, `gloo` between processors.
# `rank` counts over all computers, `local_rank` on this one: that is the number of the card. A *group* is all ranks
# together; whoever opens it must take it down.

# %%
from course_lib.train.distributed import available_backends

have = available_backends()
judge(
    "ddp.backend", "holds when",
    number=len(have), unit=f"backends in this torch: {', '.join(have)}",
    note="the backend goes with the device: nccl for NVIDIA cards, gloo for the CPU, "
    "and on Windows",
)

# %% [markdown]
# ## What the ranks have to do together
#
# Each rank computes gradients from its own samples. If each changed its weights by itself, the copies would part. So
# before the step, all take the **mean** of their gradients. Adding up over all ranks, so that each has the sum, is an
# *all-reduce*. Such a call, which works only if all ranks make it together, is a *collective*. The ranks stand in a
# ring, and pieces go round.

# %%
from course_lib.train.ranks import data_parallel, ring

print(inspect.getsource(ring.ring_all_reduce))

# %% [markdown]
# With it, data parallelism is a few lines, called between `backward()` and `step()`:

# %%
print(inspect.getsource(data_parallel.average_gradients))

# %% [markdown]
# Does it work? `launch` starts ranks from a notebook. It drives *torchrun*, PyTorch's own starter. What the ranks run
# must stand in a file, because each imports it. A start takes seconds, so we ask for several things in one: the ring;
# a training with the gradients averaged by hand; the same with DDP; and one where a line was forgotten.

# %%
from course_lib.train.ranks.launch import launch, launch_in_turn

train = "course_lib.train.ranks.data_parallel:train_digits"
settings = {"steps": steps, "global_batch_size": 100}
experiments = [
    ("course_lib.train.ranks.ring:show_ring", {"numbers": 6}),
    (train, {**settings, "by_hand": True}),
    (train, settings),
    (train, {**settings, "forget_set_epoch": True}),
]

# %% [markdown]
# In the same go the ranks measure what the exchange costs them. We come to that later.

# %%
ranks_of = "course_lib.train.ranks.communication_rank"
emulated = {"compute_s": 0.03, "gradient_mib": 8, "pairs": pairs}
traced = {**emulated, "trace": True}
measurements = [
    (f"{ranks_of}:measure_network", {"pairs": 5 * pairs}),
    (f"{ranks_of}:measure_emulated", {**traced, "bucket_cap_mb": 1000}),
    (f"{ranks_of}:measure_emulated", {**traced, "bucket_cap_mb": 2}),
    (f"{ranks_of}:measure_scaling", {**emulated, "repeats": pairs}),
]
answers = launch_in_turn(experiments + measurements)
with_ring, by_hand, with_ddp, forgot = answers[:4]

# %%
for rank, found in enumerate(with_ring):
    print(f"rank {rank} had {found['before']}")
print(f"the ring gives     {with_ring[0]['by_ring']}")
print(f"torch's all-reduce {with_ring[0]['by_torch']}")
print(f"{found['tensor_bytes']} bytes; each rank sent {found['sent_bytes']}")

# %% [markdown]
# ## The same training as in one process?
#
# A *global batch* is what all ranks see in one step: here 100 digits, 50 a rank. Two ranks should end where one process
# ends that takes batches of 100.

# %%
alone = data_parallel.train_digits(**settings)
difference = data_parallel.largest_difference
for name, ranks in {"by hand": by_hand, "with DDP": with_ddp}.items():
    losses = difference(alone["losses"], ranks[0]["losses"])
    weights = difference(alone["weights"], ranks[0]["weights"])
    assert max(losses, weights) < 1e-6
    print(f"{name}: losses differ by at most {losses:.0e}, weights by {weights:.0e}")

# %% [markdown]
# The same to the last digits. DDP adds two things: it sends gradients while the backward pass still runs, and all
# ranks begin with the weights of rank 0. The code around it:

# %%
from course_lib.train.ranks import ddp_twenty

print(inspect.getsource(ddp_twenty.main))

# %% [markdown]
# ## Who trains on what?
#
# The sampler also shuffles; `set_epoch` tells it that a new epoch begins. In the fourth training it was forgotten.

# %%
epoch = 15  # steps: 1,442 digits in global batches of 100

def first_samples(ranks, number):
    return [rank["samples"][number * epoch : (number + 1) * epoch] for rank in ranks]

rows = {}
for name, ranks in {"epoch": with_ddp, "forgotten, epoch": forgot}.items():
    for number in (0, 1):
        rows[f"{name} {number + 1}"] = first_samples(ranks, number)
plot_samples(rows, title="The first digits: who trains on which?")

# %% [markdown]
# The last two rows are the same: the same digits always meet in a batch. Nothing fails, and nobody notices.

# %% [markdown]
# ## Break it
#
# What does it look like when a rank dies, or hangs, its data never coming? We do it for real. One is killed, as the
# system does when memory runs out: by *signal* 9, SIGKILL, which ends a process at once. One sleeps for an hour.
# torchrun then asks the others to end (SIGTERM), and starts all anew for the next fault. The ranks wait two seconds
# for each other; PyTorch's default is 10 minutes with nccl, 30 with gloo.

# %%
faults = ["killed", "hang"]
if not quick:
    faults += ["uneven_data", "mismatched_collective"]

def show_progress(rank, line):
    if rank == 0 and line.endswith("..."):
        print(line)

broken = launch(
    "course_lib.train.ranks.ddp_faults:commit_in_turn", 2,
    arguments={"faults": faults}, max_restarts=len(faults) - 1,
    check=False, on_line=show_progress,
)

# %%
for fault, errors in zip(faults, [*broken.earlier, broken.errors]):
    print(f"\n{fault}")
    for number, error in enumerate(errors):
        line = f"  {'first' if number == 0 else 'then'}: {error}"
        print(textwrap.fill(line, 88, subsequent_indent=9 * " "))

# %% [markdown]
# The loud error is often not the cause. The rank that *lost its connection*, or *waited too long*, tells you at
# length. The rank that was killed says nothing. **Look for the rank that does not complain about another rank.**
#
# | what happened | what you read | what to do |
# |---|---|---|
# | a rank is killed | the others: connection closed by peer | look for memory: the system's log (`dmesg`), smaller batch, fewer workers |
# | a rank hangs | the others: timed out waiting for *recv* (receiving) | find what *that* rank does: its data, a lock, a full disk |
# | one rank has fewer batches | connection closed, near the end of an epoch | a sampler that gives all the same, or `with model.join():`, in which ranks that are done go on with gradients of zero |
# | ranks call different collectives | a time limit, or wrong numbers | no collective inside `if rank == 0` |
#
# After such an end, `torchrun --max-restarts 3` starts all ranks anew. A script that saves a *checkpoint* (weights and
# optimizer, on disk) goes on from it.
#
# ## What does the exchange cost?
#
# Take a step with the exchange, then one without (`no_sync` switches it off), many times in turn. The difference is
# what the exchange adds: its *exposed* part. Your ranks did that above: first with a small network that they really
# computed, then with a step of 30 ms that is **emulated**: the process sleeps, as it does while a card works. Its
# gradients, 8 MiB, were really sent.

# %%
from course_lib.train.ranks.communication import BucketTrace, CommunicationShare
from course_lib.train.ranks.link import LinkBenchmark

real, apart, small_buckets, scaling = answers[4:]
network = CommunicationShare(**real[0])
network

# %% [markdown]
# The gradients of the last layer are ready first. DDP collects them in *buckets* and sends each as soon as it is full,
# while the backward pass goes on. Here is the emulated step with one bucket, and with four.

# %%
plot_buckets({
    "one bucket": BucketTrace(**apart[0]["trace"]),
    "buckets of 2 MiB": BucketTrace(**small_buckets[0]["trace"]),
})  # fmt: skip

# %% [markdown]
# What lies right of the black line is exposed. The rest is hidden: it costs nothing. That was one step. Over many:

# %%
one = CommunicationShare(**apart[0]["share"])
four = CommunicationShare(**small_buckets[0]["share"])
print(f"exposed with one bucket {1000 * one.exposed_s:.1f} ms,", end=" ")
print(f"with four {1000 * four.exposed_s:.1f} ms")
if four.exposed_s > 0.75 * one.exposed_s:
    print("Hardly less: sending takes cores. Close what else uses them; launch again.")

# %% [markdown]
# DDP's own bucket is 25 MiB (its documentation, `bucket_cap_mb`). The guide says that communication takes less than
# 20 % of a step. For the network that was really computed:

# %%
low, high = (100 * share for share in network.share_interval)
with_sleep = 100 * CommunicationShare(**scaling[0]["share"]).share
spread = f"{low:.0f} to {high:.0f} % here; {with_sleep:.0f} % in the emulated step"
if low < 20 <= high:
    verdict, note = "holds when", f"there is enough to compute: {spread}"
else:
    verdict, note = "holds" if high < 20 else "fails", spread
judge(
    "health.comm", verdict, number=round(100 * network.share), note=note,
    unit="% of a step exposed; two ranks over gloo, measured here",
)

# %% [markdown]
# ## Two ranks, twice as fast?
#
# Two ranks on one computer share its cores. The real network: two ranks compute on the cores that one rank had, too.
# The emulated step: computing takes no core, as on two cards.

# %%
from course_lib.train.ranks import communication_rank as measured

real_alone = CommunicationShare(**measured.measure_network(pairs=5 * pairs))
emulated_alone = CommunicationShare(**measured.measure_emulated(**emulated)["share"])
emulated_two = CommunicationShare(**scaling[0]["share"])
for name, one, two in (
    ("really computed", real_alone, network),
    ("emulated", emulated_alone, emulated_two),
):
    gain = 2 * one.with_s / two.with_s
    alone_ms, two_ms = 1000 * one.with_s, 1000 * two.with_s
    print(f"{name}: {alone_ms:.1f} ms alone, {two_ms:.1f} ms as two ranks")
    print(f"   {gain:.2f} times the samples a second, on {usable_cores()} cores")

# %% [markdown]
# The gain is never 2, and the exchange is the reason. (Where the real network gains little, the two ranks fought for
# cores or memory.) Can the loss be foretold? A *link* has two figures: the *latency*, which even the smallest message
# costs, and the *bandwidth*. Your two ranks have timed theirs:

# %%
link = LinkBenchmark(**scaling[0]["link"])
link

# %%
from course_lib.plan.scaling import scale
from course_lib.teach.measured_scaling import measured_link, measured_step

step = measured_step(emulated_alone.with_s, emulated_alone.gradient_bytes)
foretold = scale(step, 2, measured_link(link, 2, usable_cores()))
print(f"predicted {1000 * foretold.seconds:.1f} ms a step")
print(f"measured  {1000 * emulated_two.with_s:.1f} ms")

# %% [markdown]
# If they lie far apart, something else used your cores meanwhile: close it, and launch again.
#
# ## Lab: 8 cards, 1,024 cards
#
# The same arithmetic, with links that you do not have; `data/interconnects.csv` has the source of each figure. *PCIe* is
# the slot of a card; *NVLink*, or a bridge of it, joins cards directly; Ethernet and *InfiniBand* (HDR: 200 Gbit/s,
# NDR: 400) join computers. *Efficiency* is the speed-up divided by the number of cards. Eight cards stand in each
# computer, so from 16 cards on the network counts. Without sliders:

# %%
from course_lib.teach.labs import ddp as lab

out = lab.scale_out(
    compute_ms=100, gradient_mib=100, link="PCIe 4.0", network="Ethernet 10G", cards=16
)
print(out)
plot_scaling(out)

# %% [markdown]
# *Waiting* is for the slowest card: of many, one is always late. ResNet-50 has about 100 MiB of gradients. Which
# network makes 1,024 cards worth having? What does a computing time of 10 ms do, and one of 1,000 (a larger batch)?

# %%
lab.lab()

# %% [markdown]
# ## One card first
#
# The guide says: no second card before one trains with a batch of 256. From which batch a card on do two cards give
# 1.8 times the samples of one? Predicted for ResNet-50 in 16 bits on RTX 3090 cards, over three links. (*Without peer
# access*, data pass through the computer's memory.)

# %%
from course_lib.accelerators import find_accelerator
from course_lib.plan.batch_size import traces_of
from course_lib.plan.model_names import named_workload
from course_lib.plan.speed import predict

card = find_accelerator("RTX 3090")
traces = traces_of(named_workload("resnet50", precision="fp16"))
links = ("PCIe 3.0 without peer access", "PCIe 4.0", "NVLink bridge")

def step_at(batch_size):
    return predict(traces.at(batch_size), card)

worth = {link: lab.smallest_worthwhile_batch(step_at, link) for link in links}
for name, size in worth.items():
    print(f"{name}:", f"from a batch of {size} on" if size else "not up to 256")

# %%
slowest = worth[links[0]] or 512
judge(
    "capstone.single", "fails" if slowest < 256 else "holds",
    number=slowest, unit=f"images a card, predicted, on {links[0]}",
    note="computing against gradients decides, no fixed batch; one card first is right "
    "all the same",
)

# %% [markdown]
# What is right about the rule: a second card doubles also the waiting for data. Mend that first (lesson 04).
#
# And if the model does not fit one card? DDP keeps all of it on each. *FSDP* (fully sharded data parallel) cuts
# weights, gradients and what the optimizer keeps into as many pieces as there are cards, and fetches each layer when
# it is needed: half as much again to send. Training with Adam in 16 and 32 bits (lesson 03) takes 16 bytes a
# parameter, before any layer's output is kept (both figures: Rajbhandari and others, *ZeRO*, 2020):

# %%
def gib_a_card(parameters, cards):
    return 16 * parameters / cards / 2**30

for billions in (0.1, 1, 7, 70):
    whole, cut = gib_a_card(billions * 1e9, 1), gib_a_card(billions * 1e9, 8)
    fits = "FSDP fits" if cut < 24 else "more cards are needed"
    fits = "DDP fits" if whole < 24 else fits
    print(f"{billions:5} billion parameters, GiB a card: ", end="")
    print(f"DDP {whole:7.1f}, FSDP on 8 {cut:6.1f}")
    print(f"      on cards of 24 GiB {fits}")

# %% [markdown]
# **FSDP begins where DDP does not fit.** Before that, it only sends more.
#
# ## Exercises
#
# Replace the dots and run the cell. `hint("ddp.speedup")` gives a hint, `solution("ddp.speedup")` shows ours.

# %% tags=["exercise"]
# Exercise 2.1 · 4 minutes · ●○○
# Each rank takes batches of batch_size. How many steps has an epoch over all samples? A
# last step with smaller shares counts too.
def steps_per_epoch(samples: int, batch_size: int, ranks: int) -> int:
    # solution
    return -(-samples // (batch_size * ranks))  # division that rounds up
    # end

check("ddp.steps_per_epoch", steps_per_epoch)

# %% tags=["exercise"]
# Exercise 2.2 · 6 minutes · ●●○
# A ring all-reduce over a tensor of tensor_bytes: how many bytes does one rank send?
# (Look at the ring above. Let pieces have parts of a byte.)
def sent_bytes(tensor_bytes: int, ranks: int) -> float:
    # solution
    return 2 * (ranks - 1) * tensor_bytes / ranks
    # end

check("ddp.sent_bytes", sent_bytes)

# %% tags=["exercise"]
# Exercise 2.3 · 6 minutes · ●●○
# One card needs compute_s for its batch. With several, each keeps its batch, and a step
# grows by exposed_s. How many times the samples a second of one card do all of them do?
def speedup(compute_s: float, exposed_s: float, ranks: int) -> float:
    # solution
    return ranks * compute_s / (compute_s + exposed_s)
    # end

check("ddp.speedup", speedup)

# %%
print("""What four ranks left behind:
  a  rank 0: RuntimeError: Connection closed by peer [10.0.0.2]
  b  rank 1: RuntimeError: Timed out waiting 1800000ms for recv operation to complete
  c  rank 2: nothing; torchrun says: Signal 9 (SIGKILL) received by PID 4711
  d  rank 3: torchrun says: Sending process 4712 closing signal SIGTERM""")

# %% tags=["exercise"]
# Exercise 2.4 · 4 minutes · ●●○
# Which line is the first cause: "a", "b", "c" or "d"?
# solution
first_cause = "c"
# end

check("ddp.first_cause", first_cause)

# %% [markdown]
# ## Bring your own
#
# The next cell writes a whole training script, and its data: mixed precision (lesson 03), accumulation (lesson 05),
# checkpoint, restart. It needs only torch and numpy. The same file runs as one process, on eight cards, and on several
# computers. Change `make_datasets` and `make_model` in it to yours: the cell never writes over a file that you changed.

# %%
from course_lib.train.take_home import write_script

taken = write_script(Path("my_training.py"), existing="keep")
print(taken)
if not quick and not taken.kept:
    launch("my_training", 2, args=["--epochs", "2"])

# %% [markdown]
# In a terminal, `course script --out train.py` does the same; with `--nodes 4 --slurm` it adds a batch job for a cluster.
# When something fails there, paste what was printed, from its first line, and press **Explain**:

# %%
from course_lib.diagnose.recognise import explain
from course_lib.teach.paste_box import PasteBox

PasteBox(explain, "Paste the error messages of your ranks here.")

# %% [markdown]
# ## What to remember
#
# 1. **Data parallelism is one line more: the mean of the gradients.** With the right shares, n ranks train as one
#    process with the global batch.
# 2. **The loudest error is seldom the first.** Look for the rank that does not complain about another one.
# 3. **More cards help while computing hides the exchange.** Measure the exposed part before you rent.
#
# **Where to go next.** Lesson 07, *Are the cards healthy?*, finds the slow one among eight. If your card waits for data,
# go to 04 first. `!course progress` shows the exercises that you passed.
