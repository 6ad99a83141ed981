#!/usr/bin/env bash
# Runs in the guest: a pool over RDMA, plain and 2+1, with memory nodes and two drivers as processes of
# their own; kills of both sides; SQL. Fails at the first thing that is not as it should be.
#
# usage: pool.sh SELKIE
set -euo pipefail
selkie=${1:?usage: pool.sh SELKIE}
work=$(mktemp -d)
cd "$work"
# A process that is left would hold the device.
trap 'kill -9 $(jobs -p) 2>/dev/null || :' EXIT
fail() {
  echo "pool.sh: $*" >&2
  tail -n 20 "$work"/*.log >&2 || :
  exit 1
}
# Waits until a file has a text; nothing here is awaited for a fixed time.
has() {
  for _ in $(seq 600); do
    grep -q "$2" "$1" 2>/dev/null && return
    sleep 0.2
  done
  fail "$1 never said: $2"
}
driver() { # NAME OPTIONS...
  local name=$1
  shift
  "$selkie" tpcc --pool tcp:127.0.0.1:7000,127.0.0.1:7001,127.0.0.1:7002 --threads 2 --cache-mb 32 --scale 100 "$@" \
    >"$name.log" 2>&1
}
consistent() { grep -q 'consistency: ok' "$1.log" || fail "$1: not consistent"; }

memory=()
make_pool() { # NAME CODING
  # Software cards on emulated processors are slow: a longer lease judges deaths, not speed.
  "$selkie" pool create "$1" --fabric verbs --memory-nodes 3 --coding "$2" --log-size 8M \
    --max-compute-nodes 6 --lease 6s --heartbeat 500ms --trust-network
  memory=()
  for node in 0 1 2; do
    "$selkie" memnode --pool "$1" --fabric verbs --memory 256M --listen "127.0.0.1:700$node" >"$1-$node.log" 2>&1 &
    memory+=($!)
  done
  for node in 0 1 2; do has "$1-$node.log" 'lends'; done
}
end_pool() {
  "$selkie" pool destroy "$1" --force
  wait "${memory[@]}" 2>/dev/null || :
}
two_drivers() { # SUFFIX OPTIONS...
  local suffix=$1
  shift
  driver "one$suffix" --homes 1-1 --duration 3 "$@" &
  local first=$!
  driver "two$suffix" --homes 2-2 --duration 3 "$@" || fail "two$suffix failed"
  wait "$first" || fail "one$suffix failed"
  consistent "one$suffix"
  consistent "two$suffix"
}

for coding in plain 2+1; do
  name=net${coding%%+*}
  make_pool "$name" "$coding"
  driver "load-$name" --load-only --warehouses 2 || fail "the load failed"
  two_drivers "-$name"
  echo "pool.sh: $coding: two drivers, consistency ok ($(cut -d. -f1 /proc/uptime) s)"
  # A driver that is killed in the middle of its work: the next one recovers its pages.
  driver "killed-$name" --duration 60 &
  has "killed-$name.log" 'run: 0 %'
  sleep 1
  # The function runs in a shell of its own, whose child the driver is.
  kill -9 "$(pgrep -P $!)"
  wait $! 2>/dev/null || :
  driver "after-$name" --duration 2 || fail "no driver after a kill"
  consistent "after-$name"
  echo "pool.sh: $coding: a killed driver, consistency ok ($(cut -d. -f1 /proc/uptime) s)"
  if [ "$coding" = 2+1 ]; then
    driver "during-$name" --duration 8 &
    during=$!
    has "during-$name.log" 'run: 0 %'
    kill -9 "${memory[2]}"
    wait "$during" || fail "no driver outlives a memory node"
    consistent "during-$name"
    echo "pool.sh: $coding: a killed memory node, consistency ok ($(cut -d. -f1 /proc/uptime) s)"
  fi
  end_pool "$name"
done

make_pool sql plain
"$selkie" sql --pool tcp:127.0.0.1:7000 -c "create table t (id integer primary key, v text)" \
  -c "insert into t select i, 'row ' || i from generate_series(1, 200) i" >sql.log 2>&1 || fail "sql failed"
"$selkie" sql --pool tcp:127.0.0.1:7000 --format csv -c "select count(*), max(id) from t" >count.log 2>&1 || fail "sql failed"
grep -q '^200,200' count.log || fail "other rows than were inserted"
end_pool sql
echo "pool.sh: sql ($(cut -d. -f1 /proc/uptime) s)"
