// doctor: kernel, limits, memory, processor.
#include <errno.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "client/cli/doctor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SET(field, ...) ((void)snprintf((field), sizeof(field), __VA_ARGS__))

enum {
        MEMLOCK_BYTES_LEAST = 64 << 20,
        DESCRIPTORS_LEAST = 4096
};

void cairn_cli_check_kernel(struct cairn_cli_finding *ret_finding)
{
        struct utsname names;
        unsigned major = 0;
        unsigned minor = 0;

        ret_finding->what = "kernel";
        (void)uname(&names); // cannot fail with a good pointer
        (void)sscanf(names.release, "%u.%u", &major, &minor);
        SET(ret_finding->found, "Linux %s", names.release);
        if (major < 5 || (major == 5 && minor < 10)) {
                ret_finding->verdict = CAIRN_CLI_SLOWER;
                SET(ret_finding->advice, "5.10 or later has all that cairnd uses of io_uring");
        }
}

void cairn_cli_check_uring(struct cairn_cli_finding *ret_finding)
{
        struct io_uring_params params = {0};
        long fd = syscall(__NR_io_uring_setup, 4, &params);

        ret_finding->what = "io_uring";
        if (fd >= 0) {
                SET(ret_finding->found, "available to this process");
                (void)close((int)fd); // nothing was submitted
                return;
        }
        ret_finding->verdict = CAIRN_CLI_SLOWER;
        SET(ret_finding->found, "refused: %s; pread and pwrite serve instead", strerror(errno));
        SET(ret_finding->advice, "%s",
            errno == ENOSYS ? "use a kernel that has it"
                            : "set kernel.io_uring_disabled = 0, or allow io_uring_setup, _enter "
                              "and _register in the container's seccomp profile");
}

void cairn_cli_check_memlock(struct cairn_cli_finding *ret_finding)
{
        struct rlimit limit;

        ret_finding->what = "memlock";
        (void)getrlimit(RLIMIT_MEMLOCK, &limit); // cannot fail for this one
        if (limit.rlim_max == RLIM_INFINITY) {
                SET(ret_finding->found, "unlimited");
                return;
        }
        SET(ret_finding->found, "%llu KiB", (unsigned long long)(limit.rlim_max >> 10));
        if (limit.rlim_max < MEMLOCK_BYTES_LEAST) {
                ret_finding->verdict = CAIRN_CLI_SLOWER;
                SET(ret_finding->advice,
                    "LimitMEMLOCK=infinity in the unit, or memlock in /etc/security/limits.conf");
        }
}

void cairn_cli_check_descriptors(struct cairn_cli_finding *ret_finding)
{
        struct rlimit limit;

        ret_finding->what = "descriptors";
        (void)getrlimit(RLIMIT_NOFILE, &limit); // as above
        SET(ret_finding->found, "%llu", (unsigned long long)limit.rlim_max);
        if (limit.rlim_max < DESCRIPTORS_LEAST) {
                ret_finding->verdict = CAIRN_CLI_SLOWER;
                SET(ret_finding->advice,
                    "LimitNOFILE=65536: one a connection, an arena and a slab");
        }
}

void cairn_cli_check_huge_pages(struct cairn_cli_finding *ret_finding)
{
        FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
        char line[80] = "";

        ret_finding->what = "huge pages";
        if (file) {
                if (!fgets(line, sizeof(line), file))
                        line[0] = '\0';
                (void)fclose(file); // was only read
        }
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0')
                SET(ret_finding->found, "this kernel has no transparent huge pages");
        else
                SET(ret_finding->found, "transparent: %s", line);
        if (line[0] == '\0' || strstr(line, "[never]")) {
                ret_finding->verdict = CAIRN_CLI_SLOWER;
                SET(ret_finding->advice,
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
        }
}

#if defined(__x86_64__)
static bool has_tiles(void)
{
        unsigned a, b, c, d;

        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3; // AMX-TILE and -INT8
}
#endif

void cairn_cli_check_processor(struct cairn_cli_finding *ret_finding)
{
        long cores = sysconf(_SC_NPROCESSORS_ONLN);

        ret_finding->what = "processor";
#if defined(__x86_64__)
        bool avx2 = __builtin_cpu_supports("avx2");
        bool avx512 = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");

        SET(ret_finding->found, "%ld cores, %s", cores,
            avx512 && has_tiles() ? "AVX-512 with VNNI, AMX"
            : avx512              ? "AVX-512 with VNNI"
            : avx2                ? "AVX2"
                                  : "neither AVX2 nor AVX-512");
        if (!avx2) {
                ret_finding->verdict = CAIRN_CLI_SLOWER;
                SET(ret_finding->advice, "retrieval will be slow; a virtual machine may hide it: "
                                         "give it the host's CPU model");
        }
#else
        SET(ret_finding->found, "%ld cores", cores);
#endif
}
