# %% [markdown]
# # When memory runs out
#
# `CUDA out of memory`. The training stops before it has begun, and the message does not say what to do. After
# this lesson it does.
#
# After this lesson you can
#
# - say where the memory of a training step goes, and how much a model will need before you run it;
# - find the largest batch that fits in three trials, and keep a larger batch by *accumulating*;
# - read an out-of-memory message, and name the first remedy, and what would not help.
#
# **Time**: 35 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
memory = "96 MiB"  # what the training below may use
card = ""  # predictions are made for this card; empty: your own, or an RTX 3060
seed = 0

# %%
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.accelerators import find_accelerator
from course_lib.machine import this_machine
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.labs import oom as lab
from course_lib.teach.plots_batch import plot_rule, plot_trials
from course_lib.teach.plots_oom import plot_memory, plot_step
from course_lib.units import format_bytes

card = card or lab.own_card()
this_machine()

# %% [markdown]
# ## The crash, for real
#
# A small network is to train on images of 28 × 28 pixels, 512 at a time. It runs in a process of its own, a *child*,
# which the system allows 96 MiB and no more (a MiB is 2²⁰ bytes, a GiB 2³⁰). So the crash is real, and this page
# survives it. (Where the system cannot set such a limit, as on macOS, the tensors are counted instead, and the table
# says *emulated*.)

# %%
from course_lib.train.limits import run_limited

TRAINING = "course_lib.train.limits.limited_training"
train_some = f"{TRAINING}:train_some_steps"
crash = run_limited(train_some, memory=memory, arguments={"batch_size": 512})
crash

# %% [markdown]
# Read the error. It says how much was asked for *last*: the last straw. It does not say what filled the memory
# before. That is the question.
#
# ## Where does it go?
#
# A training step keeps four things. The **parameters**: the numbers that are learned. A **gradient** for each of them.
# The **optimizer states**: AdamW keeps two more numbers for each parameter. And the **activations**: what the forward
# pass computes on the way and the backward pass will need again. PyTorch tells which tensors it keeps; we only have to
# listen.

# %%
from course_lib.models.zoo import DigitsCNN

def count_by_hand(batch_size):
    model, kept = DigitsCNN(), {}
    images = torch.rand(batch_size, 1, 28, 28)
    labels = torch.zeros(batch_size, dtype=torch.long)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor):  # called for each tensor that is saved for the backward pass
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        cross_entropy(model(images), labels)
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return parameters, sum(t.untyped_storage().nbytes() for t in kept.values())

# %%
for size in (1, 64, 512):
    parameters, activations = count_by_hand(size)
    print(
        f"batch {size:3}: parameters {format_bytes(parameters)}, "
        f"gradients {format_bytes(parameters)}, states {format_bytes(2 * parameters)}, "
        f"activations {format_bytes(activations)}"
    )

# %% [markdown]
# Parameters, gradients and states stay as they are. The activations grow with the batch, and at 512 they are
# nearly all of it. **It is the batch that fills the memory, not the model**, as long as the model is small.
#
# ## The same, without running anything
#
# `trace` from the course's library follows a step operation by operation and computes nothing: no GPU, no waiting,
# any model. Its activations must be those that you counted.

# %%
from course_lib.plan.alive import alive_over_step
from course_lib.plan.model_names import named_workload
from course_lib.plan.tracer import trace

step = trace(named_workload("cnn", micro_batch=64))
traced = max(alive_over_step(step).bytes_of["activations"])
counted = count_by_hand(64)[1]
print(f"activations: counted {format_bytes(counted)}, traced {format_bytes(traced)}")
assert abs(traced / counted - 1) < 0.01

# %% [markdown]
# Now a large network: ResNet-50, with 32 photographs of 224 × 224 pixels. From left to right, one step in time:

# %%
resnet = lab.resnet50_trace(batch_size=32)
plot_step(resnet)

# %% [markdown]
# A mountain. In the forward pass the activations pile up. The backward pass uses them in reverse order, and lets
# each go. Blue and green at the bottom are the model and its optimizer. Out of memory means: **the summit is
# higher than the card**. Every remedy is a way to lower the summit. Anything that does not lower it does not help.
#
# A card must hold a little more: what operations borrow for a moment, what PyTorch keeps for later (the *cache*), and
# the *context*, some 500 MiB that the driver takes. Cache and context are grey.

