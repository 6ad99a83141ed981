#!/usr/bin/env bash
# Runs in the guest: two devices on the two ends of a wire, which a memory node and a node use; then the wire
# is cut.
#
# usage: veth.sh SELKIE
set -euo pipefail
selkie=${1:?usage: veth.sh SELKIE}
ip link add va type veth peer name vb
for end in a b; do
  address=10.28.0.$([ $end = a ] && echo 1 || echo 2)
  ip addr add "$address/32" dev v$end
  ip link set v$end up
  echo 0 >/proc/sys/net/ipv4/conf/v$end/rp_filter
  echo 1 >/proc/sys/net/ipv4/conf/v$end/accept_local
done
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
echo 1 >/proc/sys/net/ipv4/conf/all/accept_local
ip neigh add 10.28.0.2 lladdr "$(cat /sys/class/net/vb/address)" dev va nud permanent
ip neigh add 10.28.0.1 lladdr "$(cat /sys/class/net/va/address)" dev vb nud permanent
# Both addresses are of this host: without these rules packets would never see the wire.
ip route add 10.28.0.2/32 dev va src 10.28.0.1 table 101
ip route add 10.28.0.1/32 dev vb src 10.28.0.2 table 102
ip rule add pref 10 iif lo from 10.28.0.1 to 10.28.0.2 lookup 101
ip rule add pref 11 iif lo from 10.28.0.2 to 10.28.0.1 lookup 102
ip rule add pref 100 lookup local
ip rule del pref 0
rdma link add rxea type rxe netdev va
rdma link add rxeb type rxe netdev vb
for _ in $(seq 50); do
  ibv_devinfo -v -d rxeb 2>/dev/null | grep -q 10.28.0.2 && break
  sleep 0.1
done
said=$(mktemp)
"$selkie" bench verbs --listen 10.28.0.1:7900 --rdma-device rxea >"$said" &
server=$!
for _ in $(seq 300); do
  grep -q connect "$said" && break
  sleep 0.1
done
served=$(awk '{ print $NF }' "$said")
before=$(cat /sys/class/net/va/statistics/rx_packets)
"$selkie" bench verbs --rounds 200 --connect "$served" --rdma-device rxeb
after=$(cat /sys/class/net/va/statistics/rx_packets)
[ $((after - before)) -gt 1000 ] || { echo "veth.sh: the wire carried $((after - before)) packets" >&2; exit 1; }
echo "veth.sh: $((after - before)) packets over the wire"
"$selkie" bench verbs --rounds 10000000 --connect "$served" --rdma-device rxeb >"$said" 2>&1 &
cut=$!
for _ in $(seq 300); do
  [ $(($(cat /sys/class/net/va/statistics/rx_packets) - after)) -gt 100 ] && break
  sleep 0.1
done
ip link set va down
code=0
timeout 60 tail --pid="$cut" -f /dev/null || { echo "veth.sh: a cut wire is never noticed" >&2; exit 1; }
wait "$cut" || code=$?
grep -q "is dead" "$said" && [ "$code" = 1 ] || { echo "veth.sh: exit code $code:" >&2; cat "$said" >&2; exit 1; }
echo "veth.sh: the wire is cut: $(cat "$said")"
kill "$server"
wait "$server" 2>/dev/null || :
# What follows finds the guest as it was.
rdma link delete rxea
rdma link delete rxeb
ip link delete va
ip rule add pref 0 lookup local
ip rule del pref 100
