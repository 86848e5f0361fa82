// cairnctl top: the daemon live, on a whole screen; one page of text where there is no terminal.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/top.h"
#ifdef CAIRN_HAVE_CURSES
#include <curses.h>
#endif

enum {
        INTERVAL_MS = 1000,
        INTERVAL_MS_MIN = 100,
        INTERVAL_MS_MAX = 60 * 1000
};

// Two samples, taken in turn.
struct top {
        struct cairn_cli *cli;
        struct cairn_cli_sample samples[2];
        unsigned last;
        struct cairn_cli_page page;
};

static int take(struct top *top)
{
        unsigned next = 1 - top->last;
        int status = cairn_cli_sample_take(top->cli->client, &top->samples[next]);

        if (status != CAIRN_OK)
                return status;
        top->last = next;
        cairn_cli_top_page(cairn_client_socket(top->cli->client), &top->samples[1 - next],
                           &top->samples[next], &top->page);
        return CAIRN_OK;
}

static void print_json(const struct top *top)
{
        const struct cairn_cli_sample *from = &top->samples[1 - top->last];
        const struct cairn_cli_sample *to = &top->samples[top->last];
        const char *comma = "";

        printf("{\"seconds\": %.3f, \"now\": {", to->time_s - from->time_s);
        for (size_t i = 0; i < to->count; i++) {
                if (strstr(to->metrics[i].name, "_total") ||
                    strstr(to->metrics[i].name, "_seconds_"))
                        continue;
                fputs(comma, stdout);
                cairn_cli_json_text(stdout, to->metrics[i].name);
                fputs(": ", stdout);
                cairn_cli_json_number(stdout, to->metrics[i].value);
                comma = ", ";
        }
        fputs("}, \"per_second\": {", stdout);
        comma = "";
        for (size_t i = 0; i < to->count; i++) {
                if (!strstr(to->metrics[i].name, "_total"))
                        continue;
                fputs(comma, stdout);
                cairn_cli_json_text(stdout, to->metrics[i].name);
                fputs(": ", stdout);
                cairn_cli_json_number(stdout, cairn_cli_sample_rate(from, to, to->metrics[i].name));
                comma = ", ";
        }
        puts("}}");
}

static int show_once(struct top *top, unsigned interval_ms)
{
        int status;

        (void)usleep(interval_ms * 1000); // cut short by a signal: a shorter interval
        status = take(top);
        if (status != CAIRN_OK)
                return cairn_cli_fail(top->cli, status);
        if (top->cli->json) {
                print_json(top);
                return CAIRN_CLI_OK;
        }
        for (size_t i = 0; i < top->page.count; i++)
                puts(top->page.lines[i]);
        return CAIRN_CLI_OK;
}

#ifdef CAIRN_HAVE_CURSES
static void draw(const struct top *top, const char *trouble)
{
        int rows = getmaxy(stdscr);

        (void)erase();
        for (size_t i = 0; i < top->page.count && (int)i < rows - 1; i++) {
                if (i == 0)
                        (void)attron(A_BOLD);
                (void)mvaddnstr((int)i, 0, top->page.lines[i], getmaxx(stdscr));
                (void)attroff(A_BOLD);
        }
        (void)mvaddnstr(rows - 1, 0, trouble ? trouble : "q: quit   space: at once",
                        getmaxx(stdscr));
        (void)refresh();
}

static int show_live(struct top *top, unsigned interval_ms)
{
        const char *trouble = NULL;

        if (!initscr())
                return CAIRN_CLI_FAILED;
        (void)cbreak();
        (void)noecho();
        (void)curs_set(0); // a terminal without that keeps its cursor
        timeout((int)interval_ms);
        for (;;) {
                int key;

                draw(top, trouble);
                key = getch();
                if (key == 'q' || key == 'Q')
                        break;
                trouble = take(top) == CAIRN_OK ? NULL : cairn_client_error(top->cli->client);
        }
        (void)endwin();
        return CAIRN_CLI_OK;
}
#endif

static int parse_interval(struct cairn_cli *cli, unsigned *ret_ms)
{
        char extra;

        *ret_ms = INTERVAL_MS;
        if (cli->argc == 0)
                return CAIRN_CLI_OK;
        if (sscanf(cli->argv[0], "%u%c", ret_ms, &extra) != 1 || *ret_ms < INTERVAL_MS_MIN ||
            *ret_ms > INTERVAL_MS_MAX) {
                fprintf(stderr, "cairnctl top %s: an interval of %d to %d ms, please\n",
                        cli->argv[0], INTERVAL_MS_MIN, INTERVAL_MS_MAX);
                return CAIRN_CLI_USAGE;
        }
        return CAIRN_CLI_OK;
}

int cairn_cli_top(struct cairn_cli *cli)
{
        struct top *top = calloc(1, sizeof(*top));
        unsigned interval_ms;
        int code;
        int status;

        if (!top) {
                fputs("cairnctl: no memory\n", stderr);
                return CAIRN_CLI_FAILED;
        }
        top->cli = cli;
        code = parse_interval(cli, &interval_ms);
        if (code == CAIRN_CLI_OK) {
                status = take(top);
                if (status != CAIRN_OK)
                        code = cairn_cli_fail(cli, status);
                else
                        top->samples[1 - top->last] = top->samples[top->last]; // no rate yet
        }
        if (code == CAIRN_CLI_OK) {
#ifdef CAIRN_HAVE_CURSES
                code = isatty(STDOUT_FILENO) && !cli->json ? show_live(top, interval_ms)
                                                           : show_once(top, interval_ms);
#else
                code = show_once(top, interval_ms);
#endif
        }
        free(top);
        return code;
}
