/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The scheduler's arithmetic and layout, made callable for tests and documentation. */
#include "hrrn.h"
#include "shared.h"
#include <stddef.h>

typedef hrrn_u64 u64;

u64 kilter_hrrn_weight(int prio)
{
	return hrrn_weight(prio);
}

u64 kilter_hrrn_age(u64 now, u64 start)
{
	return hrrn_age(now, start);
}

u64 kilter_hrrn_start(u64 now, hrrn_s64 latency_ns)
{
	return hrrn_start(now, latency_ns);
}

int kilter_hrrn_life_over(u64 now, u64 life, u64 max_lifetime_ns)
{
	return hrrn_life_over(now, life, max_lifetime_ns);
}

void kilter_hrrn_ratio(u64 now, u64 start, u64 sum, u64 weight, struct hrrn_ratio *ratio)
{
	*ratio = hrrn_ratio(now, start, sum, weight);
}

int kilter_hrrn_higher_seed(const struct hrrn_ratio *a, const struct hrrn_ratio *b)
{
	return hrrn_higher_seed(*a, *b);
}

int kilter_hrrn_higher_exact(const struct hrrn_ratio *a, const struct hrrn_ratio *b)
{
	return hrrn_higher_exact(*a, *b);
}

int kilter_hrrn_higher_by(const struct hrrn_ratio *a, const struct hrrn_ratio *b, u64 percent)
{
	return hrrn_higher_by(*a, *b, percent);
}

/* Sizes and last offsets of what layout.rs mirrors. */
void kilter_hrrn_layout(u64 layout[8])
{
	layout[0] = sizeof(struct hrrn_params);
	layout[1] = offsetof(struct hrrn_params, slice_ns);
	layout[2] = sizeof(struct hrrn_config);
	layout[3] = offsetof(struct hrrn_config, fault);
	layout[4] = sizeof(struct hrrn_stats);
	layout[5] = offsetof(struct hrrn_stats, ratios);
	layout[6] = sizeof(struct hrrn_exit);
	layout[7] = offsetof(struct hrrn_exit, dump);
}
