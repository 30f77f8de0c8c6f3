#!/bin/sh
# sexton collect: collects what `sexton diagnose` reads, on a host without Python.
#
#   ssh NODE sh -s < collect.sh | sexton diagnose -
#   ssh NODE sudo sh -s -- 20 < collect.sh > node.tar      # 20 seconds instead of 10
#
# Writes snapshots (at the start, after a second, at the end, and of the cores every second in
# between) to standard output as one tar.
# It only reads. It installs nothing, changes nothing, and removes its temporary directory.
# It never reads memory.stat, memory.numa_stat or lru_gen: on an affected kernel one such read
# can stall a core for seconds. It collects names of processes, cgroups, units and pods, and the kernel
# log, but no command lines, environments or contents of your files.
#
# Needs POSIX sh with cat, find, tar, mkdir, rm, date and sleep; uses other tools if present.
# Small files are read by the shell itself, so that a thousand processes do not cost a thousand
# forks. Everything is in braces, so that a script that was truncated in transit does nothing.

{

main() {
    umask 077
    LC_ALL=C
    PATH="${PATH:-/bin}:/usr/sbin:/usr/bin:/sbin:/bin"
    export LC_ALL PATH
    nl='
'
    watch=${1:-${SEXTON_SECONDS:-10}}
    patience=8
    most_glances=60
    most_processes=8000
    most_threads=4000
    most_groups=3000
    most_pods=2000
    most_directories=200000
    most_bytes=4194305
    case $watch in
    '' | *[!0-9]* | ?????*) fail "'$watch': must be a whole number from 1 to 3600" ;;
    esac
    [ "$watch" -ge 1 ] && [ "$watch" -le 3600 ] || fail "'$watch': must be a whole number from 1 to 3600"
    [ -t 1 ] && fail "the output is a tar: redirect it to a file or to 'sexton diagnose -'"
    [ -r /proc/stat ] || fail "no /proc on this host"
    for tool in cat find tar mkdir rm date sleep; do
        has "$tool" || fail "this host has no '$tool'"
    done

    dir=$(mktemp -d "${TMPDIR:-/tmp}/sexton.XXXXXX" 2>/dev/null) || {
        dir="${TMPDIR:-/tmp}/sexton.$$"
        mkdir "$dir" 2>/dev/null || fail "cannot make a temporary directory in ${TMPDIR:-/tmp}"
    }
    child=
    stuck=' '
    trap 'tidy' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 141' PIPE
    trap 'exit 143' TERM
    mkdir "$dir/0" || fail "cannot write to $dir"
    read -r mark </proc/sys/kernel/random/uuid || fail "no /proc/sys/kernel/random/uuid on this host"
    head -c 1 /proc/stat >/dev/null 2>&1 && limited=1 || limited=0
    timeout 5 true >/dev/null 2>&1 && timed=1 || timed=0
    listing=ls
    stat -c '%i %h %n' / >/dev/null 2>&1 && listing=stat
    find / -prune -printf '' >/dev/null 2>&1 && listing=printf

    # Everything at the start, after a second and at the end; only the cores every second in between.
    every=$(((watch + most_glances - 1) / most_glances))
    hierarchy_mounts
    snapshot 1 first
    open_bundle 0
    lasting
    close_bundle
    watch_for 1
    snapshots=1
    while [ "$gone" -lt "$watch" ]; do
        snapshots=$((snapshots + 1))
        if [ "$snapshots" = 2 ]; then snapshot 2 middle; else glance "$snapshots"; fi
        left=$((watch - gone))
        [ "$left" -le "$every" ] || left=$every
        watch_for "$left"
    done
    snapshots=$((snapshots + 1))
    snapshot "$snapshots" last
    {
        echo "sexton.collect/1"
        echo "snapshots $snapshots"
        echo "seconds $watch"
        echo "notes $notes"
    } >"$dir/manifest"
    say "packing"
    rm -f "$dir/one" "$dir/directories" "$dir/complaint"
    tar -cf - -C "$dir" . || fail "tar failed: the archive is incomplete"
    [ -t 2 ] && printf '\r\033[K' >&2
    exit 0
}

tidy() {
    [ -z "$child" ] || kill "$child" 2>/dev/null
    [ -z "${dir:-}" ] || rm -rf "$dir"
}

fail() {
    echo "sexton collect: $1" >&2
    exit 2
}

say() {
    [ -t 2 ] && printf '\r\033[Ksexton collect: %s' "$1" >&2
    return 0
}

has() { command -v "$1" >/dev/null 2>&1; }

# Sleep in a child, so that a signal can end it with us.
pause() {
    sleep "$1" &
    child=$!
    wait "$child"
    child=
}

# watch_for SECONDS
watch_for() {
    until=$((gone + $1))
    while [ "$gone" -lt "$until" ]; do
        say "sampling, $((watch - gone)) s left"
        pause 1
        gone=$((gone + 1))
    done
}
