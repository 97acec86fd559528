/*
 * A task like one that draws: every sixtieth of a second a few milliseconds of work.
 *
 *     frames SECONDS WORK_US
 *
 * Prints as JSON how late it woke for its frames, how long they took from the moment they were due
 * (both in microseconds), and how many were not ready when the next was due.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PERIOD 16666667LL

static long long now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void sleep_until(long long at)
{
	struct timespec time = { at / 1000000000, at % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
		;
}

static int by_size(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

static void tell(const char *name, long long *values, int count)
{
	long long sum = 0;

	qsort(values, count, sizeof(*values), by_size);
	for (int i = 0; i < count; i++)
		sum += values[i];
	printf("\"%s\": {\"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f}, ", name,
	       sum / 1e3 / count, values[count / 2] / 1e3, values[count * 9 / 10] / 1e3,
	       values[count * 99 / 100] / 1e3);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	long long work = (argc > 2 ? atoll(argv[2]) : 3000) * 1000;
	int count = (int)(seconds * 1e9 / PERIOD), missed = 0;
	long long *late = calloc(count, sizeof(*late)), *took = calloc(count, sizeof(*took));
	long long due = now(CLOCK_MONOTONIC) + PERIOD;

	if (count < 1 || !late || !took)
		return 2;
	for (int i = 0; i < count; i++) {
		long long until;

		sleep_until(due);
		late[i] = now(CLOCK_MONOTONIC) - due;
		until = now(CLOCK_THREAD_CPUTIME_ID) + work;
		while (now(CLOCK_THREAD_CPUTIME_ID) < until)
			;
		took[i] = now(CLOCK_MONOTONIC) - due;
		missed += took[i] > PERIOD;
		/* A frame that was missed is not made up for. */
		due += PERIOD * (1 + took[i] / PERIOD);
	}
	printf("{");
	tell("wakeup_us", late, count);
	tell("frame_us", took, count);
	printf("\"missed_percent\": %.1f}\n", 100.0 * missed / count);
	return 0;
}
