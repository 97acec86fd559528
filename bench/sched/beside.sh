#!/bin/sh
# Runs a command beside other work, which ends with it. A shell, because it starts at once also in an
# emulated guest.
#
#     beside.sh hogs N COMMAND…         N tasks that always want a CPU
#     beside.sh compile N COMMAND…      N compilers of $PROGRAM (C), over and over
#     beside.sh under SCHEDULER COMMAND…   a program that loads a scheduler into the kernel
set -u
what=$1 how=$2
shift 2
state=/sys/kernel/sched_ext/state

others() { # COUNT SHELL-COMMAND
    count=$1
    while [ "$count" -gt 0 ]; do
        setsid sh -c "$2" &
        groups="$groups -$!"
        count=$((count - 1))
    done
}

# The kill of some shells takes no groups.
groups=''
case $what in
hogs) others "$how" 'while :; do :; done' ;;
compile) others "$how" 'while cc -O2 -c "$PROGRAM" -o /dev/null; do :; done' ;;
under)
    others 1 "exec $how > /dev/null 2>&1"
    while [ "$(cat $state)" != enabled ]; do
        # shellcheck disable=SC2086 # process groups
        env kill -0 -- $groups 2> /dev/null || exit 125
        sleep 0.05
    done
    ;;
*) exit 125 ;;
esac
"$@"
code=$?
signal=KILL
[ "$what" != under ] || signal=TERM
# shellcheck disable=SC2086
env kill -$signal -- $groups
wait
[ "$what" != under ] || [ "$(cat $state)" = disabled ] || sleep 1
exit $code
