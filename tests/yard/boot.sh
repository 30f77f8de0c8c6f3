# Becomes PID 1 of the yard: run by `unshare` in fresh namespaces, ends in exec of systemd.
# $1 is an empty directory of the yard's own; $2… are trees that must be visible inside.
# Nothing of the host is written: / is bound read-only and everything systemd writes is a tmpfs.
set -eu
base=$1
shift
# /proc is still the host's, so this is the pid the host knows us by.
read -r pid rest </proc/self/stat

mount --make-rprivate /
root=$base/root
mount --bind / "$root"
mount -o remount,bind,ro "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# PID 1 raises limits for the whole kernel (fs.nr_open, …) if it can: it shall not.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    : >"$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm"
for place in dev/shm run tmp var/tmp var/log var/lib/systemd; do
    [ -d "$root/$place" ] || continue
    mount -t tmpfs -o mode=1777 tmpfs "$root/$place"
done
chmod 755 "$root/run"
mkdir -p "$root/run/systemd/system" "$root/run/dbus"
cp "$base"/units/* "$root/run/systemd/system/"
mount --bind "$base/machine-id" "$root/etc/machine-id"

# Trees that a tmpfs hides or that are mounts of their own (a checkout in /tmp, a separate /home).
for tree in "$@"; do
    [ -e "$root$tree/." ] && [ "$(stat -c %d:%i "$tree")" = "$(stat -c %d:%i "$root$tree")" ] && continue
    mkdir -p "$root$tree"
    mount --bind "$tree" "$root$tree"
    mount -o remount,bind,ro "$root$tree"
done

# Private mounts of the hierarchies: in our cgroup namespace each one's root is the yard's own.
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
while read -r place type options; do
    mkdir -p "$root$place"
    mount -t "$type" -o "$options" none "$root$place"
done <"$base/hierarchies"

echo "$pid" >"$base/pid.part"
mv "$base/pid.part" "$base/pid"
cd "$root"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=sexton-yard \
    chroot . "$SYSTEMD" --system --unit=yard.target --log-target=null --show-status=no \
    --default-standard-output=null
