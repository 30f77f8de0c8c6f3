"""Names on a node: counters, processes, services."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


#: `/proc/vmstat` of 6.18.
VMSTAT = _words("""
    nr_free_pages nr_free_pages_blocks nr_zone_inactive_anon nr_zone_active_anon
    nr_zone_inactive_file nr_zone_active_file nr_zone_unevictable nr_zone_write_pending nr_mlock
    nr_zspages nr_free_cma numa_hit numa_miss numa_foreign numa_interleave numa_local numa_other
    nr_inactive_anon nr_active_anon nr_inactive_file nr_active_file nr_unevictable
    nr_slab_reclaimable nr_slab_unreclaimable nr_isolated_anon nr_isolated_file workingset_nodes
    workingset_refault_anon workingset_refault_file workingset_activate_anon
    workingset_activate_file workingset_restore_anon workingset_restore_file
    workingset_nodereclaim nr_anon_pages nr_mapped nr_file_pages nr_dirty nr_writeback nr_shmem
    nr_shmem_hugepages nr_shmem_pmdmapped nr_file_hugepages nr_file_pmdmapped
    nr_anon_transparent_hugepages nr_vmscan_write nr_vmscan_immediate_reclaim nr_dirtied
    nr_written nr_throttled_written nr_kernel_misc_reclaimable nr_foll_pin_acquired
    nr_foll_pin_released nr_kernel_stack nr_page_table_pages nr_sec_page_table_pages
    nr_iommu_pages nr_swapcached pgpromote_success pgpromote_candidate pgpromote_candidate_nrl
    pgdemote_kswapd pgdemote_direct pgdemote_khugepaged pgdemote_proactive nr_hugetlb
    nr_balloon_pages nr_kernel_file_pages nr_dirty_threshold nr_dirty_background_threshold
    nr_memmap_pages nr_memmap_boot_pages pgpgin pgpgout pswpin pswpout pgalloc_dma pgalloc_dma32
    pgalloc_normal pgalloc_movable pgalloc_device allocstall_dma allocstall_dma32
    allocstall_normal allocstall_movable allocstall_device pgskip_dma pgskip_dma32 pgskip_normal
    pgskip_movable pgskip_device pgfree pgactivate pgdeactivate pglazyfree pgfault pgmajfault
    pglazyfreed pgrefill pgreuse pgsteal_kswapd pgsteal_direct pgsteal_khugepaged
    pgsteal_proactive pgscan_kswapd pgscan_direct pgscan_khugepaged pgscan_proactive
    pgscan_direct_throttle pgscan_anon pgscan_file pgsteal_anon pgsteal_file zone_reclaim_success
    zone_reclaim_failed pginodesteal slabs_scanned kswapd_inodesteal kswapd_low_wmark_hit_quickly
    kswapd_high_wmark_hit_quickly pageoutrun pgrotated drop_pagecache drop_slab oom_kill
    numa_pte_updates numa_huge_pte_updates numa_hint_faults numa_hint_faults_local
    numa_pages_migrated pgmigrate_success pgmigrate_fail thp_migration_success thp_migration_fail
    thp_migration_split compact_migrate_scanned compact_free_scanned compact_isolated
    compact_stall compact_fail compact_success compact_daemon_wake compact_daemon_migrate_scanned
    compact_daemon_free_scanned htlb_buddy_alloc_success htlb_buddy_alloc_fail
    unevictable_pgs_culled unevictable_pgs_scanned unevictable_pgs_rescued unevictable_pgs_mlocked
    unevictable_pgs_munlocked unevictable_pgs_cleared unevictable_pgs_stranded thp_fault_alloc
    thp_fault_fallback thp_fault_fallback_charge thp_collapse_alloc thp_collapse_alloc_failed
    thp_file_alloc thp_file_fallback thp_file_fallback_charge thp_file_mapped thp_split_page
    thp_split_page_failed thp_deferred_split_page thp_underused_split_page thp_split_pmd
    thp_scan_exceed_none_pte thp_scan_exceed_swap_pte thp_scan_exceed_share_pte thp_split_pud
    thp_zero_page_alloc thp_zero_page_alloc_failed thp_swpout thp_swpout_fallback balloon_inflate
    balloon_deflate balloon_migrate swap_ra swap_ra_hit swpin_zero swpout_zero ksm_swpin_copy
    cow_ksm zswpin zswpout zswpwb direct_map_level2_splits direct_map_level3_splits
    direct_map_level2_collapses direct_map_level3_collapses nr_unstable
""")

#: `ethtool -S` of ENA: the device's counters and one queue's.
ENA_DEVICE = _words("""
    total_resets reset_fail tx_timeout suspend resume wd_expired interface_up interface_down
    admin_q_pause device_request_reset bad_tx_req_id bad_rx_req_id bad_rx_desc_num missing_intr
    suspected_poll_starvation missing_tx_cmpl os_netdev_wd invalid_state driver_invalid_state
    missing_admin_interrupt admin_to missing_first_intr rx_desc_malformed tx_desc_malformed
    bw_in_allowance_exceeded bw_out_allowance_exceeded pps_allowance_exceeded
    conntrack_allowance_exceeded conntrack_allowance_available linklocal_allowance_exceeded
    ena_admin_q_aborted_cmd ena_admin_q_submitted_cmd ena_admin_q_completed_cmd
    ena_admin_q_out_of_space ena_admin_q_no_completion