# %%
plan = lab.memory_of(32, 224, card=card).plan
plot_memory(plan, title=f"ResNet-50, batch 32, on {card} (predicted)")

# %% [markdown]
# The dashed box is a margin for what cannot be known before the run; a card *fits* only if the box fits too. How far
# such predictions were off on public data stands in `docs/accuracy.md`.
#
# The guide that this course grew out of has five steps for this moment. We try each.
#
# ## Step 1: lower the batch
#
# Right, it lowers the summit. But to which batch? The guide says: begin with a quarter of the card's memory in GB. A
# card of 24 GB gives 6. Here is that rule against twenty models on four cards, with numbers of 32 bits (*fp32*,
# PyTorch's default) and AdamW. Each dot is a model; its largest batch was predicted and saved in a table.

# %%
rule = lab.rule_of_thumb()
plot_rule(rule)

# %%
few = ("gpt", "mobilenet_v3_small", "resnet50", "vit_h_14")
rows = {name: rule.largest[name] for name in few} | {"the guide says": rule.rule}
print("largest batch on a  " + "".join(f"{name:>15}" for name in rule.rule))
for name, sizes in rows.items():
    print(f"{name:20}" + "".join(f"{size:15,.0f}" for size in sizes.values()))
judge(
    "oom.batch", "fails" if rule.within_two < len(rule.factors) / 2 else "holds when",
    number=rule.too_small, unit="times the guide's batch fits, at the most; predicted",
    note=f"of {len(rule.factors)} pairs of model and card it is within a factor of two "
    f"in {rule.within_two}, and out of memory in {rule.failures}",
)

# %% [markdown]
# How could one number be right for all? The rule knows the card, and not the model. But fixed things, and activations
# that grow by the same amount for each sample, are a **straight line**. Two measurements give the line; the line
# gives the batch. Back to the training that crashed, with the same 96 MiB. (The table below counts also what Python
# and PyTorch themselves take.)

# %%
import json

from course_lib.train.rescue.batch_size_result import BatchSizeSearch

task = f"{TRAINING}:search_batch_size"
run = run_limited(task, memory=memory, arguments={"start": 8})
search = BatchSizeSearch.from_json(json.dumps(run.completed()))
plot_trials(search)

# %%
found = {"batch_size": search.batch_size}
rescued = run_limited(train_some, memory=memory, arguments=found)
print(f"batch 512: {crash.outcome}; batch {search.batch_size}: {rescued.outcome}")
search

# %% [markdown]
# That is the rescue. In your own program it is
# `find_batch_size(step, make_batch)`; give it your *longest* samples. With an NVIDIA card it looks like this. The card is
# told to be a small one, so that the search is short:

# %%
from course_lib.train.rescue import find_batch_size
from course_lib.train.limits.small_card import small_card
from course_lib.train.step import TrainingStep

def rescue_on_a_card():
    model = DigitsCNN().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    def make_batch(n):
        images = torch.rand(n, 1, 28, 28, device="cuda")
        return images, torch.zeros(n, dtype=torch.long, device="cuda")
    with small_card("1 GiB"):
        step = TrainingStep(model, optimizer)
        return find_batch_size(step, make_batch, device="cuda")

on_gpu = torch.cuda.is_available()
rescue_on_a_card() if on_gpu else print("no NVIDIA card here: cannot be tested here")

# %% [markdown]
# "But I want a batch of 512." Take several small batches, add up their gradients, and let the optimizer step once:
# *gradient accumulation*. Exercise 6.3 is about it, and lesson 05 does it.
#
# ## Step 2: gradient checkpointing
#
# Keep only what goes *into* each block of the network. When the backward pass needs what is inside, run the block
# again. Memory for time. How much of each? A small GPT, measured in two children:

# %%
from tqdm.auto import tqdm

text = {"batch_size": 16, "steps": 2 if quick else 5}
ways = {"as it is": text, "checkpointed": text | {"checkpointing": True}}
task, runs = f"{TRAINING}:train_text_steps", {}
for name, arguments in tqdm(ways.items(), desc="training, in a child"):
    runs[name] = run_limited(task, memory="1 GiB", arguments=arguments)
plain, checked = runs.values()
for name, one in runs.items():
    peak, step_ms = format_bytes(one.peak_bytes), 1000 * one.completed()
    print(f"{name:13} {peak:>9} at the most, {step_ms:5.0f} ms a step")

