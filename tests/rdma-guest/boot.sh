#!/usr/bin/env bash
# Boots the guest, runs a job in it and exits with its code. The guest is emulated: it needs no KVM and no
# RDMA device. A guest that dies, or does not end within the time limit, is a failure.
#
# usage: boot.sh DIR JOB [SECONDS]
#   DIR      what image.sh made
#   JOB      a script for bash; it sees the host's file system, as it is now, and can write anywhere,
#            though nothing stays but /out0, which is the folder DIR/out
#   SECONDS  the time limit, by default 300
set -euo pipefail
dir=$(cd "${1:?usage: boot.sh DIR JOB [SECONDS]}" && pwd)
job=${2:?usage: boot.sh DIR JOB [SECONDS]}
limit=${3:-300}
out=$dir/out
rm -rf "$out"
mkdir -p "$out"
cp "$job" "$out/job"
# What is there if the guest never says more.
echo 125 >"$out/rc"
ended=0
timeout --kill-after=5 "$limit" qemu-system-x86_64 \
  -accel tcg,thread=multi -cpu max -M pc -smp 2 -m 3072 \
  -nodefaults -no-user-config -display none -serial stdio -no-reboot \
  -kernel "$dir/vmlinux" -initrd "$dir/initrd" \
  -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr tsc=reliable clocksource=tsc" \
  -fsdev local,id=r,path=/,security_model=none,readonly=on,multidevs=remap \
  -device virtio-9p-pci,fsdev=r,mount_tag=host0 \
  -fsdev "local,id=o,path=$out,security_model=none" \
  -device virtio-9p-pci,fsdev=o,mount_tag=out0 \
  </dev/null >"$out/console" 2>&1 || ended=$?
rc=$(cat "$out/rc")
cat "$out/log" 2>/dev/null || :
if [ "$rc" = 125 ]; then
  echo "boot.sh: the guest died (qemu: $ended; 124 is the time limit of $limit s); its console ends:" >&2
  tail -n 30 "$out/console" >&2
fi
exit "$rc"
