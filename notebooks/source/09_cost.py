# %% [markdown]
# # What does it cost?
#
# A training run costs money even on your own computer: the card loses value, and the socket gives electricity. Most
# sums that people make about it are wrong, and the reason is nearly always a unit.
#
# After this lesson you can
#
# - say what one hour of computing costs, on a card of your own and on a rented one;
# - find the slip in a cost sum that looks right;
# - say from which hour on buying is cheaper than renting, for *your* prices.
#
# **Time**: 30 minutes. **Needs**: any computer; no GPU, no network. You know lesson 00. Lesson 01 helps, and is not
# needed.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))  # True: a shorter run
my_power_w = 65  # watts that this computer draws at work: laptop 15-45, desktop 65-250
my_tariff = 0.15  # what you pay for a kilowatt-hour, in my_currency
my_currency = "USD"

# %%
from dataclasses import replace

from tqdm.auto import tqdm

from course_lib.errors import CourseError
from course_lib.machine import best_device, this_machine
from course_lib.teach import check, hint, judge, solution
from course_lib.teach.plots_cost import plot_break_even, plot_hour, plot_value
from course_lib.units import Money

this_machine()

# %% [markdown]
# ## Your own computer is free. Is it?
#
# You have a computer, so training on it costs nothing. Let us see. VGG-16, an old and large image network, is trained
# on the 1.28 million pictures of ImageNet, 74 times over (as its authors did). The next cell times its parts on
# **this** machine, as in lesson 00, and adds them up.

# %%
from course_lib.train.forecast import forecast

with tqdm(desc="timing VGG-16", unit="stage", total=5) as bar:
    vgg = forecast(
        device=best_device(), budget_s=2 if quick else 8,
        progress=lambda done, of: bar.update(),
    )
my_hours = vgg.days(74) * 24
my_kwh = my_power_w / 1000 * my_hours
my_bill = my_kwh * my_tariff
print(f"{my_hours:,.0f} hours ({my_hours / 8760:.1f} years): timed here, then scaled")
print(f"{my_power_w} W for so long are {my_kwh:,.0f} kWh,", end=" ")
print(f"and cost {my_bill:,.2f} {my_currency}")

# %% [markdown]
# A watt (W) says how *fast* energy flows. A kilowatt-hour (kWh) is an *amount*: 1,000 W for one hour. You pay for
# amounts. Set `my_power_w` and `my_tariff` in the first grey cell to your own values; run it and the cell above
# again.
#
# Now the same job on a card that one can rent. How long would it take there? The course predicts it from the network
# and the card's data; lesson 01 shows how, and how far off it may be. The rent is a dated quote from the course's
# table.

# %%
from course_lib.accelerators import find
from course_lib.plan.batch_size import traces_of
from course_lib.plan.model_names import named_workload
from course_lib.plan.prices import to_rent
from course_lib.plan.speed import predict

card = find("RTX 4090")
workload = named_workload("vgg16", precision="fp16", micro_batch=32)
on_card = predict(traces_of(workload).exact(32), card)
their_hours = on_card.seconds_for(1_281_167, 74) / 3600
offer = to_rent(card)
their_bill = their_hours * offer.price.amount
at_worst = f"{on_card.spread:.2f} times as long at worst"
print(f"{card.name}: {their_hours:,.0f} hours, predicted ({at_worst})")
print(f"rented for {offer}: {their_bill:,.2f} {offer.price.currency}")
print(f"here: {my_hours:,.0f} hours, {my_bill:,.2f} {my_currency} for electricity")

# %% [markdown]
# Compare the last two lines. On a computer without a card, the electricity alone can cost more than the rent, and the job
# takes years. **A slow computer is not a cheap one.** But is *renting* cheap? Is *buying*? For that we need a sum with
# all its terms.
#
# ## A sum with a slip in it
#
# The guide that this course grew out of gives this formula, and an example: 100 hours on an RTX 3090 that cost
# 10,000 CNY (Chinese yuan), is used for 3 years, draws 0.35 kW, at 0.6 CNY for a kWh.
#
# > total = price / depreciation + power × tariff × hours + cloud fee × instances
# >
# > 10000 / 3 / 365 × 100 + 0.35 × 0.6 × 100 = 9.13 + 21 = **30.13 CNY**
#
# Something is wrong. Do not run ahead: find it first.