# %% [markdown]
# And predicted, before anything is run: the peak from the trace, the time from the operations (*FLOPs*) that are
# added.

# %%
from course_lib.plan.workload import Batch, Workload

def small_gpt(checkpointing):
    from course_lib.models.gpt import GPT, GPTConfig

    return Workload(
        "small GPT", lambda: GPT(GPTConfig(256, 128, 6, 4, 128)),
        lambda n: Batch(
            (torch.empty(n, 128).long(),), target=torch.empty(n * 128).long()
        ),
        lambda output, target: cross_entropy(output.flatten(0, 1), target),
        micro_batch=16, checkpointing=checkpointing,
    )

traces = [trace(small_gpt(checkpointing)) for checkpointing in (False, True)]
before, after = (max(alive_over_step(one, "adamw").totals) for one in traces)
print(f"predicted: {format_bytes(before)} and {format_bytes(after)}, "
      f"{traces[1].flops / traces[0].flops - 1:.0%} more operations")

# %%
saved = 1 - checked.peak_bytes / plain.peak_bytes
slower = checked.value / plain.value - 1
judge(
    "oom.checkpoint", "holds" if saved > 0.2 else "fails",
    number=100 * saved, unit="% less memory at the peak, measured here",
    note=f"a step took {slower:+.0%} time; predicted {1 - after / before:.0%} less "
    f"memory and {traces[1].flops / traces[0].flops - 1:.0%} more operations",
)

# %% [markdown]
# A good bargain: much memory for at most a third more work. In your own model,
# `course_lib.models.checkpointing.checkpoint_blocks` does it.
#
# ## Step 3: empty the cache
#
# `torch.cuda.empty_cache()` before the loop, says the guide. The cache is what PyTorch keeps of memory that it has
# freed, to use it again. PyTorch's *allocator* hands out the card's memory by fixed rules. We replay them for two steps
# of ResNet-50 on a card of 4 GiB, in the best case for the guide: an earlier model has left 2 GiB in the cache, in
# pieces too small to be of use.

# %%
from course_lib.plan.allocator import CachingAllocator
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.replay import compile_program, replay

program, MiB = compile_program(resnet), 2**20
peaks_of = {}
for empties in (False, True):
    cache = CachingAllocator(capacity=4096 * MiB)
    for address in [cache.allocate(11 * MiB) for _ in range(180)]:
        cache.release(address)  # an earlier model is gone, its memory cached
    print(f"cached {format_bytes(cache.reserved)}; empty_cache() called: {empties}")
    if empties:
        cache.empty_cache()
    replay(program, cache, optimizer_rule("sgd"))
    peak = peaks_of[empties] = cache.allocated_peak
    print(f"  fits, peak {format_bytes(peak)}; emptied by PyTorch: {cache.retries} ×")

# %% [markdown]
# The peak is the same, and it fits both times: before PyTorch raises the error, **it empties the cache by itself**.
# `empty_cache()` gives back what is *cached*, and nothing that is *in use*. At the summit, what matters is in use. It
# helps one kind of person: your neighbour on the same card.

