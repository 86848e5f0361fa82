// Landlock and seccomp.
#include "daemon/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef CAIRN_HAVE_SECCOMP
#include <seccomp.h>
#endif

#include "daemon/address.h"
#include "daemon/config.h"
#include "proto/status.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true // the sanitizers' run-time makes calls of its own, not least at the end
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

// ---- files ----

#define READING (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITING                                                                  \
        (READING | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | \
         LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SOCK |            \
         LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR)
#define HANDLED                                                                \
        (WRITING | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | \
         LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |        \
         LANDLOCK_ACCESS_FS_MAKE_SYM)
#define ON_FILES (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)

// What is not there needs no rule: it cannot be reached then.
static void allow(int ruleset, const char *path, uint64_t rights)
{
        struct landlock_path_beneath_attr rule = {.allowed_access = rights};
        struct stat info;

        rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
        if (rule.parent_fd < 0)
                return;
        if (fstat(rule.parent_fd, &info) == 0 && !S_ISDIR(info.st_mode))
                rule.allowed_access &= ON_FILES;
        (void)syscall(__NR_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
        (void)close(rule.parent_fd); // was only named
}

// The directory of a path; made if it is to be written and not there, as the listener would.
static void allow_parent(int ruleset, const char *path, uint64_t rights)
{
        char directory[4096];
        char *slash;

        (void)snprintf(directory, sizeof(directory), "%s", path);
        slash = strrchr(directory, '/');
        if (!slash) {
                allow(ruleset, ".", rights);
                return;
        }
        *slash = '\0';
        if (directory[0] != '\0' && rights == WRITING)
                (void)mkdir(directory, 0755); // it may be there
        allow(ruleset, directory[0] ? directory : "/", rights);
}

static void allow_configured(int ruleset, const struct cairn_config *config)
{
        struct cairn_address address = {0};

        for (uint64_t i = 0; i < config->data_dirs_count; i++) {
                (void)mkdir(config->data_dirs[i], 0700); // it may be there
                allow(ruleset, config->data_dirs[i], WRITING);
        }
        allow_parent(ruleset, config->socket, WRITING);
        if (cairn_address_parse(config->metrics_address, &address) == CAIRN_OK && address.path)
                allow_parent(ruleset, address.path, WRITING);
        if (config->file) // its directory: an editor puts a new file in its place
                allow_parent(ruleset, config->file, READING);
}

enum cairn_sandbox_state cairn_sandbox_files(const struct cairn_config *config)
{
        static const char *const readable[] = {"/etc", "/proc",  "/sys",        "/usr",
                                               "/lib", "/lib64", "/dev/urandom"};
        struct landlock_ruleset_attr handled = {.handled_access_fs = HANDLED};
        bool restricted;
        int ruleset;

        if (!config->sandbox || SANITIZED)
                return CAIRN_SANDBOX_OFF;
        ruleset = (int)syscall(__NR_landlock_create_ruleset, &handled, sizeof(handled), 0);
        if (ruleset < 0)
                return CAIRN_SANDBOX_MISSING;
        for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++)
                allow(ruleset, readable[i], READING);
        allow(ruleset, "/dev/null", ON_FILES);
        allow_configured(ruleset, config);
        restricted = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                     syscall(__NR_landlock_restrict_self, ruleset, 0) == 0;
        (void)close(ruleset); // in force, or of no use
        return restricted ? CAIRN_SANDBOX_ON : CAIRN_SANDBOX_MISSING;
}

// ---- system calls ----

#ifdef CAIRN_HAVE_SECCOMP
static const char *const calls[] = {
    // memory
    "mmap",
    "munmap",
    "mprotect",
    "mremap",
    "madvise",
    "brk",
    "mlock",
    "mlock2",
    "munlock",
    "msync",
    "memfd_create",
    "mincore",
    "mbind",
    "set_mempolicy",
    "get_mempolicy",
    "membarrier",
    // files
    "openat",
    "open",
    "close",
    "close_range",
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "lseek",
    "fstat",
    "newfstatat",
    "statx",
    "stat",
    "lstat",
    "statfs",
    "fstatfs",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getcwd",
    "getdents64",
    "mkdir",
    "mkdirat",
    "unlink",
    "unlinkat",
    "rmdir",
    "rename",
    "renameat",
    "renameat2",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "fadvise64",
    "flock",
    "fcntl",
    "ioctl",
    "dup",
    "dup2",
    "dup3",
    "umask",
    "fchmod",
    "fchmodat",
    "fchown",
    "copy_file_range",
    "sendfile",
    "pipe",
    "pipe2",
    // I/O rings, events
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "eventfd2",
    "eventfd",
    "signalfd4",
    "timerfd_create",
    "timerfd_settime",
    "timerfd_gettime",
    "inotify_init1",
    "inotify_add_watch",
    "inotify_rm_watch",
    // sockets
    "socket",
    "socketpair",
    "bind",
    "listen",
    "accept",
    "accept4",
    "connect",
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "shutdown",
    // threads, time, signals, limits
    "clone",
    "futex",
    "futex_waitv",
    "set_robust_list",
    "get_robust_list",
    "rseq",
    "set_tid_address",
    "sched_yield",
    "sched_getaffinity",
    "sched_setaffinity",
    "getcpu",
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "nanosleep",
    "gettimeofday",
    "time",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigpending",
    "rt_sigtimedwait",
    "sigaltstack",
    "tgkill",
    "restart_syscall",
    "exit",
    "exit_group",
    "getrlimit",
    "setrlimit",
    "prlimit64",
    "getrusage",
    "sysinfo",
    "uname",
    "getrandom",
    "prctl",
    "getpid",
    "gettid",
    "getppid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getgroups",
    "times",
};

static bool load_filter(scmp_filter_ctx filter)
{
        // Threads, never processes: a clone without CLONE_THREAD starts one of the latter.
        enum {
                THREAD_FLAG = 0x10000
        };

        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
                int number = seccomp_syscall_resolve_name(calls[i]);

                if (number == __NR_SCMP_ERROR || strcmp(calls[i], "clone") == 0)
                        continue; // this machine or library knows no such call
                if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0) != 0)
                        return false;
        }
        // The flags of clone3 lie in memory, out of the filter's sight: ENOSYS makes glibc use
        // clone.
        return seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 &&
               seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                SCMP_A0(SCMP_CMP_MASKED_EQ, THREAD_FLAG, THREAD_FLAG)) == 0 &&
               seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) == 0 && seccomp_load(filter) == 0;
}

enum cairn_sandbox_state cairn_sandbox_calls(const struct cairn_config *config)
{
        scmp_filter_ctx filter;
        bool loaded;

        if (!config->sandbox || SANITIZED)
                return CAIRN_SANDBOX_OFF;
        filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        if (!filter)
                return CAIRN_SANDBOX_MISSING;
        loaded = load_filter(filter);
        seccomp_release(filter);
        return loaded ? CAIRN_SANDBOX_ON : CAIRN_SANDBOX_MISSING;
}
#else
enum cairn_sandbox_state cairn_sandbox_calls(const struct cairn_config *config)
{
        return config->sandbox ? CAIRN_SANDBOX_MISSING : CAIRN_SANDBOX_OFF;
}
#endif