# %% tags=["exercise"]
# Exercise 9.1 · 5 minutes · ●●○
# Which part of the example is wrong?
#   "a"  the electricity: 0.35 x 0.6 x 100 is not 21
#   "b"  the depreciation: the first term is for another time than it says
#   "c"  the two terms may not be added
#   "d"  nothing: 30.13 is right
# solution
my_slip = "b"
# end

check("cost.slip", my_slip)

# %% [markdown]
# ## The sum, by hand
#
# *Depreciation* is what a thing loses in value while you have it. Spread evenly over the years it is called
# *straight-line*. Here is the sum again with every unit in the name of its variable. Each line turns one unit into
# another.

# %%
price_cny, years, power_kw, tariff_cny_per_kwh, hours = 10_000, 3, 0.35, 0.6, 100

cny_per_year = price_cny / years
cny_per_day = cny_per_year / 365
cny_per_hour = cny_per_day / 24
depreciation_cny = cny_per_hour * hours
electricity_cny = power_kw * hours * tariff_cny_per_kwh
total_by_hand = depreciation_cny + electricity_cny

print(f"{cny_per_day:.2f} CNY a day, {cny_per_hour:.4f} CNY an hour")
terms = f"{depreciation_cny:.2f} + {electricity_cny:.2f}"
print(f"{terms} = {total_by_hand:.2f} CNY for {hours} hours")
print(f"as the guide writes its first term: {price_cny / years / 365 * hours:.2f} CNY")

# %% [markdown]
# There are two slips in one. What is written, 10000 / 3 / 365 × 100, is 913.24: a hundred **days**. What is printed,
# 9.13, is **one day**. The hundred hours of the example lie between.
#
# ## Units that refuse
#
# A number in Python does not know what it counts. In the course's library it does. A `Quantity` carries its unit; a
# product gets the unit that it must have; and what does not belong together is refused.

# %%
from course_lib.plan.quantities import hours as hours_of, years as years_of
from course_lib.plan.quantities import kilowatt_hours, money, watts

price = money(10_000, "CNY")
tariff = money(0.6, "CNY") / kilowatt_hours(1)
print("price / years:          ", price / years_of(3))
print("power x hours:          ", watts(350) * hours_of(100))
print("power x hours x tariff: ", watts(350) * hours_of(100) * tariff)
try:
    price / years_of(3) + watts(350) * hours_of(100) * tariff
except CourseError as error:
    print("the guide's formula:    ", error)

# %% [markdown]
# The formula as written adds yuan **an hour** to yuan. Its last term, fee × instances, has the same fault. Multiply
# both by hours, and all three terms are money. `cost_of` is that formula; it must agree with our hand.

# %%
from course_lib.plan.cost import Owned, Rented, StraightLine, cost_of

my_card = Owned(
    Money(10_000, "CNY"), StraightLine(years=3), power_w=350, tariff=Money(0.6, "CNY")
)
example = cost_of(100, owned=my_card)
assert abs(example.total.amount - total_by_hand) < 1e-9
example

# %%
from course_lib.claims import claim

stated = claim("cost.example").figure("stated_total").value
wrong = abs(example.total.amount / stated - 1) > 0.01
judge(
    "cost.example", "fails" if wrong else "holds",
    number=example.total.amount, unit="CNY for 100 hours; computed",
    note=f"it says {stated}: the depreciation of one day stands in for 100 hours of it",
)
judge(
    "cost.formula", "holds when",
    number=2, unit="of its 3 terms lack the hours",
    note="the first and the last term are multiplied by the hours of use",
)

# %% [markdown]
# ## What the formula leaves out
#
# The sum is right now, and still too friendly. It takes for granted that the card computes **every hour of its
# life**. The share of its hours in which it does is its *utilisation*. The idle hours were paid for too, and only
# the others can pay for them. Three more things are missing:
#
# - At the end the card is still worth something: its *residual value*.
# - The rest of the computer draws power too (here 150 W, an estimate).
# - In a data centre, cooling comes on top. Site power over computer power is called *PUE*: 1.58 in the mean of the
#   industry (Uptime Institute, 2023). At home it is 1.

