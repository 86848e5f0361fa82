// cairnctl: asks a running cairnd, for people and scripts.
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"

static const struct cairn_cli_command commands[] = {
    {"ping", "", "is the daemon there, and how fast does it answer", "cairnctl ping",
     cairn_cli_ping, false, false},
    {"stats", "[NAME]", "its counters and gauges; NAME: those that begin so",
     "cairnctl stats cairn_blocks --json", cairn_cli_stats, false, false},
    {"top", "[MS]", "tiers, rates and latencies, live; every MS milliseconds", "cairnctl top",
     cairn_cli_top, false, false},
    {"spaces", "", "the spaces that it stores, with blocks and bytes", "cairnctl spaces",
     cairn_cli_spaces, false, false},
    {"doctor", "[DIR]", "is this machine fit for cairnd, and what to change (DIR: for blocks)",
     "cairnctl doctor /srv/nvme0 --model-bytes-per-token 131072 --prefill-rate 4000",
     cairn_cli_doctor, true, false},
    {"plan", "FILE", "what budgets would hold of a stored prompt (FILE: by cairn.save_proxies)",
     "cairnctl plan prompt.proxies --target-mass 0.99 --plot plan.svg", cairn_cli_plan, false,
     false},
    {"reload", "", "the daemon reads its configuration again; says what changed", "cairnctl reload",
     cairn_cli_reload, false, false},
    {"drain", "[MS]", "the daemon writes all blocks back and stops, within MS milliseconds",
     "cairnctl drain 30000", cairn_cli_drain, false, false},
    {"verify", "[DIR]", "checks all that is stored (with --offline: DIR, which no daemon has)",
     "cairnctl verify --rate 500MiB", cairn_cli_verify, false, true},
    {"audit", "[DIR]", "what was removed, refused or changed, and why; --verify: is that log whole",
     "cairnctl audit --since 1h --tenant alice --reason quota --json", cairn_cli_audit, false,
     true},
    {"why", "KEY", "where a block is, or what became of it", "cairnctl why KEY --space 1",
     cairn_cli_why, false, false},
    {"blocks", "", "the blocks it stores, with tiers, tenants, holds",
     "cairnctl blocks --space 1 --tier ram --held", cairn_cli_blocks, false, false},
    {"contexts", "", "open contexts, and who has them", "cairnctl contexts --tenant 1000",
     cairn_cli_contexts, false, false},
    {"leases", "", "leases on blocks: who holds, how many, how long", "cairnctl leases --json",
     cairn_cli_leases, false, false},
    {"config", "[NAME]", "the running configuration and its sources; NAME: what begins so",
     "cairnctl config ram_bytes", cairn_cli_config, false, false},
    {"bench", "[MS]", "short puts, gets and lookups on the running daemon, MS ms each",
     "cairnctl bench 1000", cairn_cli_bench, false, false},
    {"tenants", "", "tenants: what they have, may have, and were refused",
     "cairnctl tenants --json", cairn_cli_tenants, false, false},
    {"quota", "[TENANT]", "what a tenant may take; with numbers, sets it (default: all others)",
     "cairnctl quota alice --ram 4GiB --nvme 100GiB --ram-guaranteed 1GiB", cairn_cli_quota, false,
     false},
    {"hold", "[list|set|lift] [NAME]", "legal holds: what is under one is not removed by anybody",
     "cairnctl hold set case-12 --space 1 --key KEY --note 'letter of 3 May'", cairn_cli_hold,
     false, false},
    {"pin", "KEY", "keeps a block in a local tier, until unpinned",
     "cairnctl pin KEY --space 1 --owner ops --for 1h", cairn_cli_pin, false, false},
    {"unpin", "KEY", "ends such a pin", "cairnctl unpin KEY --space 1 --owner ops", cairn_cli_unpin,
     false, false},
    {"purge", "KEY", "deletes a block and overwrites its bytes in every tier",
     "cairnctl purge KEY --space 1", cairn_cli_purge, false, true},
};

