// The daemon's clock: monotonic, so that a wall clock that steps moves no lease or deadline.
// May be used by: daemon. May use: nothing. Threads: any.
#ifndef CAIRN_CLOCK_H
#define CAIRN_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t cairn_clock_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); // cannot fail for this clock
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t cairn_clock_ms(void)
{
        return cairn_clock_ns() / 1000000u;
}

// Since 1970, and it may step: to be written down for people, in the audit and on holds; nothing
// is decided by it.
static inline uint64_t cairn_clock_wall_ms(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now); // cannot fail for this clock
        return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

#endif
