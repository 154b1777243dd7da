"""How do several processes train as one, and what does it cost?

- ``launch``, ``launch_agent``, ``launch_rank``, ``launch_result``: torchrun's agent, started and watched
- ``launch_target``, ``launch_family``: what may be launched, and all processes that belong to a launch
- ``meeting_port``: where ranks meet
- ``global_batches``: which samples are whose
- ``ring``, ``data_parallel``, ``ddp_twenty``, ``listing_rank``: what the ranks of lesson 02 run
- ``ddp_faults``: the usual faults, committed
- ``communication``, ``communication_rank``, ``link``, ``emulated_network``, ``ranks_timing``: the cost
- ``straggler``, ``straggler_rank``: two real ranks, timed part by part

What a process needs to be a rank itself stands in ``train/distributed.py``.
"""
