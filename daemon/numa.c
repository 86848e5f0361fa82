// Memory nodes, by what the kernel says in sysfs and by plain system calls.
#include "daemon/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/limits.h"
#include "proto/status.h"

#define REFUSE(text, ...) ((void)snprintf((text), CAIRN_TEXT_BYTES_MAX, __VA_ARGS__), CAIRN_EINVAL)

enum {
        LIST_BYTES_MAX = 8192,
        LONG_BITS = 8 * sizeof(long),
        MASK_LONGS = CAIRN_CPUS_MAX / LONG_BITS
};

// What the kernel has in a list file: "0-3,8-11". CAIRN_ENOENT: no such file.
static int read_list(const char *path, struct cairn_cpu_list *ret_list)
{
        char text[LIST_BYTES_MAX] = "";
        FILE *file = fopen(path, "re");

        if (!file)
                return CAIRN_ENOENT;
        if (!fgets(text, sizeof(text), file))
                text[0] = '\0'; // a node of memory alone has an empty list
        (void)fclose(file);     // was only read
        text[strcspn(text, "\n")] = '\0';
        return cairn_cpu_list_parse(text, ret_list);
}

int cairn_numa_processors(const struct cairn_cpu_list *nodes, struct cairn_cpu_list *ret_cpus,
                          char *ret_text)
{
        struct cairn_cpu_list cpus = {0};
        cpu_set_t allowed;

        if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
                return REFUSE(ret_text, "numa_nodes: this process's processors are unknown: %s",
                              strerror(errno));
        for (uint32_t i = 0; i < nodes->count; i++) {
                struct cairn_cpu_list list;
                char path[96];

                (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist",
                               nodes->cpus[i]);
                if (read_list(path, &list) != CAIRN_OK)
                        return REFUSE(ret_text,
                                      "numa_nodes: this machine has no memory node %u; `lscpu` "
                                      "lists those that it has",
                                      nodes->cpus[i]);
                for (uint32_t j = 0; j < list.count && cpus.count < CAIRN_CPUS_MAX; j++)
                        if (CPU_ISSET(list.cpus[j], &allowed))
                                cpus.cpus[cpus.count++] = list.cpus[j];
        }
        if (cpus.count == 0)
                return REFUSE(ret_text,
                              "numa_nodes: this process may run on no processor of these nodes; "
                              "name others, or widen CPUAffinity or the container's cpuset");
        *ret_cpus = cpus;
        return CAIRN_OK;
}

int cairn_numa_stay(const struct cairn_cpu_list *nodes, const struct cairn_cpu_list *cpus,
                    char *ret_text)
{
        unsigned long mask[MASK_LONGS] = {0};
        cpu_set_t set;

        CPU_ZERO(&set);
        for (uint32_t i = 0; i < cpus->count; i++)
                CPU_SET(cpus->cpus[i], &set);
        for (uint32_t i = 0; i < nodes->count; i++)
                mask[nodes->cpus[i] / LONG_BITS] |= 1ul << nodes->cpus[i] % LONG_BITS;
        if (sched_setaffinity(0, sizeof(set), &set) != 0)
                return REFUSE(ret_text,
                              "numa_nodes: the kernel refuses their processors: %s; name others",
                              strerror(errno));
        // The kernel counts one bit less than it is told.
        if (syscall(SYS_set_mempolicy, MPOL_BIND, mask, CAIRN_CPUS_MAX + 1ul) != 0)
                return REFUSE(ret_text,
                              "numa_nodes: the kernel refuses their memory: %s; name nodes with "
                              "memory that this process may use (Mems_allowed in "
                              "/proc/self/status), or allow set_mempolicy in the container's "
                              "seccomp profile",
                              strerror(errno));
        return CAIRN_OK;
}
