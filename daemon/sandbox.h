// What the daemon gives up once it runs: the file system beyond its own directories (Landlock) and
// system calls that it never needs (seccomp), where kernel and build have them. A hostile byte that
// took it over finds little to do.
// May be used by: daemon, tests. May use: libseccomp. Threads: as said.
#ifndef CAIRN_SANDBOX_H
#define CAIRN_SANDBOX_H

struct cairn_config;

enum cairn_sandbox_state {
        CAIRN_SANDBOX_ON,
        CAIRN_SANDBOX_OFF,     // the configuration says so, or a sanitizer needs the calls
        CAIRN_SANDBOX_MISSING, // kernel or build does not have it
};

// Files: data directories, the directories of both sockets, the configuration file; /etc, /proc,
// /sys and libraries to read. Before any thread starts; holds for all that start later.
enum cairn_sandbox_state cairn_sandbox_files(const struct cairn_config *config);
// System calls of every thread. After the start.
enum cairn_sandbox_state cairn_sandbox_calls(const struct cairn_config *config);

#endif