# %%
quarter = replace(my_card, utilisation=0.25)
half_left = replace(quarter, depreciation=StraightLine(3, residual_share=0.5))
whole = replace(half_left, host_w=150)
centre = replace(whole, pue=1.58)
ways = {
    "computes all the time": my_card, "a quarter of the time": quarter,
    "+ half the price is left": half_left, "+ the rest of the machine": whole,
    "+ cooling": centre,
}
costs = {name: cost_of(100, owned=owned) for name, owned in ways.items()}
costs["rented, 0.76 an hour"] = cost_of(100, rented=Rented(Money(0.76, "CNY")))
plot_hour(costs, title="An RTX 3090 for an hour, one term after the other")

# %% [markdown]
# Read from top to bottom. Electricity, of which everybody speaks, is the small part. The large part is the price,
# and **how much of the time you use what you have paid for**. (0.76 CNY is what an RTX 3090 was listed for by a
# provider in China in 2026; `!course cards 3090` shows the source.)
#
# ## What is a card worth after three years?
#
# Not zero, and not what a straight line says. These are dated prices of the RTX 3090: the list price at its launch,
# and means of what was sold on eBay. The market takes away a *share* of the value each year.

# %%
from course_lib.plan.cost import Market
from course_lib.plan.prices import offers_for, yearly_loss

offers = [offer for offer in offers_for(find("3090")) if offer.per == "card"]
in_dollars = [offer for offer in offers if offer.price.currency == "USD"]
loss, first, last = yearly_loss(find("3090"))
print(f"lost {loss:.0%} of its value each year, from {first.day} to {last.day}")
print(f"after 3 years {(1 - loss) ** 3:.0%} of its price are left")
title = "What an RTX 3090 was still worth"
plot_value(in_dollars, StraightLine(3), Market(3, loss), title=title)

# %% [markdown]
# What is left need not be paid by the hours of use: the depreciation is smaller by that share. But nobody promises it.
# The next card may cost less and do more.
#
# ## Buy or rent?
#
# Owning costs a sum at the start, and a little each hour. Renting costs nothing at the start, and more each hour. Two
# lines; somewhere they may cross. That is the *break-even*:
#
# > hours = price / (rent − own electricity)
#
# The numerator is money, the denominator money an hour: hours are left. The picture shows all the hours of the card's
# life. The grey line is how many of them you would really use.

# %%
from course_lib.teach.labs import cost as lab

by_default = lab.break_even(
    price=10_000, years=3, utilisation_percent=25, tariff=0.6, rent=0.76
)
assert abs(by_default.at_hours - 10_000 / (0.76 - 0.35 * 0.6)) < 1e-6
by_default

# %% [markdown]
# **Left of the dot rent, right of it own.** At a quarter of the time the grey line is left of it.
#
# ## Lab: find your own crossing
#
# Move one slider at a time, and say first what will happen.
#
# 1. At which utilisation does the 10,000 CNY card pay? Set the slider there.
# 2. Put the price to that of a used card (5,000). Where is the dot now?
# 3. Make electricity very dear. Does that help owning or renting? What if the rent is below your own electricity?
# 4. Does the length of *your job* move the dot? Why not?

# %%
lab.lab()

# %% [markdown]
# The job's hours change what you pay, and not which way is cheaper: a card is paid for by all that it does in its
# life.
#
# ## A machine that may be taken away
#
# Clouds sell what nobody needs just now for less, often for less than half: *spot* machines. They may be taken away at
# any minute. What was computed since the last *checkpoint* (the state that was saved to a file) is lost, and done again.

# %%
from course_lib.plan.cost import best_checkpoint_interval, lost_work

steady, spot = to_rent(find("L4")), to_rent(find("L4"), "spot")
print(f"steady: {steady}\nspot:   {spot}")
for every in (0.25, 1, 4, 24):
    lost = lost_work(checkpoint_every_h=every, interrupted_every_h=10)
    useful_hour = cost_of(1, rented=Rented(spot.price, lost_work=lost)).total
    print(f"checkpoint every {every:>5} h: {lost:4.0%} is done again,", end=" ")
    print(f"{useful_hour} a useful hour")
best_h = best_checkpoint_interval(1 / 60, 10)
print(f"saving takes 1 minute: save every {best_h:.1f} h (Young, 1974)")

# %% [markdown]
# The ten hours between two interruptions are an assumption; ask your provider. The rule: **no checkpoints, no
# spot.**
#
# ## The cost of a real job
#
# A ResNet-50 for 90 epochs on ImageNet, on seven cards. Memory, hours and money come from the same functions as
# above. The star marks cards that no other beats in hours *and* money. The hours are predictions.

