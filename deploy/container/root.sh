#!/bin/sh
# Makes the root file system of the image, in a directory that does not exist yet, from Debian's
# packages and the wheels of constraints.txt. Containerfile runs it, and so do the tests, without an
# image builder. Needs apt-get, pip for Debian's Python, and to be root. usage: root.sh DIR
set -eu
[ $# -eq 1 ] || { echo 'usage: root.sh DIR' >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
source=$(cd "$here/../.." && pwd -P)
PYTHON=${PYTHON:-python3.11}
# The interpreter, what its modules and the wheels are linked with, and certificates (for --ship).
PACKAGES='libc6 libgcc-s1 libstdc++6 zlib1g libssl3 libexpat1 libffi8 libbz2-1.0 liblzma5 libuuid1
  libcrypt1 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib ca-certificates'
mkdir "$1"
root=$(cd "$1" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As in Debian itself: the packages' /lib and /bin are in /usr.
for name in bin sbin lib lib64; do mkdir -p "$root/usr/$name" && ln -s "usr/$name" "$root/$name"; done
mkdir -p "$root/etc/ssl/certs" "$root/tmp" "$root/run" "$root/proc" "$root/sys" "$root/dev" \
  "$root/var/lib/sexton" "$root/var/lib/dpkg/status.d" "$root/usr/share/sexton"
ln -s /run "$root/var/run"
printf 'root:x:0:0:root:/:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
: >"$root/etc/os-release" # the node's is mounted here

(
  cd "$work"
  # shellcheck disable=SC2086
  apt-get -qq -o APT::Sandbox::User=root download $PACKAGES
  for file in *.deb; do
    dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink -C "$root"
    name=$(dpkg-deb -f "$file" Package)
    # Where scanners of images look for packages, if there is no dpkg.
    dpkg-deb -f "$file" >"$root/var/lib/dpkg/status.d/$name"
  done
)
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
library=$root/usr/lib/python3.11
# Nobody reads or links there. Licenses stay (usr/share/doc/*/copyright).
find "$root/usr/share/doc" ! -type d ! -name copyright -delete
rm -rf "$root/usr/share/ca-certificates" "$root/usr/share/man" "$root/usr/share/lintian" "$root/usr/share/bash-completion" \
  "$root/usr/share/locale" "$root"/usr/lib/*/gconv "$root/usr/share/binfmts" \
  "$library/lib2to3" "$library/pydoc_data" "$library/ensurepip" "$library/idlelib" "$library/tkinter" \
  "$library/turtledemo" "$root/usr/sbin/update-ca-certificates" "$root/etc/ca-certificates"
ln -sf python3.11 "$root/usr/bin/python3"

packages=$root/usr/lib/python3/dist-packages
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
  --constraint "$source/constraints.txt" --target "$packages" "$source[node]"
# pip leaves commands for another interpreter, and the man pages.
rm -rf "$packages/bin" "$packages/share"
# rich needs them for source code and Markdown, which no command shows.
rm -rf "$packages"/pygments "$packages"/[pP]ygments-* "$packages"/markdown_it* "$packages"/mdurl*
# For compiling against Arrow and numpy, their tests, and services that no command of a node uses:
# Flight, Substrait's and Gandiva's Python, Hadoop. The libraries that Arrow's core is linked with stay.
arrow=$packages/pyarrow
find "$packages" -depth -type d \( -name tests -o -name include \) -exec rm -rf {} +
find "$packages" -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.h' -o -name '*.a' \) -delete
rm -rf "$arrow"/libarrow_flight* "$arrow"/libarrow_python_flight* "$arrow"/_flight* \
  "$arrow"/_hdfs* "$arrow"/_orc* "$arrow"/src "$packages/numpy/f2py" "$packages/numpy/distutils"
# A wheel holds no links: it has the same library under three names, of which the loader uses one.
for file in "$arrow"/lib*.so.*.*.*; do
  [ -f "$file" ] || continue
  rm "$file" "${file%.so.*}.so"
done

printf '#!/usr/bin/python3.11\nimport sys\n\nfrom sexton.cli.main import command\n\nsys.exit(command())\n' >"$root/usr/bin/sexton"
chmod 755 "$root/usr/bin/sexton"
# Compiled now: the root file system is read-only, and the judge starts every few minutes.
# unchecked-hash: no times of files in them, so two builds are the same.
"$PYTHON" -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$library" "$packages"
PYTHONPATH="$source" "$PYTHON" -m deploy.container.sbom "$root" >"$work/sbom.json"
mv "$work/sbom.json" "$root/usr/share/sexton/sbom.cdx.json"
chmod 644 "$root/usr/share/sexton/sbom.cdx.json"
