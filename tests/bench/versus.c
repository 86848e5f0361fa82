// select against another program's search. versus.py gets the keys, the queries and our choice as
// files; then the two take turns, one search at a time, as it is told through a pipe.
#include "tests/bench/versus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/passes.h"

// The program at the other end of two pipes.
struct other {
        pid_t pid;
        FILE *to;
        FILE *from;
        char folder[64];
};

static const char *const file_names[] = {"keys.f32", "queries.f32", "chosen.u32"};

static int write_file(const struct other *other, const char *name, const void *bytes, size_t size)
{
        char path[128];
        FILE *file;
        bool whole;

        (void)snprintf(path, sizeof(path), "%s/%s", other->folder, name);
        file = fopen(path, "wb");
        whole = file && fwrite(bytes, 1, size, file) == size;
        if (file && fclose(file) != 0)
                whole = false;
        if (!whole)
                fprintf(stderr, "cairn-bench: %s: %s\n", path, strerror(errno));
        return whole ? 0 : -1;
}

// Beside this source, where the build has left it.
static void script_path(const char *name, char *ret_path, size_t size)
{
        const char *slash = strrchr(__FILE__, '/');

        (void)snprintf(ret_path, size, "%.*s/%s", slash ? (int)(slash - __FILE__) : 1,
                       slash ? __FILE__ : ".", name);
}

static _Noreturn void run_script(const char *name, const struct other *other, const int *in,
                                 const int *out, const struct cairn_bench_keys *s)
{
        char script[1024], python[1024], tokens[16], dim[16];

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        script_path("versus.py", script, sizeof(script));
        script_path("python", python, sizeof(python));
        (void)snprintf(tokens, sizeof(tokens), "%u", s->tokens);
        (void)snprintf(dim, sizeof(dim), "%u", s->layout.shape.k_dim);
        if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0)
                _exit(126);
        (void)close(in[0]), (void)close(in[1]), (void)close(out[0]), (void)close(out[1]);
        execl(python, python, script, name, other->folder, tokens, dim, (char *)NULL);
        fprintf(stderr, "cairn-bench: %s: %s\n", python, strerror(errno));
        _exit(127);
}

static void stop(struct other *other)
{
        char path[128];

        if (other->to)
                (void)fclose(other->to);
        if (other->from)
                (void)fclose(other->from);
        if (other->pid > 0)
                (void)waitpid(other->pid, NULL, 0);
        for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
                (void)snprintf(path, sizeof(path), "%s/%s", other->folder, file_names[i]);
                (void)unlink(path); // may not be there
        }
        (void)rmdir(other->folder);
}

static int start(const char *name, const struct cairn_bench_keys *s, struct other *ret_other)
{
        const char *base = getenv("TMPDIR");
        int in[2], out[2];

        *ret_other = (struct other){0};
        (void)snprintf(ret_other->folder, sizeof(ret_other->folder), "%.40s/cairn-versus-XXXXXX",
                       base ? base : "/tmp");
        if (!mkdtemp(ret_other->folder) || pipe(in) != 0 || pipe(out) != 0) {
                perror("cairn-bench: versus");
                return -1;
        }
        size_t row = s->layout.shape.k_dim * sizeof(float);
        uint32_t *chosen = cairn_bench_allocate(s->k * sizeof(*chosen));
        uint32_t count = cairn_bench_pass_choose(s, chosen);
        int status = write_file(ret_other, file_names[0], s->k_rows, s->tokens * row);

        if (status == 0)
                status = write_file(ret_other, file_names[1], s->query, s->queries * row);
        if (status == 0)
                status = write_file(ret_other, file_names[2], chosen, count * sizeof(*chosen));
        free(chosen);
        if (status != 0)
                return -1;
        ret_other->pid = fork();
        if (ret_other->pid == 0)
                run_script(name, ret_other, in, out, s);
        (void)close(in[0]), (void)close(out[1]);
        ret_other->to = fdopen(in[1], "w");
        ret_other->from = fdopen(out[0], "r");
        return ret_other->pid > 0 && ret_other->to && ret_other->from ? 0 : -1;
}

