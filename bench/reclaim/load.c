/* Loads for the benchmark of kilter reclaim, and the bare loop that it is compared with.
 *
 * load hold MIB [MAPPINGS]     memory that compresses to a third, a page like any other; "touch" reads it
 *                              all and tells seconds
 * load copy MIB FILE           the same with what a file holds, over and over
 * load probe MIB               the same, while another thread maps, touches and unmaps; "report" tells
 *                              microseconds: mmap or munmap p50 p99 max, first touch p50 p99 max
 * load adversary MIB SECONDS   touches everything without pause; tells the percentage of its time that
 *                              it lost to reading back
 * load crowd COUNT MIB         processes that sleep; their memory is shared, and resident in each
 * load bare PID CALL_KIB [THREADS]
 *                              MADV_PAGEOUT on all private anonymous memory, each thread on a part of each
 *                              mapping; tells wall and CPU seconds
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE_PAGE (2UL << 20)
#define SAMPLES (1 << 22)
#define MAX_THREADS 16

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(2);
	}
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static char *filled(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t state = 88172645463325252ULL;

	need(memory != MAP_FAILED, "mmap");
	/* Pages of 4 KiB: huge ones are another case. */
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += PAGE)
		for (size_t word = 0; word < PAGE / 3; word += 8) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			memcpy(memory + at + word, &state, 8);
		}
	return memory;
}

static void cut(char *memory, size_t bytes, size_t mappings)
{
	size_t stretch = bytes / mappings / PAGE * PAGE;

	for (size_t number = 0; number < mappings; number += 2)
		need(!mprotect(memory + number * stretch, stretch, PROT_READ), "mprotect");
}

static double touch(const char *memory, size_t bytes)
{
	double begun = now(CLOCK_MONOTONIC);
	volatile char sum = 0;

	for (size_t at = 0; at < bytes; at += PAGE)
		sum += memory[at];
	return now(CLOCK_MONOTONIC) - begun;
}

struct samples {
	float *us;
	atomic_size_t count;
};

static struct samples maps, faults;
static atomic_int stop;

static void note(struct samples *samples, double begun)
{
	size_t at = atomic_load(&samples->count);

	if (at < SAMPLES) {
		samples->us[at] = (now(CLOCK_MONOTONIC) - begun) * 1e6;
		atomic_store(&samples->count, at + 1);
	}
}

static void *prober(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		double begun = now(CLOCK_MONOTONIC);
		char *memory = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		note(&maps, begun);
		need(memory != MAP_FAILED, "mmap");
		for (int page = 0; page < 16; page++) {
			begun = now(CLOCK_MONOTONIC);
			memory[page * PAGE] = 1;
			note(&faults, begun);
		}
		begun = now(CLOCK_MONOTONIC);
		munmap(memory, 16 * PAGE);
		note(&maps, begun);
		usleep(200);
	}
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void report(struct samples *samples)
{
	size_t count = atomic_load(&samples->count);

	if (!count) {
		printf("0 0 0 ");
		return;
	}
	qsort(samples->us, count, sizeof(float), ascending);
	printf("%.1f %.1f %.1f ", samples->us[count / 2], samples->us[count * 99 / 100],
	       samples->us[count - 1]);
}

static int probe(size_t bytes)
{
	char line[64];
	pthread_t thread;

	filled(bytes);
	maps.us = calloc(SAMPLES, sizeof(float));
	faults.us = calloc(SAMPLES, sizeof(float));
	/* Not to be paged out with the rest: it would be measured. */
	need(maps.us && faults.us && !mlock(maps.us, SAMPLES / 8) && !mlock(faults.us, SAMPLES), "mlock");
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "begin", 5)) {
			atomic_store(&maps.count, 0);
			atomic_store(&faults.count, 0);
			atomic_store(&stop, 0);
			need(!pthread_create(&thread, NULL, prober, NULL), "thread");
			puts("begun");
		} else {
			atomic_store(&stop, 1);
			pthread_join(thread, NULL);
			report(&maps);
			report(&faults);
			puts("");
		}
		fflush(stdout);
	}
	return 0;
}

static long major_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_majflt;
}

