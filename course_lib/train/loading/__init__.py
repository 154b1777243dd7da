"""How fast is data loaded, what does a step wait for, and with which settings does it wait least?

    measurement = measure(loader, step)      where the time goes
    tuned = tune(dataset, step)              the settings that are best on this machine

In the order in which they build on each other:

- ``workers``: a pass over a loader whose workers end with it
- ``settings``: the settings of a loader, and the same loader with others
- ``rules``: what others suggest without measuring
- ``probe``: what one batch costs to make, part by part
- ``step_bench``: steps with their times
- ``measure``, ``measurement``: the differential, and what it says
- ``model``: throughput against the number of workers
- ``memory``: what workers take, and whether that fits
- ``start_method``: whether a data set can travel to a new process
- ``trials``, ``repeats``: one choice of settings, tried; and whether workers gave the same samples
- ``search``, ``tune``, ``tuning``: which few trials, and their result
- ``recipes``, ``gains``: one change at a time, each with its measured gain
- ``prefetch``, ``timeline``: a thread that loads ahead; when each batch was made and used
- ``faults``, ``faulty_child``: what goes wrong with workers, for real, in a child
"""

from course_lib.train.loading.measure import measure
from course_lib.train.loading.measurement import LoaderMeasurement
from course_lib.train.loading.settings import LoaderSettings
from course_lib.train.loading.tune import tune
from course_lib.train.loading.tuning import Tuning

__all__ = ["LoaderMeasurement", "LoaderSettings", "Tuning", "measure", "tune"]
