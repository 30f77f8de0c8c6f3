"""Freeing dying memory cgroups without a reboot: count, stakes, estimate, rounds, and the walk
timed around each.

The dead are held by pages charged to them, so they go when those pages do. The kernel gives up
pages below one live parent on request: `memory.force_empty` on v1, `memory.reclaim` on v2 (5.19).
Neither can be aimed at the dead: live siblings pay, too. What makes it bearable is that reclaim
scrapes out an offline cgroup in its very first pass, when a live one loses a 4096th of its pages
(get_scan_count in mm/vmscan.c), so the dead go long before the living suffer, if one stops then.
"""
