/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arithmetic of Highest Response Ratio Next, and nothing else.
 *
 * Compiled twice: into the BPF scheduler, and into the host's tests. It includes no header, calls
 * nothing and reads no clock, so both get the same function of the same numbers.
 *
 * A task's response ratio is R = age * (140 - prio) / (sum + 1): age is the time since the task's
 * start (or since its last reset), sleeping and running included, and sum is the CPU time that it
 * has had since then, both in nanoseconds.
 */
#ifndef KILTER_HRRN_H
#define KILTER_HRRN_H

typedef unsigned long long hrrn_u64;
typedef long long hrrn_s64;

#define HRRN_INLINE static inline __attribute__((always_inline, unused))

/* R as a fraction: it is compared, and divided only where the seed's rule asks for it. */
struct hrrn_ratio {
	hrrn_u64 claim;	 /* age * weight */
	hrrn_u64 served; /* sum + 1 */
};

/* 40 for the highest nice priority (100, nice -20) to 1 for the lowest (139, nice 19). Priorities
 * outside that range occur while a real-time task's priority is inherited. */
HRRN_INLINE hrrn_u64 hrrn_weight(int prio)
{
	if (prio < 100)
		prio = 100;
	if (prio > 139)
		prio = 139;
	return (hrrn_u64)(140 - prio);
}

/* Nanoseconds since the start; 1 where the start lies in the future. */
HRRN_INLINE hrrn_u64 hrrn_age(hrrn_u64 now, hrrn_u64 start)
{
	hrrn_s64 age = (hrrn_s64)(now - start);

	return age > 0 ? (hrrn_u64)age : 1;
}

HRRN_INLINE struct hrrn_ratio hrrn_ratio(hrrn_u64 now, hrrn_u64 start, hrrn_u64 sum,
					 hrrn_u64 weight)
{
	struct hrrn_ratio ratio = {
		.claim = hrrn_age(now, start) * weight,
		.served = sum + 1,
	};

	return ratio;
}

/* When a task's claim begins: now, or later (or earlier) by the latency. */
HRRN_INLINE hrrn_u64 hrrn_start(hrrn_u64 now, hrrn_s64 latency_ns)
{
	return now + (hrrn_u64)latency_ns;
}

/* Whether start and sum are to be reset. `life` is when they were last set, which a latency does
 * not move: a task with a claim from the past is as young as any other. */
HRRN_INLINE int hrrn_life_over(hrrn_u64 now, hrrn_u64 life, hrrn_u64 max_lifetime_ns)
{
	hrrn_s64 age = (hrrn_s64)(now - life);

	return age > 0 && (hrrn_u64)age >= max_lifetime_ns;
}

/* The seed's rule: quotients, and where they are equal, remainders. Of two remainders of different
 * divisors the greater may well belong to the smaller fraction. */
HRRN_INLINE int hrrn_higher_seed(struct hrrn_ratio a, struct hrrn_ratio b)
{
	hrrn_s64 more = (hrrn_s64)(a.claim / a.served - b.claim / b.served);

	if (more == 0)
		more = (hrrn_s64)(a.claim % a.served - b.claim % b.served);
	return more > 0;
}

struct hrrn_u128 {
	hrrn_u64 high;
	hrrn_u64 low;
};

/* 64 by 64 to 128 bits in halves: BPF has no wider multiplication. */
HRRN_INLINE struct hrrn_u128 hrrn_product(hrrn_u64 a, hrrn_u64 b)
{
	hrrn_u64 a1 = a >> 32, a0 = a & 0xffffffffULL;
	hrrn_u64 b1 = b >> 32, b0 = b & 0xffffffffULL;
	hrrn_u64 low = a0 * b0;
	hrrn_u64 middle = a1 * b0 + (low >> 32); /* at most 2^64 - 2^32 */
	hrrn_u64 other = a0 * b1 + (middle & 0xffffffffULL);
	struct hrrn_u128 product = {
		.high = a1 * b1 + (middle >> 32) + (other >> 32),
		.low = (other << 32) | (low & 0xffffffffULL),
	};

	return product;
}

HRRN_INLINE int hrrn_above(struct hrrn_u128 a, struct hrrn_u128 b)
{
	return a.high != b.high ? a.high > b.high : a.low > b.low;
}

/* The right order: a.claim / a.served > b.claim / b.served, without rounding or overflow. */
HRRN_INLINE int hrrn_higher_exact(struct hrrn_ratio a, struct hrrn_ratio b)
{
	return hrrn_above(hrrn_product(a.claim, b.served), hrrn_product(b.claim, a.served));
}

/* Whether a's quotient is above `percent` hundredths of b's. */
HRRN_INLINE int hrrn_higher_by(struct hrrn_ratio a, struct hrrn_ratio b, hrrn_u64 percent)
{
	return hrrn_above(hrrn_product(a.claim / a.served, 100),
			  hrrn_product(b.claim / b.served, percent));
}

#endif