// Options of some commands alone.
static const struct {
        const char *name;
        bool argument;
        const char *commands; // a space before and after each
        const char *help;     // as the usage shows it
} options_of_commands[CAIRN_CLI_OPTIONS] = {
    [CAIRN_CLI_SPACE] = {"space", true, " blocks audit why hold pin unpin purge ",
                         "N        the space of that number"},
    [CAIRN_CLI_TENANT] = {"tenant", true, " blocks contexts leases audit hold ",
                          "UID     of that tenant"},
    [CAIRN_CLI_TIER] = {"tier", true, " blocks ", "TIER      with a copy there: ram or nvme"},
    [CAIRN_CLI_KEY] = {"key", true, " blocks audit hold ",
                       "HEX        whose key begins so (audit, hold: is it)"},
    [CAIRN_CLI_HELD] = {"held", false, " blocks ", "           that somebody holds"},
    [CAIRN_CLI_MAX] = {"max", true, " blocks contexts leases audit why ",
                       "N          so many at most (default 100; audit: 1000; why: 8)"},
    [CAIRN_CLI_AFTER] = {"after", true, " blocks contexts leases audit ",
                         "CURSOR   go on where another call stopped"},
    [CAIRN_CLI_SINCE] = {"since", true, " audit ",
                         "TIME     not before: 90s, 15m, 1h, 7d, @SECONDS"},
    [CAIRN_CLI_UNTIL] = {"until", true, " audit ", "TIME     before that"},
    [CAIRN_CLI_ACTION] =
        {"action", true, " audit ",
         "WORD    evict, demote, drop, delete, purge, refuse, quota, hold, retain, "
         "begin or lost"},
    [CAIRN_CLI_REASON] = {"reason", true, " audit ",
                          "WORD    capacity, quota, ttl, request, corrupt, retention, admission,\n"
                          "                 legal-hold, permission, pinned, started, device or "
                          "stopped"},
    [CAIRN_CLI_NEWEST] = {"newest", false, " audit ", "         the newest first"},
    [CAIRN_CLI_VERIFY] = {"verify", false, " audit ", "         check the chain of records"},
    [CAIRN_CLI_NOTED] = {"noted", true, " audit ",
                         "MARK     with --verify: what an earlier one printed as the log's end"},
    [CAIRN_CLI_RAM] = {"ram", true, " quota ", "BYTES      at most, like 4GiB; none: no limit"},
    [CAIRN_CLI_NVME] = {"nvme", true, " quota ", "BYTES     the same"},
    [CAIRN_CLI_RAM_GUARANTEED] = {"ram-guaranteed", true, " quota ",
                                  "BYTES  that nobody else takes"},
    [CAIRN_CLI_NVME_GUARANTEED] = {"nvme-guaranteed", true, " quota ", "BYTES  the same"},
    [CAIRN_CLI_RESET] = {"reset", false, " quota ", "          back to the configuration's"},
    [CAIRN_CLI_NOTE] = {"note", true, " hold ", "TEXT      why, for whoever lists it"},
    [CAIRN_CLI_OWNER] = {"owner", true, " pin unpin ", "NAME     whose pin it is"},
    [CAIRN_CLI_FOR] = {"for", true, " pin ", "TIME       for so long: 90s, 15m, 1h, 7d"},
};
enum {
        COMMANDS = sizeof(commands) / sizeof(commands[0]),
        TIMEOUT_MS = 5000,
        LONG_MS = 7 * 24 * 3600 * 1000,
        OPTION_FIRST = 256, // what getopt_long returns for the first of options_of_commands
};

static void usage(FILE *to)
{
        fputs("usage: cairnctl [--socket PATH] [--timeout MS] [--json] COMMAND [ARGUMENT]\n\n", to);
        for (int i = 0; i < COMMANDS; i++)
                fprintf(to, "  %-8s %-7s %s\n", commands[i].name, commands[i].arguments,
                        commands[i].summary);
        fputs(
            "\n"
            "  --socket PATH  cairnd's socket (default: $CAIRN_SOCKET,\n"
            "                 $XDG_RUNTIME_DIR/cairn/cairnd.sock, /run/cairn/cairnd.sock)\n"
            "  --timeout MS   how long to wait for an answer (default 5000; verify: a week)\n"
            "  --json         one JSON object on one line\n"
            "  --model-bytes-per-token N, --prefill-rate R  (doctor) does loading pay: bytes of\n"
            "                 K and V a token, and tokens a second that the model computes\n"
            "  --target-mass X, --plot FILE.svg  (plan) attention mass to hold (default 0.99),\n"
            "                 and a picture of the curve\n"
            "  --rate BYTES   (verify) a second, like 500MiB (default: the daemon's verify_rate)\n"
            "  --offline      (verify, audit --verify) check DIR[:DIR...] itself, reading alone, "
            "by cairnd's "
            "help\n",
            to);
        for (int i = 0; i < CAIRN_CLI_OPTIONS; i++)
                fprintf(to, "  --%s %s (%.*s)\n", options_of_commands[i].name,
                        options_of_commands[i].help,
                        (int)strlen(options_of_commands[i].commands) - 2,
                        options_of_commands[i].commands + 1);
        fputs("  --help         this; after a command: about that command\n"
              "  --version      the version\n"
              "\n"
              "exit codes: 0 fine, 1 the request failed, 2 wrong usage, 3 no daemon\n"
              "example:    cairnctl --json stats cairn_blocks\n",
              to);
}

