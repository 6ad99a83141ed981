#!/usr/bin/env bash
# Runs the tests of the RDMA fabric in a guest that has a device of software (Soft-RoCE), on any host, with
# or without RDMA, KVM or rights. One boot for all of them. Behind the build `--only fabric` takes a minute,
# and all parts take six.
#
# usage: run.sh [--only WHAT]...   parts: library, fabric, bench, pool, veth, refusals; by default all
#
# Needs (Debian): qemu-system-x86 busybox-static ibverbs-providers ibverbs-utils rdma-core iproute2 kmod
# cpio xz-utils; and cmake libclang-dev for the build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --only) parts+=("${2:?--only needs a part}"); shift 2 ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(library fabric bench pool veth refusals)
for tool in qemu-system-x86_64 busybox rdma ibv_devinfo ip modprobe cpio xz; do
  command -v "$tool" >/dev/null || { echo "run.sh: $tool is missing; see the head of $0" >&2; exit 1; }
done

cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
image=$target/rdma-guest
# The executable of a test target.
test_binary() {
  cargo test --no-run --message-format=json "$@" 2>/dev/null |
    sed -n 's/.*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1/p' | tail -n1
}
job=$(mktemp)
trap 'rm -f "$job"' EXIT
cat "$here/guest.sh" >"$job"
echo "export SELKIE_RDMA=1 RUST_BACKTRACE=1; failed=0; cd /tmp" >>"$job"
selkie=
say() { echo "echo \"== $1 (\$(cut -d. -f1 /proc/uptime) s since boot)\"" >>"$job"; }
for part in "${parts[@]}"; do
  case $part in
    library)
      cargo test --no-run -q -p selkie-fabric --features verbs --lib
      binary=$(test_binary -p selkie-fabric --features verbs --lib)
      say "library"
      echo "$binary verbs:: --test-threads=2 || failed=1" >>"$job"
      ;;
    fabric)
      cargo test --no-run -q -p selkie-fabric --features verbs --test verbs
      binary=$(test_binary -p selkie-fabric --features verbs --test verbs)
      say "fabric"
      # One after the other: they share two emulated processors, and checks have time limits.
      echo "$binary --test-threads=1 || failed=1" >>"$job"
      ;;
    bench | pool | veth | refusals)
      [ -n "$selkie" ] || cargo build -q -p selkie-cli --features verbs
      selkie=$target/debug/selkie
      say "$part"
      case $part in
        bench) echo "$selkie bench verbs --rounds 500 || failed=1" >>"$job" ;;
        *) echo "timeout -k 5 500 $here/$part.sh $selkie || failed=1" >>"$job" ;;
      esac
      ;;
    *) echo "run.sh: no part is called $part" >&2; exit 2 ;;
  esac
done
say "done"
echo 'exit $failed' >>"$job"
"$here/image.sh" "$image"
"$here/boot.sh" "$image" "$job" 1200
