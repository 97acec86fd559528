#!/system/bin/sh
# The settings of KTweak's script, as facts: the same files, values and choices, in words of our own.
# Its place in the tests: what kilter reads out of such a script, and what its profile must equal.
# TOLD names a file that is to hold the names of the files it set.

set_file()
{
	[ -f "$1" ] || return 1
	[ -z "$TOLD" ] || echo "$1" >> "$TOLD"
	chmod +w "$1" 2> /dev/null
	echo "$2" > "$1" 2> /dev/null || echo "could not set $1" >&2
}

# The first of the words that the file lists, into another file (or the same).
set_first()
{
	target=$1 listed=$(cat "$2" 2> /dev/null)
	shift 2
	for word in "$@"; do
		case $listed in
			*"$word"*) set_file "$target" "$word"; return ;;
		esac
	done
}

# Wait for the boot, as a service of Magisk would.
until [ "$(getprop sys.boot_completed)" = 1 ]; do sleep 1; done
sleep 90

kernel=/proc/sys/kernel vm=/proc/sys/vm ipv4=/proc/sys/net/ipv4
set_file $kernel/perf_cpu_time_max_percent 5
set_file $kernel/sched_autogroup_enabled 1
set_file $kernel/sched_child_runs_first 1
set_file $kernel/sched_tunable_scaling 0
set_file $kernel/sched_latency_ns 4000000
set_file $kernel/sched_min_granularity_ns $((4000000 / 8))
set_file $kernel/sched_wakeup_granularity_ns $((4000000 / 2))
set_file $kernel/sched_migration_cost_ns 5000000
set_file $kernel/sched_min_task_util_for_colocation 0
set_file $kernel/sched_nr_migrate 32
set_file $kernel/sched_schedstats 0
set_file $kernel/printk_devkmsg off

set_file $vm/dirty_background_ratio 10
set_file $vm/dirty_ratio 30
set_file $vm/dirty_expire_centisecs 3000
set_file $vm/dirty_writeback_centisecs 3000
set_file $vm/page-cluster 0
set_file $vm/stat_interval 10
set_file $vm/swappiness 100
set_file $vm/vfs_cache_pressure 100

set_file $ipv4/tcp_ecn 1
set_file $ipv4/tcp_fastopen 3
set_file $ipv4/tcp_syncookies 0

if [ -f /sys/kernel/debug/sched_features ]; then
	set_file /sys/kernel/debug/sched_features NEXT_BUDDY
	set_file /sys/kernel/debug/sched_features TTWU_QUEUE
fi

if [ -d /dev/stune ]; then
	set_file /dev/stune/top-app/schedtune.prefer_idle 0
	set_file /dev/stune/top-app/schedtune.boost 1
fi

for cpu in /sys/devices/system/cpu/cpu*/cpufreq; do
	set_first "$cpu/scaling_governor" "$cpu/scaling_available_governors" schedutil interactive
done
find /sys/devices/system/cpu/ -name schedutil -type d | while read -r governor; do
	set_file "$governor/up_rate_limit_us" 4000
	set_file "$governor/down_rate_limit_us" 16000
	set_file "$governor/rate_limit_us" 4000
	set_file "$governor/hispeed_load" 90
	set_file "$governor/hispeed_freq" 4294967295
done
find /sys/devices/system/cpu/ -name interactive -type d | while read -r governor; do
	set_file "$governor/timer_rate" 4000
	set_file "$governor/hispeed_freq" 4294967295
	set_file "$governor/min_sample_time" 4000
	set_file "$governor/go_hispeed_load" 90
done

for queue in /sys/block/*/queue; do
	set_first "$queue/scheduler" "$queue/scheduler" cfq noop kyber bfq mq-deadline none
	set_file "$queue/add_random" 0
	set_file "$queue/iostats" 0
	set_file "$queue/read_ahead_kb" 128
	set_file "$queue/nr_requests" 64
done
exit 0