/* Rounds with major faults cost more than the median round without: that is what is lost. */
static int adversary(size_t bytes, double seconds)
{
	enum { ROUNDS = 1 << 20 };
	char *memory = filled(bytes);
	float *clean = calloc(ROUNDS, sizeof(float));
	size_t count = 0, hit = 0;
	double begun, hits = 0;

	need(clean != NULL, "calloc");
	puts("ready");
	fflush(stdout);
	begun = now(CLOCK_MONOTONIC);
	while (now(CLOCK_MONOTONIC) - begun < seconds && count < ROUNDS) {
		long before = major_faults();
		double took = touch(memory, bytes);

		if (major_faults() > before) {
			hits += took;
			hit++;
		} else {
			clean[count++] = took;
		}
		usleep(5000);
	}
	qsort(clean, count, sizeof(float), ascending);
	printf("%.3f %zu\n", 100 * (hits - hit * (count ? clean[count / 2] : 0)) / seconds, hit);
	return 0;
}

static int crowd(int count, size_t bytes)
{
	int shared = memfd_create("crowd", 0);

	need(shared >= 0 && !ftruncate(shared, bytes), "memfd");
	for (int number = 0; number < count; number++) {
		pid_t pid = fork();

		need(pid >= 0, "fork");
		if (!pid) {
			char byte;

			need(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, shared, 0) !=
				     MAP_FAILED, "mmap");
			(void)!read(0, &byte, 1);
			_exit(0);
		}
	}
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}

struct part {
	int process;
	unsigned long start, end;
	size_t call;
};

static void *page_out(void *argument)
{
	const struct part *part = argument;

	for (unsigned long at = part->start; at < part->end; at += part->call) {
		size_t length = at + part->call < part->end ? part->call : part->end - at;
		struct iovec range = { (void *)at, length };

		syscall(SYS_process_madvise, part->process, &range, 1, MADV_PAGEOUT, 0);
	}
	return NULL;
}

static void page_out_mapping(struct part whole, size_t threads)
{
	struct part parts[MAX_THREADS];
	pthread_t started[MAX_THREADS];
	unsigned long share = ((whole.end - whole.start) / threads) & ~(HUGE_PAGE - 1);

	for (size_t i = 0; i < threads; i++) {
		parts[i] = whole;
		parts[i].start = whole.start + i * share;
		if (i + 1 < threads)
			parts[i].end = parts[i].start + share;
	}
	for (size_t i = 1; i < threads; i++)
		need(!pthread_create(&started[i], NULL, page_out, &parts[i]), "pthread_create");
	page_out(&parts[0]);
	for (size_t i = 1; i < threads; i++)
		pthread_join(started[i], NULL);
}

static int bare(int pid, size_t call, size_t threads)
{
	double begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	int process = syscall(SYS_pidfd_open, pid, 0);
	char path[64], line[4096];
	FILE *file;

	need(process >= 0, "pidfd_open");
	need(threads >= 1 && threads <= MAX_THREADS, "threads");
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	file = fopen(path, "r");
	need(file != NULL, path);
	while (fgets(line, sizeof(line), file)) {
		unsigned long start, end, inode;
		char rights[8];

		if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, rights, &inode) != 4 || inode ||
		    rights[3] != 'p' || strstr(line, "[v"))
			continue;
		page_out_mapping((struct part){ process, start, end, call }, threads);
	}
	fclose(file);
	printf("%.6f %.6f\n", now(CLOCK_MONOTONIC) - begun, now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	return 0;
}

static void copy(char *memory, size_t bytes, const char *name)
{
	FILE *file = fopen(name, "r");

	need(file != NULL, name);
	for (size_t at = 0, got; at < bytes; at += got) {
		got = fread(memory + at, 1, bytes - at, file);
		if (!got) {
			need(at > 0 && !ferror(file), name);
			rewind(file);
		}
	}
	fclose(file);
}

static int hold(size_t bytes, size_t mappings, const char *name)
{
	char line[64];
	char *memory = filled(bytes);

	if (mappings)
		cut(memory, bytes, mappings);
	if (name)
		copy(memory, bytes, name);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("%.6f\n", touch(memory, bytes));
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 2 ? argv[1] : "";
	size_t first = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	size_t second = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;

	if (!strcmp(kind, "hold"))
		return hold(first << 20, second, NULL);
	if (!strcmp(kind, "copy") && argc > 3)
		return hold(first << 20, 0, argv[3]);
	if (!strcmp(kind, "probe"))
		return probe(first << 20);
	if (!strcmp(kind, "adversary"))
		return adversary(first << 20, second);
	if (!strcmp(kind, "crowd"))
		return crowd(first, second << 20);
	if (!strcmp(kind, "bare"))
		return bare(first, second << 10, argc > 4 ? strtoul(argv[4], NULL, 10) : 1);
	fputs("usage: load hold|copy|probe|adversary|crowd|bare …\n", stderr);
	return 2;
}