static void command_usage(const struct cairn_cli_command *command)
{
        char wanted[32];

        printf("usage: cairnctl [--socket PATH] [--json] %s%s%s\n\n%s\n\nexample: %s\n",
               command->name, *command->arguments ? " " : "", command->arguments, command->summary,
               command->example);
        (void)snprintf(wanted, sizeof(wanted), " %s ", command->name); // names are short
        for (int i = 0; i < CAIRN_CLI_OPTIONS; i++)
                if (strstr(options_of_commands[i].commands, wanted))
                        printf("  --%s %s\n", options_of_commands[i].name,
                               options_of_commands[i].help);
}

// As many as the usage shows words.
static int arguments_max(const struct cairn_cli_command *command)
{
        int count = *command->arguments ? 1 : 0;

        for (const char *at = command->arguments; *at; at++)
                count += *at == ' ';
        return count;
}

static const struct cairn_cli_command *find(const char *name)
{
        for (int i = 0; i < COMMANDS; i++) {
                if (strcmp(commands[i].name, name) == 0)
                        return &commands[i];
        }
        return NULL;
}

struct options {
        struct cairn_client_options client;
        bool json;
        bool help;
        bool version;
        double model_bytes_per_token;
        double prefill_rate;
        double target_mass;
        const char *plot;
        uint64_t rate_bytes;
        bool offline;
        const char *of_commands[CAIRN_CLI_OPTIONS];
};

static int parse_positive(const char *name, const char *text, double *ret_value)
{
        char *end;

        *ret_value = strtod(text, &end);
        if (end == text || *end != '\0' || !(*ret_value > 0 && *ret_value < 1e15)) {
                fprintf(stderr, "cairnctl: --%s %s: a number above zero, please\n", name, text);
                return CAIRN_CLI_USAGE;
        }
        return CAIRN_CLI_OK;
}

static int parse_timeout(const char *text, uint32_t *ret_ms)
{
        unsigned long ms;
        char extra;

        if (text[0] < '0' || text[0] > '9' || sscanf(text, "%lu%c", &ms, &extra) != 1 || ms == 0 ||
            ms > 3600000) {
                fprintf(stderr,
                        "cairnctl: --timeout %s: a number of milliseconds, 1 to 3600000, please\n",
                        text);
                return CAIRN_CLI_USAGE;
        }
        *ret_ms = (uint32_t)ms;
        return CAIRN_CLI_OK;
}

// Takes one option; its argument is in optarg. Returns an exit code.
static int take(int option, struct options *ret_options)
{
        if (option >= OPTION_FIRST && option < OPTION_FIRST + CAIRN_CLI_OPTIONS) {
                ret_options->of_commands[option - OPTION_FIRST] = optarg ? optarg : "";
                return CAIRN_CLI_OK;
        }
        switch (option) {
        case 's': ret_options->client.socket_path = optarg; break;
        case 't': return parse_timeout(optarg, &ret_options->client.timeout_ms);
        case 'm':
                return parse_positive("model-bytes-per-token", optarg,
                                      &ret_options->model_bytes_per_token);
        case 'p': return parse_positive("prefill-rate", optarg, &ret_options->prefill_rate);
        case 'g': return parse_positive("target-mass", optarg, &ret_options->target_mass);
        case 'l': ret_options->plot = optarg; break;
        case 'r':
                if (cairn_cli_parse_bytes(optarg, &ret_options->rate_bytes) == CAIRN_CLI_OK)
                        break;
                fprintf(stderr, "cairnctl: --rate %s: bytes like 500MiB, please\n", optarg);
                return CAIRN_CLI_USAGE;
        case 'o': ret_options->offline = true; break;
        case 'j': ret_options->json = true; break;
        case 'h': ret_options->help = true; break;
        case 'v': ret_options->version = true; break;
        default: fputs("try: cairnctl --help\n", stderr); return CAIRN_CLI_USAGE;
        }
        return CAIRN_CLI_OK;
}