# %%
from course_lib.plan.advise import advise
from course_lib.teach.saved_jobs import job_traces

names = ("T4", "3060", "3090", "4090", "5090", "A100 80GB PCIe", "H100")
job = advise(
    job_traces("resnet50", 224, "fp16"),  # traced beforehand, and saved with the course
    batch_size=128, samples=1_281_167, epochs=90, cards=[find(name) for name in names],
)
job

# %% [markdown]
# The line under the table says what was taken for granted. Prices age: `!course cards 4090` shows each with its date
# and its source, and says when it is older than a year. Compare only prices of about the same time.
#
# ## Exercises
#
# Replace the dots, run the cell, and read the answer. `hint("cost.hour")` in a cell gives a hint,
# `solution("cost.hour")` shows ours.

# %% tags=["exercise"]
# Exercise 9.2 · 6 minutes · ●●○
# What does one hour of use cost on a card of your own: depreciation and electricity?
# The price is written off over `years` (of 365 days). The card computes in the share
# `utilisation` of all hours, and these must pay it all.
def cost_of_an_hour(
    price: float, years: float, utilisation: float, power_w: float, tariff: float
) -> float:
    # solution
    hours_of_use = years * 365 * 24 * utilisation
    return price / hours_of_use + power_w / 1000 * tariff
    # end

check("cost.hour", cost_of_an_hour)

# %% tags=["exercise"]
# Exercise 9.3 · 6 minutes · ●●○
# After how many hours of use has a card of your own cost as much as renting? fee: for a
# rented hour. power_cost: your own electricity for an hour. The fee is the larger one.
def break_even(price: float, fee: float, power_cost: float) -> float:
    # solution
    return price / (fee - power_cost)
    # end

check("cost.break_even", break_even)

# %% tags=["exercise"]
# Exercise 9.4 · 8 minutes · ●●●
# "own" or "rent": which is cheaper for a job of `hours` hours? The card also does other
# work: it computes in the share `utilisation` of all hours of its `years`, and all that
# work pays for it together.
def cheaper(
    hours: float, price: float, years: float, utilisation: float,
    power_cost: float, fee: float,
) -> str:
    # solution
    own_hour = price / (years * 365 * 24 * utilisation) + power_cost
    return "own" if own_hour < fee else "rent"
    # end

check("cost.own_or_rent", cheaper)

# %% tags=["exercise"]
# Exercise 9.5 · 5 minutes · ●●○
# A job needs `hours` useful hours. On a spot machine the share lost_work of them is
# done twice. What does the job cost on the cheaper of the two machines, the steady one
# (fee an hour) or the spot one (spot_fee an hour)?
def spot_cost(hours: float, fee: float, spot_fee: float, lost_work: float) -> float:
    # solution
    return min(hours * fee, hours * (1 + lost_work) * spot_fee)
    # end

check("cost.spot", spot_cost)

# %% [markdown]
# ## Bring your own
#
# Your card, your job, your prices, and the CO2 that the electricity emits where you live. Change all of it:

# %%
from course_lib.plan.electricity import carbon_intensity

mine = Owned(
    Money(1200, "USD"), StraightLine(years=4, residual_share=0.3), power_w=300,
    tariff=Money(0.15, "USD"), host_w=150, utilisation=0.2,
)
place = carbon_intensity("World")
print(place, place.source)
cost_of(48, owned=mine, carbon_g_per_kwh=place.grams_per_kwh)

# %% [markdown]
# In a terminal, the same, and with the rent beside it:

# %%
# !course cost --price 1200 --years 4 --residual 0.3 --utilisation 0.2 --power-w 300 \
#     --host-w 150 --tariff 0.15 --hours 48 --cloud 0.40 --currency USD

# %% [markdown]
# Also to be counted, and not in any formula here: storage and traffic of a cloud, hours in which a rented card waits
# for you, runs that fail, and your own time. The last one is often the largest.
#
# ## What to remember
#
# 1. **Say the unit of every term.** A sum of money has only money in it.
# 2. **Utilisation decides.** A card that computes a tenth of the time costs ten times as much an hour.
# 3. **Break-even = price / (rent − own electricity).** Left of it rent, right of it own.
#
# **Where to go next.** You pay for several cards: lesson 02, *Many cards*, tells what each of them adds. Does one of them
# idle? Lesson 07, *Are the cards healthy?*
