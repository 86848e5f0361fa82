// cairnctl: its commands and what they share.
// May be used by: client/cli. May use: the public API.
#ifndef CAIRN_CLI_H
#define CAIRN_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "cairn/cairn.h"

// Exit codes, for scripts.
enum cairn_cli_exit {
        CAIRN_CLI_OK = 0,
        CAIRN_CLI_FAILED = 1, // the daemon answered, and refused
        CAIRN_CLI_USAGE = 2,
        CAIRN_CLI_NO_DAEMON = 3,
};

// Options that some commands take; the table in main.c says which, and what they mean.
enum cairn_cli_option {
        CAIRN_CLI_SPACE,
        CAIRN_CLI_TENANT,
        CAIRN_CLI_TIER,
        CAIRN_CLI_KEY,
        CAIRN_CLI_HELD,
        CAIRN_CLI_MAX,
        CAIRN_CLI_AFTER,
        CAIRN_CLI_SINCE,
        CAIRN_CLI_UNTIL,
        CAIRN_CLI_ACTION,
        CAIRN_CLI_REASON,
        CAIRN_CLI_NEWEST,
        CAIRN_CLI_VERIFY,
        CAIRN_CLI_NOTED,
        CAIRN_CLI_RAM,
        CAIRN_CLI_NVME,
        CAIRN_CLI_RAM_GUARANTEED,
        CAIRN_CLI_NVME_GUARANTEED,
        CAIRN_CLI_RESET,
        CAIRN_CLI_NOTE,
        CAIRN_CLI_OWNER,
        CAIRN_CLI_FOR,
        CAIRN_CLI_OPTIONS,
};

struct cairn_cli {
        struct cairn_client *client; // connected; NULL for commands that are local
        bool json;
        const char *socket_path;      // as given, or NULL
        double model_bytes_per_token; // doctor; 0: not given
        double prefill_rate;
        double target_mass;                     // plan; 0: not given
        uint64_t rate_bytes;                    // verify; 0: the daemon's
        bool offline;                           // verify
        const char *plot;                       // plan: a file to draw in, or NULL
        const char *options[CAIRN_CLI_OPTIONS]; // texts; "" for those without an argument; NULL
        int argc;                               // what follows the command and is no option
        char **argv;
};

// One row a command: the table is in main.c, the functions in one file a group.
struct cairn_cli_command {
        const char *name;
        const char *arguments; // as the usage shows them
        const char *summary;
        const char *example;
        int (*run)(struct cairn_cli *cli);
        bool local;      // needs no daemon
        bool long_lived; // an answer may take hours
};

int cairn_cli_ping(struct cairn_cli *cli);
int cairn_cli_stats(struct cairn_cli *cli);
int cairn_cli_spaces(struct cairn_cli *cli);
int cairn_cli_top(struct cairn_cli *cli);
int cairn_cli_doctor(struct cairn_cli *cli);
int cairn_cli_plan(struct cairn_cli *cli);
int cairn_cli_reload(struct cairn_cli *cli);
int cairn_cli_drain(struct cairn_cli *cli);
int cairn_cli_verify(struct cairn_cli *cli);
int cairn_cli_audit(struct cairn_cli *cli);
int cairn_cli_why(struct cairn_cli *cli);
int cairn_cli_blocks(struct cairn_cli *cli);
int cairn_cli_contexts(struct cairn_cli *cli);
int cairn_cli_leases(struct cairn_cli *cli);
int cairn_cli_config(struct cairn_cli *cli);
int cairn_cli_bench(struct cairn_cli *cli);
int cairn_cli_quota(struct cairn_cli *cli);
int cairn_cli_tenants(struct cairn_cli *cli);
int cairn_cli_hold(struct cairn_cli *cli);
int cairn_cli_pin(struct cairn_cli *cli);
int cairn_cli_unpin(struct cairn_cli *cli);
int cairn_cli_purge(struct cairn_cli *cli);

// Prints the client's error to stderr; returns the exit code that fits.
int cairn_cli_fail(const struct cairn_cli *cli, int status);

// Runs the cairnd that belongs to this program in its place. Returns only if there is none.
int cairn_cli_run_cairnd(char *const *arguments);

// ---- output ----

// A JSON string with its quotes.
void cairn_cli_json_text(FILE *to, const char *text);
// A number: whole numbers without a fraction; NaN and infinities as null.
void cairn_cli_json_number(FILE *to, double value);
// "3m 20s", "250 ms" in ret_text[16].
void cairn_cli_duration(double ms, char ret_text[16]);
// A whole number of at most `max`. CAIRN_CLI_USAGE, said on stderr as of --`option`.
int cairn_cli_parse_count(const char *option, const char *text, uint64_t max, uint64_t *ret_value);
// "500MiB", as bytes. CAIRN_CLI_USAGE: it is none.
int cairn_cli_parse_bytes(const char *text, uint64_t *ret_bytes);
// "12.3 MiB" in ret_text[16].
void cairn_cli_bytes(double bytes, char ret_text[16]);

#endif
