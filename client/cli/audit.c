// cairnctl audit: what was removed, refused or changed, and why; and whether that log is whole.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/record.h"

enum {
        SHOWN_DEFAULT = 1000,
        PAGE_MAX = 1024
};

struct listing {
        bool json;
        uint64_t shown;
};

// "90s", "15m", "1h", "7d" before now, or "@SECONDS" since 1970.
static int parse_time(const char *option, const char *text, uint64_t *ret_ms)
{
        static const struct {
                char unit;
                double seconds;
        } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
        bool absolute = text[0] == '@';
        const char *digits = text + absolute;
        double now = (double)time(NULL);
        char *end;
        double value = strtod(digits, &end);

        for (size_t i = 0; end != digits && i < sizeof(units) / sizeof(units[0]); i++) {
                if (!absolute && end[0] == units[i].unit && end[1] == '\0' && value >= 0 &&
                    value < 1e9) {
                        value = now - value * units[i].seconds;
                        *ret_ms = value > 0 ? (uint64_t)(value * 1000) : 0;
                        return CAIRN_CLI_OK;
                }
        }
        if (absolute && end != digits && *end == '\0' && value >= 0 && value < 1e12) {
                *ret_ms = (uint64_t)(value * 1000);
                return CAIRN_CLI_OK;
        }
        fprintf(stderr,
                "cairnctl: --%s %s: a time before now like 90s, 15m, 1h or 7d, or @SECONDS since "
                "1970, please\n",
                option, text);
        return CAIRN_CLI_USAGE;
}

static int parse(const struct cairn_cli *cli, struct cairn_audit_query *query,
                 struct cairn_key *key, uint64_t *ret_left)
{
        const char *const *options = cli->options;
        uint64_t space = 0;
        int code = CAIRN_CLI_OK;

        *ret_left = SHOWN_DEFAULT;
        query->tenant = options[CAIRN_CLI_TENANT];
        query->action = options[CAIRN_CLI_ACTION];
        query->reason = options[CAIRN_CLI_REASON];
        query->newest_first = options[CAIRN_CLI_NEWEST] != NULL;
        if (options[CAIRN_CLI_SINCE])
                code = parse_time("since", options[CAIRN_CLI_SINCE], &query->since_ms);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_UNTIL])
                code = parse_time("until", options[CAIRN_CLI_UNTIL], &query->until_ms);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_MAX])
                code =
                    cairn_cli_parse_count("max", options[CAIRN_CLI_MAX], UINT64_MAX / 2, ret_left);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_AFTER])
                code = cairn_cli_parse_count("after", options[CAIRN_CLI_AFTER], UINT64_MAX / 2,
                                             &query->cursor);
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_SPACE])
                code = cairn_cli_parse_count("space", options[CAIRN_CLI_SPACE], UINT32_MAX, &space);
        query->space = (uint32_t)space;
        if (code == CAIRN_CLI_OK && options[CAIRN_CLI_KEY]) {
                query->key = key;
                if (cairn_key_from_text(options[CAIRN_CLI_KEY], key) != CAIRN_OK) {
                        fputs("cairnctl audit: --key: all 64 hex digits, please\n", stderr);
                        code = CAIRN_CLI_USAGE;
                }
        }
        return code;
}

static void on_entry(void *arg, const struct cairn_audit_entry *entry)
{
        struct listing *listing = arg;

        if (listing->json) {
                fputs(listing->shown ? ", " : "", stdout);
                cairn_cli_record_json(entry);
        } else {
                if (listing->shown == 0)
                        puts("  number time                    action  reason     tenant       "
                             "space      bytes from to   key");
                cairn_cli_record_row(entry);
        }
        listing->shown++;
}

static int list(struct cairn_cli *cli)
{
        struct listing listing = {.json = cli->json};
        struct cairn_audit_query query = {0};
        struct cairn_key key;
        uint64_t left;
        bool more = true;
        int code = parse(cli, &query, &key, &left);

        if (code != CAIRN_CLI_OK)
                return code;
        if (cli->json)
                fputs("{\"records\": [", stdout);
        while (more && left > listing.shown) {
                int status;

                query.max =
                    left - listing.shown > PAGE_MAX ? PAGE_MAX : (uint32_t)(left - listing.shown);
                status = cairn_read_audit(cli->client, NULL, &query, on_entry, &listing,
                                          &query.cursor, &more);
                if (status != CAIRN_OK) {
                        if (cli->json)
                                puts("], \"error\": true}");
                        return cairn_cli_fail(cli, status);
                }
        }
        if (cli->json && more)
                printf("], \"after\": %llu}\n", (unsigned long long)query.cursor);
        else if (cli->json)
                puts("], \"after\": null}");
        else if (more)
                fprintf(stderr, "there may be more: --after %llu\n",
                        (unsigned long long)query.cursor);
        else if (listing.shown == 0)
                puts("no records");
        return CAIRN_CLI_OK;
}

