/*
 * Random numbers that depend on a seed alone (splitmix64: Steele, Lea, Flood, OOPSLA 2014).
 */
#ifndef RAMP_SIM_RNG_H
#define RAMP_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct sim_rng {
	uint64_t state;
};

static inline uint64_t sim_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint64_t sim_random(struct sim_rng *rng)
{
	return sim_mix(rng->state += UINT64_C(0x9e3779b97f4a7c15));
}

/* Returns a number in [low, high]. */
static inline uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high)
{
	return low + sim_random(rng) % (high - low + 1);
}

/* Returns true in `per_mille` of 1,000 cases. */
static inline bool sim_chance(struct sim_rng *rng, uint32_t per_mille)
{
	return sim_random(rng) % 1000 < per_mille;
}

#endif