// Sends a word; the answer's numbers, or -1.
static int ask(struct other *other, const char *word, int count, double *ret_numbers)
{
        if (fprintf(other->to, "%s\n", word) < 0 || fflush(other->to) != 0)
                return -1;
        for (int i = 0; i < count; i++) {
                if (fscanf(other->from, "%lf", &ret_numbers[i]) != 1)
                        return -1;
        }
        return 0;
}

static int take_turns(struct other *other, const struct cairn_bench_keys *s,
                      struct cairn_bench_report *report)
{
        double ours[CAIRN_BENCH_ROUNDS], theirs[CAIRN_BENCH_ROUNDS], mass[4];

        if (ask(other, "ready", 1, theirs) != 0)
                return -1;
        (void)cairn_bench_pass_run(s, cairn_bench_pass_select, 0, 1);
        for (int i = 0; i < CAIRN_BENCH_ROUNDS; i++) {
                if (ask(other, "search", 1, &theirs[i]) != 0)
                        return -1;
                ours[i] = cairn_bench_pass_run(s, cairn_bench_pass_select, 0, 1) / s->contexts;
        }
        if (ask(other, "mass", 4, mass) != 0)
                return -1;
        report->value = 1e6 * cairn_bench_quantile(ours, CAIRN_BENCH_ROUNDS, 0.5);
        report->baseline = 1e6 * cairn_bench_quantile(theirs, CAIRN_BENCH_ROUNDS, 0.5);
        report->ratio = report->baseline / report->value;
        cairn_bench_extra(report, "best_ratio",
                          cairn_bench_quantile(theirs, CAIRN_BENCH_ROUNDS, 0) /
                              cairn_bench_quantile(ours, CAIRN_BENCH_ROUNDS, 0));
        cairn_bench_extra(report, "mass_held", mass[0]);
        cairn_bench_extra(report, "mass_held_theirs", mass[1]);
        cairn_bench_extra(report, "mass_held_exact", mass[2]);
        // Of k rows for each query: the queries' sets together are larger than ours.
        cairn_bench_extra(report, "mass_held_theirs_a_query", mass[3]);
        return 0;
}

int cairn_bench_versus(int argc, char **argv, const char *other_name,
                       struct cairn_bench_report *ret_report)
{
        struct cairn_bench_keys s;
        struct other other;
        int status;

        if (strcmp(other_name, "faiss") != 0 && strcmp(other_name, "numpy") != 0) {
                fprintf(stderr, "cairn-bench: --vs %s: faiss or numpy, please\n", other_name);
                return -1;
        }
        if (cairn_bench_keys_init(&s, argc, argv, (size_t)256 << 20) < 0)
                return -1;
        if (s.drawn < s.blocks) {
                fprintf(stderr, "cairn-bench: fewer --tokens, please\n");
                return -1;
        }
        cairn_bench_keys_fill(&s);
        cairn_bench_keys_params(&s, ret_report);
        (void)snprintf(ret_report->unit, sizeof(ret_report->unit), "us/search");
        (void)snprintf(ret_report->baseline_name, sizeof(ret_report->baseline_name), "%s",
                       strcmp(other_name, "faiss") == 0
                           ? "FAISS IndexPQFastScan 64x4, one thread"
                           : "NumPy f32 matmul, argpartition, 1 thread");
        (void)signal(SIGPIPE, SIG_IGN); // a script that has ended shows as a failed write
        status = start(other_name, &s, &other);
        if (status == 0)
                status = take_turns(&other, &s, ret_report);
        if (status != 0)
                fprintf(stderr, "cairn-bench: versus.py %s gave no answer\n", other_name);
        stop(&other);
        cairn_bench_keys_finish(&s);
        return status;
}
