# --- the bundle: many small files in one, separated by a random mark

open_bundle() {
    [ -d "$dir/$1" ] || mkdir "$dir/$1"
    exec 3>"$dir/$1/bundle"
    printf 'sexton.bundle/1 %s\n' "$mark" >&3
}

close_bundle() {
    printf '\n%s end\n' "$mark" >&3
    exec 3>&-
}

# put PATH: $text as the content of PATH.
put() { printf '\n%s file %s\n%s' "$mark" "$1" "$text" >&3; }

# slurp PATH: read a small file into $text, without starting a process.
slurp() {
    text=
    line=
    [ -r "$1" ] || return 1
    {
        while IFS= read -r line; do text=$text$line$nl; done <"$1"
    } 2>/dev/null
    text=$text$line
    [ -n "$text" ]
}

small() {
    if slurp "$1"; then
        put "${2:-$1}"
    else
        refused "$1" "${2:-$1}"
    fi
}

# Absent, or not permitted?
refused() {
    [ -e "$1" ] && [ ! -r "$1" ] && printf '\n%s denied %s\n' "$mark" "$2" >&3
    return 0
}

# big PATH [NAME]: a file of any size, up to $most_bytes.
big() {
    if [ ! -r "$1" ]; then
        refused "$1" "${2:-$1}"
        return 0
    fi
    if [ "$limited" = 1 ]; then
        head -c "$most_bytes" "$1" >"$dir/one" 2>/dev/null || return 0
    else
        cat "$1" >"$dir/one" 2>/dev/null || return 0
    fi
    take_one "${2:-$1}"
}

take_one() {
    printf '\n%s file %s\n' "$mark" "$1" >&3
    if [ "$limited" = 1 ]; then head -c "$most_bytes" "$dir/one"; else cat "$dir/one"; fi >&3
}

# within COMMAND...: run it for at most $patience seconds; 143 if it had to be killed, 144 if it cannot
# be: it waits in the kernel where no signal reaches it, as ethtool does for a NIC that resets. Then it
# is left behind.
within() {
    if [ "$timed" = 1 ]; then
        if mkfifo "$dir/end" 2>/dev/null; then
            {
                timeout "$patience" "$@"
                echo "$?" >"$dir/end"
            } 3>&- &
            child=$!
            status=$(timeout "$((patience + 2))" cat "$dir/end" 2>/dev/null)
            rm -f "$dir/end"
            # That shell ends; what it waits for goes on.
            [ -n "$status" ] || kill "$child" 2>/dev/null
            wait "$child" 2>/dev/null
            child=
        else
            timeout "$patience" "$@"
            status=$?
        fi
        case $status in
        '') return 144 ;;
        124 | 137 | 143) return 143 ;; # 124 from GNU, the signal's number from busybox
        esac
        return 0
    fi
    "$@" &
    child=$!
    { sleep "$patience" && kill "$child"; } >/dev/null 2>&1 3>&- &
    guard=$!
    wait "$child"
    status=$?
    child=
    kill "$guard" 2>/dev/null
    [ "$status" != 143 ] || return 143
}

# output NAME COMMAND...: a program's output as /commands/NAME, if there is any. Half a list of units
# looks complete but may lack the one that matters: a killed program is marked late instead. A stuck
# one is not run again: it would wait for the same.
output() {
    name=$1
    shift
    has "$1" || return 1
    case $stuck in *" $1 "*) late "/commands/$name" && return 0 ;; esac
    within "$@" >"$dir/one" 2>/dev/null
    case $? in
    143) late "/commands/$name" ;;
    144)
        leave "$1"
        late "/commands/$name"
        ;;
    *) [ -s "$dir/one" ] && take_one "/commands/$name" ;;
    esac
}

# leave PROGRAM: it may still write to the file that it was given.
leave() {
    rm -f "$dir/one"
    stuck="$stuck$1 "
    echo "sexton collect: left behind, stuck in the kernel: $1" >&2
}

late() { printf '\n%s late %s\n' "$mark" "$1" >&3; }

a_link() {
    [ -L "$1" ] && has readlink || return 0
    if target=$(readlink "$1" 2>/dev/null) && [ -n "$target" ]; then
        printf '\n%s link %s\n%s' "$mark" "${2:-$1}" "$target" >&3
    else
        printf '\n%s denied %s\n' "$mark" "${2:-$1}" >&3
    fi
}
