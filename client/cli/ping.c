// cairnctl ping.
#include <time.h>

#include "client/cli/cli.h"

static const char *state_name(uint32_t state)
{
        static const char *const names[] = {"starting", "ready", "draining"};

        return state < 3 ? names[state] : "unknown";
}

static double now_us(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); // cannot fail with this clock
        return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

int cairn_cli_ping(struct cairn_cli *cli)
{
        struct cairn_server_info server;
        struct cairn_ping_info info;
        double begin_us = now_us();
        int status = cairn_ping(cli->client, NULL, &info);
        double took_us = now_us() - begin_us;

        if (status != CAIRN_OK)
                return cairn_cli_fail(cli, status);
        cairn_client_server(cli->client, &server);
        if (!cli->json) {
                printf("%s answers: %s, isa %s, protocol %u, up %.1f s, %.0f us a round trip\n",
                       cairn_client_socket(cli->client), state_name(info.state), server.isa,
                       server.protocol, (double)info.uptime_ms / 1000, took_us);
                return CAIRN_CLI_OK;
        }
        printf("{\"socket\": ");
        cairn_cli_json_text(stdout, cairn_client_socket(cli->client));
        printf(", \"state\": \"%s\", \"server\": ", state_name(info.state));
        cairn_cli_json_text(stdout, server.server);
        printf(", \"isa\": ");
        cairn_cli_json_text(stdout, server.isa);
        // 64 bits do not fit into a JSON number: text.
        printf(", \"incarnation\": \"%016llx\", \"protocol\": %u, \"uptime_ms\": %llu, "
               "\"round_trip_us\": %.1f}\n",
               (unsigned long long)info.incarnation, server.protocol,
               (unsigned long long)info.uptime_ms, took_us);
        return CAIRN_CLI_OK;
}
