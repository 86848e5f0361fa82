// Memory nodes: which processors belong to them, and staying on them. Without any configuration
// nothing here is called. May be used by: daemon, tests. Threads: the first, before others.
#ifndef CAIRN_NUMA_H
#define CAIRN_NUMA_H

#include "daemon/cpu_list.h"

// The processors of `nodes` that this process may run on. CAIRN_EINVAL, and in ret_text (of
// CAIRN_TEXT_BYTES_MAX) why: no such node here, or none of its processors may be used.
int cairn_numa_processors(const struct cairn_cpu_list *nodes, struct cairn_cpu_list *ret_cpus,
                          char *ret_text);

// From now on the calling thread, and each that it starts, runs on `cpus` and is given memory of
// `nodes` alone (also what it is the first to touch in shared memory). CAIRN_EINVAL as above.
int cairn_numa_stay(const struct cairn_cpu_list *nodes, const struct cairn_cpu_list *cpus,
                    char *ret_text);

#endif
