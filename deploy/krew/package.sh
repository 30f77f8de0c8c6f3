#!/bin/sh
# Makes what krew installs: kubectl-sexton.tar.gz and sexton.yaml, which names its hash. The same
# checkout gives the same bytes. usage: package.sh DIR [URL of the archive]
set -eu
[ $# -ge 1 ] || { echo 'usage: package.sh DIR [URL]' >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
source=$(cd "$here/../.." && pwd -P)
mkdir -p "$1"
out=$(cd "$1" && pwd -P)
url=${2:-https://example.invalid/kubectl-sexton.tar.gz}
case $url in *[!A-Za-z0-9._:/%?=-]*) echo "not a URL: $url" >&2; exit 2 ;; esac
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$source/src/sexton/__init__.py")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/kubectl-sexton" "$source/LICENSE" "$work/"
tar --create --directory="$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
  --mtime=@0 --format=ustar LICENSE kubectl-sexton | gzip --no-name >"$out/kubectl-sexton.tar.gz"
hash=$(sha256sum "$out/kubectl-sexton.tar.gz" | cut -d ' ' -f 1)
sed -e "s|@VERSION@|v$version|" -e "s|@URL@|$url|" -e "s|@SHA256@|$hash|" "$here/sexton.yaml.in" >"$out/sexton.yaml"