// Options may stand before and after the command. Returns an exit code.
static int parse(int argc, char **argv, struct options *ret_options)
{
        static const struct option common[] = {
            {"socket", required_argument, NULL, 's'},
            {"timeout", required_argument, NULL, 't'},
            {"json", no_argument, NULL, 'j'},
            {"help", no_argument, NULL, 'h'},
            {"version", no_argument, NULL, 'v'},
            {"model-bytes-per-token", required_argument, NULL, 'm'},
            {"prefill-rate", required_argument, NULL, 'p'},
            {"target-mass", required_argument, NULL, 'g'},
            {"plot", required_argument, NULL, 'l'},
            {"rate", required_argument, NULL, 'r'},
            {"offline", no_argument, NULL, 'o'},
        };
        enum {
                COMMON = sizeof(common) / sizeof(common[0])
        };
        struct option longs[COMMON + CAIRN_CLI_OPTIONS + 1] = {0};
        int option;

        memcpy(longs, common, sizeof(common));
        for (int i = 0; i < CAIRN_CLI_OPTIONS; i++)
                longs[COMMON + i] = (struct option){
                    options_of_commands[i].name,
                    options_of_commands[i].argument ? required_argument : no_argument, NULL,
                    OPTION_FIRST + i};
        while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
                if (take(option, ret_options) != CAIRN_CLI_OK)
                        return CAIRN_CLI_USAGE;
        return CAIRN_CLI_OK;
}

// Whether the command takes the options that were given.
static int check_options(const struct cairn_cli_command *command, const struct options *options)
{
        char wanted[32];

        (void)snprintf(wanted, sizeof(wanted), " %s ", command->name); // names are short
        for (int i = 0; i < CAIRN_CLI_OPTIONS; i++) {
                if (!options->of_commands[i] || strstr(options_of_commands[i].commands, wanted))
                        continue;
                fprintf(stderr, "cairnctl %s: it takes no --%s; try: cairnctl %s --help\n",
                        command->name, options_of_commands[i].name, command->name);
                return CAIRN_CLI_USAGE;
        }
        return CAIRN_CLI_OK;
}

static int exit_code_of(int status)
{
        return status == CAIRN_EDISCONNECTED ? CAIRN_CLI_NO_DAEMON
               : status == CAIRN_EINVAL      ? CAIRN_CLI_USAGE
                                             : CAIRN_CLI_FAILED;
}

static int run(const struct cairn_cli_command *command, const struct options *options, int argc,
               char **argv)
{
        struct cairn_cli cli = {.json = options->json,
                                .argc = argc,
                                .argv = argv,
                                .socket_path = options->client.socket_path,
                                .model_bytes_per_token = options->model_bytes_per_token,
                                .prefill_rate = options->prefill_rate,
                                .target_mass = options->target_mass,
                                .plot = options->plot,
                                .rate_bytes = options->rate_bytes,
                                .offline = options->offline};
        struct cairn_client_options client = options->client;
        char text[640] = "";
        int status = CAIRN_OK;
        int code;

        memcpy(cli.options, options->of_commands, sizeof(cli.options));
        if (client.timeout_ms == 0)
                client.timeout_ms = command->long_lived ? LONG_MS : TIMEOUT_MS;
        if (!command->local && !options->offline)
                status = cairn_client_create(&client, &cli.client, text, sizeof(text));

        if (status != CAIRN_OK) {
                fprintf(stderr, "cairnctl: %s\n", text);
                return exit_code_of(status);
        }
        code = command->run(&cli);
        cairn_client_destroy(cli.client);
        if (fflush(stdout) != 0 || ferror(stdout)) {
                perror("cairnctl: standard output");
                return CAIRN_CLI_FAILED;
        }
        return code;
}

int main(int argc, char **argv)
{
        struct options options = {.client = {
                                      .name = "cairnctl",
                                  }};
        const struct cairn_cli_command *command;

        if (parse(argc, argv, &options) != CAIRN_CLI_OK)
                return CAIRN_CLI_USAGE;
        if (options.version) {
                puts("cairnctl " CAIRN_VERSION);
                return CAIRN_CLI_OK;
        }
        command = optind < argc ? find(argv[optind]) : NULL;
        if (options.help) {
                if (command)
                        command_usage(command);
                else
                        usage(stdout);
                return CAIRN_CLI_OK;
        }
        if (!command) {
                if (optind < argc)
                        fprintf(stderr, "cairnctl: no command is called %s\n\n", argv[optind]);
                usage(stderr);
                return CAIRN_CLI_USAGE;
        }
        if (options.offline && command->run != cairn_cli_verify &&
            command->run != cairn_cli_audit) {
                fprintf(stderr, "cairnctl %s: only verify and audit take --offline\n",
                        command->name);
                return CAIRN_CLI_USAGE;
        }
        if (argc - optind - 1 > arguments_max(command)) {
                fprintf(stderr, "cairnctl %s: too many arguments; try: cairnctl %s --help\n",
                        command->name, command->name);
                return CAIRN_CLI_USAGE;
        }
        if (check_options(command, &options) != CAIRN_CLI_OK)
                return CAIRN_CLI_USAGE;
        return run(command, &options, argc - optind - 1, argv + optind + 1);
}