# %%
def peak_on_gpu(empties):
    model, images = DigitsCNN().cuda(), torch.rand(256, 1, 28, 28, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    if empties:
        torch.cuda.empty_cache()
    model(images).sum().backward()
    return torch.cuda.max_memory_allocated()

if on_gpu:
    peaks_of = {empties: peak_on_gpu(empties) for empties in (False, True)}
how = "measured" if on_gpu else "replayed, not measured: no GPU here"
judge(
    "oom.cache", "fails" if peaks_of[True] >= 0.98 * peaks_of[False] else "holds",
    number=(peaks_of[False] - peaks_of[True]) / 2**20, unit=f"MiB lower peak, {how}",
    note="it frees what is cached, not what is in use",
)

# %% [markdown]
# ## Step 4: a slimmer model
#
# *Depthwise separable* convolutions in place of plain ones: one filter for each channel, then a 1 × 1 mix of the
# channels. And smaller linear layers at the end of the network, its *head*. Both can be counted:

# %%
from course_lib.models.slim import compare, separable

torch.manual_seed(seed)
plain_model = DigitsCNN()
slim_model = separable(plain_model)
report = compare(plain_model, slim_model, torch.rand(64, 1, 28, 28))
report

# %% [markdown]
# Look at the third row of figures. Parameters and operations fall, and **activations grow**: between the two new
# convolutions there is one tensor more to keep. What does training say?

# %%
from torch.utils.data import DataLoader

from course_lib.train.data import Digits
from course_lib.train.loop import train

def train_digits(model):
    torch.manual_seed(seed)
    loader = DataLoader(Digits("train"), batch_size=64, shuffle=True)
    test = DataLoader(Digits("test"), batch_size=256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    epochs = 2 if quick else 8
    return train(model, loader, optimizer, epochs=epochs, test_loader=test)

# %%
histories = {"plain": train_digits(plain_model), "separable": train_digits(slim_model)}
for name, history in histories.items():
    accuracy = history.epochs[-1].test.accuracy
    print(f"{name:10} accuracy {accuracy:.1%}, {history.seconds:.1f} s")

# %%
less_parameters = 1 - report.after.parameters / report.before.parameters
activations = report.after.activation_bytes / report.before.activation_bytes
operations = report.after.forward_flops / report.before.forward_flops
time_ratio = histories["separable"].seconds / histories["plain"].seconds
judge(
    "oom.slim", "holds when" if activations >= 1 else "holds",
    number=100 * less_parameters, unit="% fewer parameters, counted",
    note="it is the parameters that fill the card: activations are "
    f"× {activations:.2f}, operations × {operations:.2f}, "
    f"time × {time_ratio:.2f} (measured here)",
)

# %% [markdown]
# So slimming is a cure for models whose *parameters* fill the card. VGG-16 is one: nine tenths of its parameters stand
# in its head.

# %%
from torchvision.models import vgg16

from course_lib.models.slim import pooled_head

with torch.device("meta"):  # shapes only, no memory
    vgg = vgg16()
compare(vgg, pooled_head(vgg), torch.empty(8, 3, 224, 224, device="meta"))

# %% [markdown]
# ## Step 5: read the summary
#
# `print(torch.cuda.memory_summary())` prints a table. Here is one of a training that ran out of memory (a sample,
# written for this lesson; on a GPU, print your own).

# %%
from course_lib.diagnose.recognise import explain
from course_lib.files import data_path

summary = data_path("memory_summary.txt").read_text(encoding="utf-8")
print(summary)

# %% [markdown]
# Four things are worth reading:
#
# | line | what it says |
# |---|---|
# | CUDA OOMs, cudaMalloc retries | how often memory ran out; how often the cache was emptied to avoid it |
# | Allocated memory, *Peak Usage* | the summit: what tensors held at the most |
# | GPU reserved memory | what PyTorch has taken from the card; what is above *allocated* is the cache |
# | Non-releasable memory | gaps: cached, but in pieces that cannot be given back. Much of it is *fragmentation* |
#
# *Tot Alloc* adds up everything that was ever allocated: no size and no leak. `explain` reads it for you:

# %%
findings = explain(summary)
judge(
    "oom.monitor", "holds when",
    number=len(findings.findings[0].evidence), unit="figures used of the table's many",
    note="you know which lines to read: it tells whether memory ran out, and whether "
    "by gaps; it does not tell which layer",
)
judge(
    "start.memory", "cannot be tested here",
    note="that it happens, you have seen; how often, the questions of many beginners "
    "would tell",
)
findings

# %% [markdown]
# ## Lab: lower the summit
#
# ResNet-50, predicted. Move one control at a time; the picture keeps the last three settings. Which control lowers
# which colour? From 128 to 384 pixels: what happens to the orange? With which batch does the optimizer matter at all?
# (`bf16` computes with 16 bits, `sgd` keeps one number for each parameter, `sgd-plain` none.)

# %%
lab.lab(card)

# %% [markdown]
# ## All remedies, ranked
#
# `remedies` tries them all in the plan: each setting, each sensible pair, with the memory that the step then needs, the
# extra work, and what changes in the mathematics. (In a terminal: `course remedies resnet18 --batch 2048 --on "RTX 3060 12GB"`.)

# %%
from course_lib.plan.remedies import remedies

model_name, batch = ("cnn", 20_000) if quick else ("resnet18", 2048)
tried = named_workload(model_name, micro_batch=batch, optimizer="adamw")
tried_on = find_accelerator(card)
with tqdm(desc="tracing", unit="variant") as bar:
    ranking = remedies(tried, tried_on, progress=lambda what: bar.update())
ranking

# %% [markdown]
# *bf16* and *fp16* are numbers of 16 bits: lesson 03. *BatchNorm* is a layer that takes averages over the batch, so a
# smaller batch changes them a little. *Reckoned* means that another library does it, and the course only does the
# arithmetic. Take the first that fits, from the top.
#
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("oom.largest_batch")` in a cell gives a hint,
# `solution("oom.largest_batch")` shows ours.

# %% tags=["exercise"]
# Exercise 6.1 · 4 minutes · ●○○
# A model has so many parameters, in float32. The optimizer keeps `states` numbers for
# each of them (plain SGD 0, with momentum 1, AdamW 2). How many bytes do parameters,
# gradients and states take?
def training_bytes(parameters: int, states: int) -> int:
    # solution
    return 4 * parameters * (2 + states)
    # end

check("oom.training_bytes", training_bytes)

# %% tags=["exercise"]
# Exercise 6.2 · 8 minutes · ●●○
# Two steps were measured: batch_a samples took mib_a MiB, batch_b samples mib_b. The
# limit is limit_mib. What is the largest batch that fits? 0 if not even one sample
# does.
def largest_batch(
    batch_a: int, mib_a: float, batch_b: int, mib_b: float, limit_mib: float
) -> int:
    # solution
    per_sample = (mib_b - mib_a) / (batch_b - batch_a)
    fixed = mib_a - per_sample * batch_a
    return max(0, int((limit_mib - fixed) // per_sample))
    # end

check("oom.largest_batch", largest_batch)

# %% tags=["exercise"]
# Exercise 6.3 · 6 minutes · ●●●
# You want a batch of global_batch samples, and only `fits` fit at once. Into how many
# micro-batches must it be divided? All must be of the same size, none larger than
# `fits`, and you want as few as possible.
def accumulation_steps(global_batch: int, fits: int) -> int:
    # solution
    parts = 1
    while global_batch % parts or global_batch // parts > fits:
        parts += 1
    return parts
    # end

check("oom.accumulation_steps", accumulation_steps)

# %%
from course_lib.teach.exercises.oom import MESSAGE

print(MESSAGE)

# %% tags=["exercise"]
# Exercise 6.4 · 4 minutes · ●●○
# What should be done first about this message?
#   "a"  halve the batch
#   "b"  set expandable_segments, as the message says
#   "c"  look who process 4711 is
#   "d"  call torch.cuda.empty_cache()
#   "e"  buy a larger card
# solution
my_remedy = "c"
# end

check("oom.first_remedy", my_remedy)

# %% [markdown]
# ## Bring your own
#
# **Your message.** Paste any out-of-memory message, a `memory_summary()`, or a whole log into the box, and press
# **Explain**. The text is only read, never run.

# %%
from course_lib.teach.paste_box import PasteBox

PasteBox(explain, "Paste the error message here, from its first line to its last.")

# %% [markdown]
# The same without a box: put your message in place of ours.

# %%
my_message = MESSAGE
explain(my_message)

# %% [markdown]
# **Your model.** Give your module and one batch of its inputs; its targets too. Nothing of it is changed, and nothing
# is computed. Choose a setting and press **Measure**; the first setting of a kind traces your model.

# %%
from course_lib.plan.workload import workload_from

my_model = DigitsCNN()
my_inputs, my_targets = torch.rand(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)
my_workload = workload_from(my_model, my_inputs, my_targets, optimizer="adamw")
lab.your_model_lab(my_workload, card=card)

# %%
from course_lib.plan.batch_size import largest_batch as predicted_largest

most = predicted_largest(my_workload, find_accelerator(card))
print(f"largest batch on {card}, predicted: {most:,}")

# %% [markdown]
# In a terminal: `course explain message.txt` reads a message, `course plan resnet50 --batch 64` says which cards fit,
# `course remedies` ranks what would help.
#
# ## What to remember
#
# 1. **Memory is a mountain, and only its summit counts.** Activations pile up in the forward pass; they grow with the
#    batch. Parameters, gradients and states do not.
# 2. **Memory is a straight line in the batch.** Two measurements tell the largest batch. No rule of thumb does.
# 3. **The message says what was asked for last, not what filled the card.** Ask who holds the memory before you change
#    anything. Emptying the cache does not lower the summit.
#
# **Where to go next.** Half the bytes, and often faster: lesson 03, *Half the bytes*. The batch that you wanted, in
# parts: lesson 05, *A large batch from small ones*. `!course progress` shows the exercises that you have passed.