""")
ENA_QUEUE = _words("""
    tx_cnt tx_bytes tx_queue_stop tx_queue_wakeup tx_dma_mapping_err tx_linearize tx_napi_comp
    tx_tx_poll tx_doorbells tx_bad_req_id tx_llq_buffer_copy tx_missed_tx tx_unmask_interrupt
    tx_last_napi_jiffies rx_cnt rx_bytes rx_rx_copybreak_pkt rx_csum_good rx_refil_partial
    rx_csum_bad rx_page_alloc_fail rx_empty_rx_ring
""")

#: Approximate rates per second; other counters do not change.
VM_RATES = {
    "numa_hit": 21_000.0,
    "numa_local": 20_400.0,
    "numa_other": 600.0,
    "numa_interleave": 0.1,
    "workingset_refault_file": 3.0,
    "workingset_activate_file": 1.0,
    "workingset_nodes": 0.0,
    "nr_dirtied": 220.0,
    "nr_written": 210.0,
    "nr_foll_pin_acquired": 4.0,
    "nr_foll_pin_released": 4.0,
    "pgpgin": 90.0,
    "pgpgout": 1_800.0,
    "pgalloc_dma32": 30.0,
    "pgalloc_normal": 24_000.0,
    "pgalloc_movable": 900.0,
    "pgfree": 25_000.0,
    "pgactivate": 120.0,
    "pgdeactivate": 2.0,
    "pgfault": 38_000.0,
    "pgmajfault": 0.6,
    "pgreuse": 2_600.0,
    "pgrefill": 5.0,
    "pgsteal_kswapd": 9.0,
    "pgscan_kswapd": 11.0,
    "pgscan_file": 10.0,
    "pgscan_anon": 1.0,
    "pgsteal_file": 9.0,
    "pginodesteal": 0.02,
    "slabs_scanned": 14.0,
    "pageoutrun": 0.05,
    "pgrotated": 0.3,
    "numa_pte_updates": 700.0,
    "numa_hint_faults": 240.0,
    "numa_hint_faults_local": 200.0,
    "numa_pages_migrated": 9.0,
    "pgmigrate_success": 12.0,
    "pgmigrate_fail": 0.01,
    "compact_migrate_scanned": 30.0,
    "compact_free_scanned": 80.0,
    "compact_isolated": 9.0,
    "compact_daemon_wake": 0.01,
    "unevictable_pgs_culled": 2.0,
    "unevictable_pgs_rescued": 1.5,
    "unevictable_pgs_mlocked": 1.5,
    "unevictable_pgs_munlocked": 1.5,
    "thp_fault_alloc": 6.0,
    "thp_collapse_alloc": 0.1,
    "thp_split_pmd": 0.4,
    "thp_split_page": 0.2,
    "thp_deferred_split_page": 0.5,
    "direct_map_level2_splits": 0.001,
}
#: Gauges that do not change for hours.
VM_STILL = frozenset({"nr_free_cma", "nr_zspages", "nr_hugetlb", "nr_balloon_pages", "nr_unstable"})

KERNEL_THREADS = (
    "kthreadd", "rcu_sched", "ksoftirqd/{}", "migration/{}", "cpuhp/{}", "kworker/{}:1",
    "kworker/{}:0H", "kworker/u192:{}", "kcompactd0", "kswapd0", "khugepaged", "jbd2/nvme0n1p1",
)  # fmt: skip
PROGRAMS = (
    "containerd-shim", "python", "ray::RolloutWo", "ray::IDLE", "bash", "pause", "nv-hostengine",
    "envoy", "fluent-bit", "tini", "sh", "node_exporter", "nginx", "java", "redis-server",
)  # fmt: skip
SHORT_LIVED = ("runc", "sh", "curl", "sleep", "grep", "iptables", "python", "runc:[2:INIT]")
SERVICES = (
    "ssh", "kubelet", "containerd", "systemd-journald", "systemd-logind", "systemd-networkd",
    "systemd-resolved", "systemd-udevd", "chrony", "cron", "dbus", "irqbalance", "polkit",
    "amazon-ssm-agent", "nvidia-persistenced", "snapd", "rsyslog", "unattended-upgrades",
)  # fmt: skip
CONTROLLERS = (
    "cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "net_cls", "perf_event",
    "net_prio", "hugetlb", "pids", "rdma",
)  # fmt: skip


def services(number: int) -> list[str]:
    """`number` service names, well-known ones first."""
    known = [f"{name}.service" for name in SERVICES]
    return [*known, *(f"svc-{index}.service" for index in range(number - len(known)))][:number]
