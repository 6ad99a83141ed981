# Sourced by the jobs that run in the guest: a network with an RDMA device, and limits.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
ulimit -l unlimited
ip link set lo up
ip link add dum0 type dummy
ip addr add 10.27.0.1/24 dev dum0
ip link set dum0 up
rdma link add rxe0 type rxe netdev dum0
# An address is in the device's table a moment after it is on the network device.
for _ in $(seq 50); do
  ibv_devinfo -v -d rxe0 2>/dev/null | grep -q '10.27.0.1' && break
  sleep 0.1
done
