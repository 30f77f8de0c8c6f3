#!/bin/sh
# The last verdict of `sexton node-agent --npd FILE`, as a plug-in of node-problem-detector: one line,
# and exit 0 OK, 1 problem, 2 unknown. The same as `sexton npd FILE`, for an image without Python; it
# needs nothing but the shell, and starts no program.
LC_ALL=C
set -f
file=${1:-/run/sexton/npd}

unknown() {
  printf 'UNKNOWN: %s\n' "$1"
  exit 2
}

# A pipe would be waited for.
if [ ! -e "$file" ]; then
  unknown "$file: no verdict yet; does sexton node-agent run with --npd?"
fi
[ -f "$file" ] || unknown "$file: not a regular file"
{
  IFS=' ' read -r form status until boot more && IFS= read -r line && ! IFS= read -r rest && [ -z "$rest" ]
} 2>/dev/null <"$file" || unknown 'the result file is damaged'

# Only digits, so that they are numbers in the comparisons below; and printable ASCII.
case $form$more:$status:$until in
sexton-npd/1:[012]:*[!0-9]* | sexton-npd/1:[012]:) unknown 'the result file is damaged' ;;
sexton-npd/1:[012]:*) ;;
*) unknown 'the result file is damaged' ;;
esac
[ ${#until} -le 12 ] || unknown 'the result file is damaged'
case $line in
'' | *[!\ -~]*) unknown 'the result file is damaged' ;;
esac
[ ${#line} -le 400 ] || unknown 'the result file is damaged'

read -r boot_id </proc/sys/kernel/random/boot_id || unknown '/proc: cannot be read'
[ "$boot" = "$boot_id" ] || unknown 'the last verdict is of another boot'
read -r now _ </proc/uptime || unknown '/proc: cannot be read'
now=${now%%.*}
if [ "$now" -gt "$until" ] || [ "$until" -gt $((now + 3600)) ]; then
  unknown 'the last verdict is too old; is sexton node-agent running?'
fi
printf '%s\n' "$line"
exit "$status"
