// cairnctl verify: the daemon checks all it stores; or cairnd checks a directory that nobody
// serves.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"

int cairn_cli_parse_bytes(const char *text, uint64_t *ret_bytes)
{
        static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
        char *end;
        double value = strtod(text, &end);

        if (end == text || !(value > 0))
                return CAIRN_CLI_USAGE;
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++, value *= 1024) {
                if (strcmp(end, units[i]) != 0)
                        continue;
                if (value < 1 || value >= 0x1p62)
                        return CAIRN_CLI_USAGE;
                *ret_bytes = (uint64_t)value;
                return CAIRN_CLI_OK;
        }
        return CAIRN_CLI_USAGE;
}

// The cairnd beside this program (also in ../sbin), else the one that is installed.
int cairn_cli_run_cairnd(char *const *arguments)
{
        static const char *const near[] = {"/cairnd", "/../sbin/cairnd"};
        char self[4096];
        ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);

        if (fflush(stdout) != 0)
                return CAIRN_CLI_FAILED;
        if (size > 0) {
                self[size] = '\0';
                *strrchr(self, '/') = '\0';
                for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
                        char path[sizeof(self) + 32];

                        (void)snprintf(path, sizeof(path), "%s%s", self, near[i]);
                        (void)execv(path, arguments); // not there: the next
                }
        }
        (void)execvp("cairnd", arguments);
        (void)execv("/usr/local/sbin/cairnd", arguments);
        (void)execv("/usr/sbin/cairnd", arguments);
        fprintf(stderr, "cairnctl: cannot run cairnd: %s; install it, or put it in $PATH\n",
                strerror(errno));
        return CAIRN_CLI_FAILED;
}

static int verify_offline(const struct cairn_cli *cli)
{
        char name[] = "cairnd";
        char flag[] = "--verify-offline";
        char json[] = "--json";
        char *arguments[] = {name, flag, cli->argv[0], cli->json ? json : NULL, NULL};

        return cairn_cli_run_cairnd(arguments);
}

int cairn_cli_verify(struct cairn_cli *cli)
{
        struct cairn_verify_info info;
        char text[16];
        int status;

        if (cli->offline && cli->argc == 1)
                return verify_offline(cli);
        if (cli->offline || cli->argc > 0) {
                fputs("cairnctl verify: a directory goes with --offline, and only with it\n",
                      stderr);
                return CAIRN_CLI_USAGE;
        }
        status = cairn_verify(cli->client, NULL, cli->rate_bytes, &info);
        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        cairn_cli_bytes((double)info.bytes, text);
        if (cli->json)
                printf("{\"blocks\": %llu, \"corrupt\": %llu, \"unread\": %llu, \"bytes\": %llu}\n",
                       (unsigned long long)info.blocks, (unsigned long long)info.corrupt,
                       (unsigned long long)info.unread, (unsigned long long)info.bytes);
        else
                printf("%llu blocks, %s checked: %llu corrupt, %llu not read\n",
                       (unsigned long long)info.blocks, text, (unsigned long long)info.corrupt,
                       (unsigned long long)info.unread);
        return info.corrupt + info.unread > 0 ? CAIRN_CLI_FAILED : CAIRN_CLI_OK;
}
