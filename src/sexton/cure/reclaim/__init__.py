"""Freeing dying memory cgroups without a reboot.

A dying cgroup is held by the pages charged to it and goes away with them. The kernel reclaims pages
below one live parent on request: `memory.force_empty` on v1, `memory.reclaim` on v2 (since 5.19).
Neither can be aimed at dying cgroups: live siblings lose pages too. It is acceptable because
reclaim empties an offline cgroup in its very first pass, when a live one loses 1/4096 of its pages
(get_scan_count in mm/vmscan.c). Zombies are gone long before running cgroups suffer, if one stops
in time.
"""
