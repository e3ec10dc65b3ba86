#!/bin/sh
# A Slurm cluster of one node, this machine, in a folder of its own:
#
#   sh tests/engines/slurm_cluster.sh up DIR      start it; then `export SLURM_CONF=DIR/slurm.conf` and use it
#   sh tests/engines/slurm_cluster.sh down DIR    stop it
#
# Needs root. Where Slurm is missing it is installed by apt-get (Debian, Ubuntu). Exit code 77: it cannot be had here.
set -eu

mode=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
export SLURM_CONF="$dir/slurm.conf"

unavailable() { echo "no Slurm here: $1" >&2; exit 77; }

install_slurm() {
    command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null && return
    command -v apt-get >/dev/null || unavailable "slurmctld, slurmd or munged is missing, and so is apt-get"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge; } >"$dir/apt.log" 2>&1 ||
        unavailable "apt-get could not install slurm-wlm and munge; see $dir/apt.log"
}

write_config() {
    host=$(hostname -s)
    memory=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
    cpus=$(nproc)
    [ "$cpus" -ge 2 ] || cpus=2  # two elements at a time, whatever the machine
    mkdir -p "$dir/state" "$dir/spool"
    # No cgroups: containers seldom let one have them.
    cat >"$SLURM_CONF" <<CONF
ClusterName=single
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctld_port
SlurmdPort=$slurmd_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
KillWait=5
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
}

free_ports() {
    python3 -c 'import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(x.getsockname()[1] for x in s))'
}

up() {
    [ "$(id -u)" = 0 ] || unavailable "starting one needs root"
    install_slurm
    set -- $(free_ports)
    ctld_port=$1 slurmd_port=$2
    write_config
    head -c 1024 /dev/urandom >"$dir/munge.key"
    chmod 600 "$dir/munge.key"
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" 2>>"$dir/start.log"
    slurmctld -c
    slurmd
    for _ in $(seq 100); do
        sinfo --noheader --format=%t 2>/dev/null | grep -q '^idle$' && return
        sleep 0.2
    done
    down
    unavailable "the node did not come up; see the logs in $dir"
}

down() {
    for name in slurmd slurmctld munged; do
        pid=$(cat "$dir/$name.pid" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || continue
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    done
}

case $mode in
    up) up ;;
    down) down ;;
    *) echo "usage: $0 up|down DIR" >&2; exit 2 ;;
esac
