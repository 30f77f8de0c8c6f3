# --- what does not change between snapshots

lasting() {
    for file in hostname osrelease random/boot_id; do
        small "/proc/sys/kernel/$file"
    done
    big /etc/os-release
    big /usr/lib/os-release
    for file in sys_vendor product_name; do
        small "/sys/class/dmi/id/$file"
    done
    big /run/cloud-init/instance-data.json
    container_marks
    big /proc/self/mountinfo /proc/1/mountinfo
    for file in cgroup ipc uts pid net mnt user; do
        a_link "/proc/self/ns/$file" "/proc/1/ns/$file"
    done
    for file in /proc/irq/[0-9]*/smp_affinity_list /proc/irq/[0-9]*/effective_affinity_list; do
        [ -r "$file" ] || continue
        slurp "$file"
        put "$file"
    done
    for nic in /sys/class/net/*; do
        [ -e "$nic" ] || continue
        network_card "$nic"
    done
    first_process
    journal
}

container_marks() {
    small /run/systemd/container
    text=
    for file in /run/.containerenv /.dockerenv; do
        [ -e "$file" ] && put "$file"
    done
    [ -d /run/secrets/kubernetes.io ] && put /run/secrets/kubernetes.io/serviceaccount
    if has tr && has grep && [ -r /proc/1/environ ]; then
        # Only this one variable of init's environment.
        text=$({ tr '\000' '\n' </proc/1/environ | grep '^container='; } 2>/dev/null)
        [ -n "$text" ] && put /proc/1/environ
    fi
    return 0
}

# Everything under its real path; the link in the class directory points there.
network_card() {
    a_link "$1"
    card=$(cd -P "$1" 2>/dev/null && pwd -P) || return 0
    small "$card/operstate"
    a_link "$card/device"
    device=$(cd -P "$1/device" 2>/dev/null && pwd -P) || return 0
    a_link "$device/driver"
    a_link "$device/subsystem"
    small "$device/uevent"
    small "$device/irq"
    output "ethtool_i_${1##*/}" ethtool -i "${1##*/}"
    for file in "$device"/msi_irqs/[0-9]* "${device%/*}"/msi_irqs/[0-9]*; do
        [ -e "$file" ] && small "$file"
    done
    driver=$(cd -P "$device/driver" 2>/dev/null && pwd -P) || return 0
    a_link "$driver/module"
    module=$(cd -P "$driver/module" 2>/dev/null && pwd -P) || return 0
    small "$module/version"
}

# In a PID namespace the first process is not the node's.
first_process() {
    has readlink || return 0
    [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] && small /proc/1/comm
    if [ -d /run/systemd/system ]; then
        printf '\n%s dir\n0 2 /run/systemd/system\n' "$mark" >&3
    fi
}

# Restarts that systemd announced in the last hour, and logins refused for too many sessions.
journal() {
    has journalctl && [ -d /run/systemd/system ] || return 0
    [ -d /run/log/journal ] || [ -d /var/log/journal ] || return 0
    within journalctl --no-pager -o json --since -1h -n 2000 _PID=1 \
        MESSAGE_ID=5eb03494b6584870a536b337290809b3 >"$dir/one" 2>"$dir/complaint" || {
        [ $? != 144 ] || leave journalctl
        late /commands/journal_json
        return 0
    }
    case $(cat "$dir/complaint") in
    *'insufficient permissions'* | *'not seeing messages'*)
        printf '\n%s denied /commands/journal_json\n' "$mark" >&3
        return 0
        ;;
    esac
    if has grep; then
        within journalctl --no-pager -o json --since -1h -n 300 -t sshd -t sshd-session -t CRON \
            -t cron -t crond -t su -t sudo -t login >"$dir/logins" 2>/dev/null
        grep 'Maximum number of sessions' "$dir/logins" >>"$dir/one"
        rm -f "$dir/logins"
    fi
    take_one /commands/journal_json
}
