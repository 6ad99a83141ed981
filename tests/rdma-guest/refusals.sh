#!/usr/bin/env bash
# Runs in the guest, last: takes away what RDMA needs, piece by piece, and looks for the remedy in what the
# program says.
#
# usage: refusals.sh SELKIE
set -euo pipefail
selkie=${1:?usage: refusals.sh SELKIE}
says() { # WHAT TEXT COMMAND...
  local what=$1 text=$2 said code=0
  shift 2
  said=$("$@" 2>&1) || code=$?
  [ "$code" = 1 ] || { echo "refusals.sh: $what: exit code $code: $said" >&2; exit 1; }
  grep -qF -- "$text" <<<"$said" || { echo "refusals.sh: $what: $said" >&2; exit 1; }
  [ "$(wc -l <<<"$said")" = 1 ] || { echo "refusals.sh: $what: more than a line: $said" >&2; exit 1; }
  echo "refusals.sh: $what: $said"
}
bench=("$selkie" bench verbs --rounds 100)
says "another device" 'no RDMA device is called "mlx7"; there are: rxe0' "${bench[@]}" --rdma-device mlx7
says "another port" "has no port 3; allowed are 1 to 1" "${bench[@]}" --rdma-port 3
says "another address" "has no address of index 77" "${bench[@]}" --rdma-gid 77
# Below what the queues of a queue pair need; root is exempt, so another user runs it.
chmod 666 /dev/infiniband/uverbs*
says "locked memory" "ulimit -l unlimited" setpriv --reuid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
  bash -c "ulimit -l 64; exec \"\$@\"" bash "${bench[@]}"
ip link set dum0 down
says "port down" "ip link set DEVICE up" "${bench[@]}"
ip link set dum0 up
rdma link delete rxe0
says "no device" "rdma link add rxe0 type rxe netdev DEVICE" "${bench[@]}"
# The library is found by its name: over an empty folder there is none.
for library in /usr/lib/*/libibverbs.so.1*; do mount --bind /dev/null "$library"; done
says "no library" "apt install libibverbs1" "${bench[@]}"
