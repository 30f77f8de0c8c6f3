# --- control groups

# The mounts of the memory hierarchy, and of v1's cpu hierarchy. The shortest path wins.
hierarchy_mounts() {
    memory_mount=
    cpu_mount=
    unified_mount=
    while read -r _ _ _ root point rest; do
        case $point in *\\*) continue ;; esac
        case $rest in
        *' - cgroup2 '*) shorter "$unified_mount" && unified_mount=$point ;;
        *' - cgroup '*)
            case ",${rest##* }," in
            *,memory,*) shorter "$memory_mount" && memory_mount=$point ;;
            esac
            case ",${rest##* }," in
            *,cpu,*) shorter "$cpu_mount" && cpu_mount=$point ;;
            esac
            ;;
        esac
    done </proc/self/mountinfo
}

shorter() { [ -z "$1" ] || [ "${#point}" -lt "${#1}" ]; }

hierarchies() {
    group_files=0
    if [ -n "$memory_mount" ]; then
        hierarchy "$memory_mount" "cgroup.procs memory.use_hierarchy \
            memory.usage_in_bytes memory.kmem.usage_in_bytes"
    fi
    if [ -n "$unified_mount" ]; then
        if [ -n "$memory_mount" ]; then
            small "$unified_mount/cgroup.controllers"
            small "$unified_mount/cgroup.stat"
        else
            hierarchy "$unified_mount" "cgroup.stat cgroup.procs memory.current cpu.stat"
        fi
    fi
    if [ -n "$cpu_mount" ] && [ "$cpu_mount" != "$memory_mount" ]; then
        hierarchy "$cpu_mount" "cpu.stat"
    fi
    [ -n "$memory_mount" ] || big /proc/cgroups
}

# hierarchy MOUNT FILES: its directories, the kernel's count of them, and these files of its groups,
# parents before leaves.
hierarchy() {
    for file in release_agent cgroup.sane_behavior notify_on_release cgroup.clone_children \
        cgroup.type cgroup.events cgroup.freeze cgroup.controllers; do
        [ -e "$1/$file" ] || continue
        slurp "$1/$file"
        put "$1/$file"
    done
    tries=0
    while :; do
        slurp /proc/cgroups
        counted=$text
        directories "$1" >"$dir/directories" 2>/dev/null
        slurp /proc/cgroups
        tries=$((tries + 1))
        [ "$counted" = "$text" ] || [ "$tries" -ge 3 ] || continue
        break
    done
    [ "$1" = "${memory_mount:-$unified_mount}" ] && [ -n "$text" ] && put /proc/cgroups
    printf '\n%s dir\n' "$mark" >&3
    cat "$dir/directories" >&3
    top=$1
    groups "$2" parents <"$dir/directories"
    groups "$2" leaves <"$dir/directories"
}

# Lines of INODE LINKS PATH, by the first of three ways that this host supports.
directories() {
    case $listing in
    printf) find "$1" -xdev -type d -printf '%i %n %p\n' ;;
    stat) find "$1" -xdev -type d -exec stat -c '%i %h %n' {} + ;;
    *)
        find "$1" -xdev -type d -exec ls -din {} + |
            while read -r inode _ links _ _ _ _ _ _ path; do echo "$inode $links $path"; done
        ;;
    esac | bounded_lines
}

bounded_lines() {
    if has head; then head -n "$most_directories"; else cat; fi
}

groups() {
    while IFS=' ' read -r _ links group; do
        case $2$links in
        parents2 | leaves[!2]* | leaves2?*) continue ;;
        esac
        group_files=$((group_files + 1))
        if [ "$group_files" -gt "$most_groups" ]; then
            notes="only $most_groups cgroups were read"
            return 0
        fi
        for file in $1; do
            group_file "$group" "$file"
        done
    done
}

group_file() {
    case $2 in
    cgroup.procs)
        # All that matters is whether there are any.
        text=
        [ -r "$1/$2" ] || return 0
        { read -r text <"$1/$2"; } 2>/dev/null
        put "$1/$2"
        ;;
    memory.*)
        # The root's counters are sums, for which old kernels walk every group.
        [ "$1" = "$top" ] || { slurp "$1/$2" && put "$1/$2"; }
        ;;
    *) slurp "$1/$2" && put "$1/$2" ;;
    esac
}