// ---- checking ----

// "COUNT:DIGEST", as a check prints it.
static int parse_mark(const char *text, struct cairn_audit_mark *ret_mark)
{
        char *end;

        ret_mark->count = strtoull(text, &end, 10);
        if (text[0] >= '0' && text[0] <= '9' && *end == ':' && ret_mark->count > 0 &&
            cairn_key_from_text(end + 1, &ret_mark->digest) == CAIRN_OK)
                return CAIRN_CLI_OK;
        fprintf(stderr,
                "cairnctl: --noted %s: COUNT:DIGEST, please, as an earlier --verify printed it\n",
                text);
        return CAIRN_CLI_USAGE;
}

static void on_problem(void *arg, const char *text)
{
        struct listing *listing = arg;

        if (listing->json) {
                fputs(listing->shown ? ", " : "", stdout);
                cairn_cli_json_text(stdout, text);
        } else {
                printf("record %s\n", text);
        }
        listing->shown++;
}

static void print_state(const struct cairn_cli *cli, const struct cairn_audit_state *state)
{
        char digest[65];

        cairn_key_to_text(&state->end.digest, digest);
        if (cli->json) {
                printf("], \"records\": %llu, \"first\": %llu, \"bad\": %llu, \"lost\": %llu, "
                       "\"continued\": %llu, \"end\": \"%llu:%s\"}\n",
                       (unsigned long long)state->records, (unsigned long long)state->first,
                       (unsigned long long)state->bad, (unsigned long long)state->lost,
                       (unsigned long long)state->continued, (unsigned long long)state->end.count,
                       digest);
                return;
        }
        printf("%llu records from number %llu on: %llu bad places\n",
               (unsigned long long)state->records, (unsigned long long)state->first,
               (unsigned long long)state->bad);
        if (state->lost > 0)
                printf("%llu records could not be kept, by the log's own word\n",
                       (unsigned long long)state->lost);
        if (state->continued > 0)
                printf("%llu times it went on without its catalog: the newest records of then are "
                       "lost\n",
                       (unsigned long long)state->continued);
        printf("its end, to be noted elsewhere (--noted): %llu:%s\n",
               (unsigned long long)state->end.count, digest);
}

static int verify(struct cairn_cli *cli)
{
        const char *noted = cli->options[CAIRN_CLI_NOTED];
        struct listing listing = {.json = cli->json};
        struct cairn_audit_mark mark;
        struct cairn_audit_state state;
        int status;

        if (noted && parse_mark(noted, &mark) != CAIRN_CLI_OK)
                return CAIRN_CLI_USAGE;
        if (cli->json)
                fputs("{\"problems\": [", stdout);
        status = cairn_check_audit(cli->client, NULL, noted ? &mark : NULL, on_problem, &listing,
                                   &state);
        if (status != CAIRN_OK) {
                if (cli->json)
                        puts("], \"error\": true}");
                return cairn_cli_fail(cli, status);
        }
        print_state(cli, &state);
        return state.bad > 0 ? CAIRN_CLI_FAILED : CAIRN_CLI_OK;
}

static int verify_offline(struct cairn_cli *cli)
{
        char name[] = "cairnd";
        char flag[] = "--audit-offline";
        char json[] = "--json";
        char mark[] = "--noted";
        const char *noted = cli->options[CAIRN_CLI_NOTED];
        char *arguments[7] = {name, flag, cli->argv[0]};
        size_t count = 3;

        if (cli->json)
                arguments[count++] = json;
        if (noted) {
                arguments[count++] = mark;
                arguments[count++] = (char *)noted;
        }
        return cairn_cli_run_cairnd(arguments);
}

int cairn_cli_audit(struct cairn_cli *cli)
{
        bool check = cli->options[CAIRN_CLI_VERIFY] != NULL;

        if (cli->offline && check && cli->argc == 1)
                return verify_offline(cli);
        if (cli->offline || cli->argc > 0) {
                fputs("cairnctl audit: a directory goes with --verify --offline, and only with "
                      "them\n",
                      stderr);
                return CAIRN_CLI_USAGE;
        }
        if (!check && cli->options[CAIRN_CLI_NOTED]) {
                fputs("cairnctl audit: --noted goes with --verify\n", stderr);
                return CAIRN_CLI_USAGE;
        }
        return check ? verify(cli) : list(cli);
}
