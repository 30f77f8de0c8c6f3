# --- what is read in every snapshot

# snapshot NUMBER first|middle|last
snapshot() {
    say "reading"
    open_bundle "$1"
    clock
    for file in stat softirqs interrupts schedstat vmstat uptime; do
        big "/proc/$file"
    done
    for file in softnet_stat snmp netstat dev stat/nf_conntrack; do
        big "/proc/self/net/$file" "/proc/1/net/$file"
    done
    small /proc/sys/net/netfilter/nf_conntrack_max
    for file in cpu memory io irq; do
        small "/proc/pressure/$file"
    done
    processes "$2"
    hierarchies
    card_counters
    if [ "$2" != middle ]; then
        kernel_log
        units
        pods
    fi
    close_bundle
    sampled=1
}

# The cores, and the threads of busy processes: what may be over in a second.
glance() {
    open_bundle "$1"
    clock
    big /proc/stat
    big /proc/self/net/softnet_stat /proc/1/net/softnet_stat
    threads=$((most_threads - 600))
    for pid in $followed_pids; do
        slurp "/proc/$pid/stat" || continue
        put "/proc/$pid/stat"
        threads_of "/proc/$pid"
    done
    close_bundle
}

clock() {
    read -r now _ </proc/uptime
    text="$now $(date +%s)"
    put /commands/clock
}

processes() {
    number=0
    threads=0
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        case $pid in *[!0-9]*) continue ;; esac
        number=$((number + 1))
        if [ "$number" -gt "$most_processes" ]; then
            notes="only $most_processes processes were read"
            break
        fi
        slurp "$process/stat" || continue
        put "$process/stat"
        moved "$pid" "$text"
        [ "$1" != first ] && [ "$has_moved" = 1 ] && threads_of "$process"
        slurp "$process/cgroup" && put "$process/cgroup"
    done
}

# moved PID STAT: has it used CPU time since the last snapshot? If so it is followed from then on,
# so that there are two readings of its threads to compare.
moved() {
    fields=${2##*) }
    set -f
    # shellcheck disable=SC2086
    set -- "$1" $fields
    set +f
    has_moved=0
    [ "$#" -gt 21 ] || return 0
    spent="${13}_${14}"
    eval "before=\${spent_$1:-0_0} followed=\${followed_$1:-0}"
    eval "spent_$1=\$spent"
    if [ "$followed" = 1 ]; then
        has_moved=1
    elif [ "$sampled" = 1 ] && [ "$before" != "$spent" ]; then
        has_moved=1
        eval "followed_$1=1"
        followed_pids="$followed_pids $1"
    fi
}

threads_of() {
    for thread in "$1"/task/[0-9]*; do
        [ "$threads" -lt "$most_threads" ] || return 0
        threads=$((threads + 1))
        slurp "$thread/stat" && put "$thread/stat"
    done
}

# --- network cards

card_counters() {
    has ethtool || return 0
    for nic in /sys/class/net/*; do
        [ -e "$nic/device" ] || continue
        output "ethtool_S_${nic##*/}" ethtool -S "${nic##*/}"
    done
}

# Names of pods and containers, from the names of their logs: no log is read.
pods() {
    number=0
    for file in /var/log/containers/*.log; do
        [ -L "$file" ] || continue
        more_pods || return 0
        text=
        case $file in *"$nl"*) ;; *) put "$file" ;; esac
    done
    refused /var/log/pods /var/log/pods
    for file in /var/log/pods/*; do
        [ -d "$file" ] || continue
        more_pods || return 0
        case $file in *"$nl"*) ;; *) printf '\n%s dir\n0 2 %s\n' "$mark" "$file" >&3 ;; esac
    done
}

more_pods() {
    number=$((number + 1))
    [ "$number" -gt "$most_pods" ] || return 0
    notes="only $most_pods pods and containers were read"
    return 1
}

kernel_log() {
    if [ -r /dev/kmsg ] && has dd && [ "$timed" = 1 ]; then
        # GNU dd stops where it would block; others reject the flag.
        timeout 5 dd if=/dev/kmsg iflag=nonblock bs=8192 >"$dir/one" 2>/dev/null
        if [ -s "$dir/one" ]; then
            take_one /commands/kmsg
            return 0
        fi
    fi
    output dmesg dmesg || printf '\n%s denied /commands/kmsg\n' "$mark" >&3
}

units() {
    [ -d /run/systemd/system ] || return 0
    output systemctl_version systemctl --version
    # A systemd that restarts units all the time is slow to answer, and then it matters most.
    patience=30
    output systemctl_show systemctl show '*' --type=service,timer --all --no-pager -p "$properties"
    patience=8
}

properties=Id,LoadState,ActiveState,SubState,NRestarts,UnitFileState,ControlGroup,Slice,Restart
properties=$properties,RestartUSec,ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic
properties=$properties,ActiveEnterTimestampMonotonic,ExecMainStatus,Result,Unit,TimersMonotonic
properties=$properties,LastTriggerUSecMonotonic
