// Private daemons and the bare echo for benchmarks.
#include "tests/bench/daemon.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
        (void)info, (void)kind, (void)ftw;
        return remove(path);
}

// cairnd beside this program.
static void default_program(char *ret_path, size_t size)
{
        ssize_t got = readlink("/proc/self/exe", ret_path, size - 8);
        char *slash;

        ret_path[got > 0 ? got : 0] = '\0';
        slash = strrchr(ret_path, '/');
        (void)snprintf(slash ? slash + 1 : ret_path, 8, "cairnd");
}

static void run_daemon(const struct cairn_bench_daemon *daemon)
{
        char data[96], log[96], ram[32], nvme[32];

        (void)snprintf(data, sizeof(data), "%s/data", daemon->folder);
        (void)snprintf(log, sizeof(log), "%s/log", daemon->folder);
        (void)snprintf(ram, sizeof(ram), "%llu", (unsigned long long)daemon->ram_bytes);
        (void)snprintf(nvme, sizeof(nvme), "%llu", (unsigned long long)daemon->nvme_bytes);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // whatever happens to the benchmark
        if (!freopen(log, "w", stderr))
                _exit(126);
        execl(daemon->program, daemon->program, "--socket", daemon->socket, "--data_dir", data,
              "--ram_bytes", ram, "--nvme_bytes", nvme,
              daemon->views ? "--views=yes" : "--views=no", (char *)NULL);
        fprintf(stderr, "%s: %s\n", daemon->program, strerror(errno));
        _exit(127);
}

static void print_log(const struct cairn_bench_daemon *daemon)
{
        char path[96], line[512];
        FILE *file;

        (void)snprintf(path, sizeof(path), "%s/log", daemon->folder);
        file = fopen(path, "r");
        while (file && fgets(line, sizeof(line), file))
                fprintf(stderr, "  %s", line);
        if (file)
                (void)fclose(file);
}

// Connects, waiting for it to be there; tries each millisecond, so that a start can be timed.
static int connect_to(struct cairn_bench_daemon *daemon, const char *socket_path)
{
        struct cairn_client_options options = {.socket_path = socket_path, .name = "cairn-bench"};
        double end_s = cairn_bench_now_s() + 60;
        struct cairn_ping_info info = {0};
        char text[640] = "";
        int status;

        options.timeout_ms = 120000;
        do {
                status = cairn_client_create(&options, &daemon->client, text, sizeof(text));
                if (status != CAIRN_OK)
                        (void)usleep(1000);
        } while (status != CAIRN_OK && cairn_bench_now_s() < end_s &&
                 (daemon->pid <= 0 || waitpid(daemon->pid, NULL, WNOHANG) == 0));
        while (status == CAIRN_OK && info.state != 1 && cairn_bench_now_s() < end_s) {
                status = cairn_ping(daemon->client, NULL, &info);
                if (info.state != 1)
                        (void)usleep(1000);
        }
        if (status != CAIRN_OK) {
                fprintf(stderr, "cairn-bench: no cairnd: %s\n", text);
                print_log(daemon);
        }
        return status;
}

static int launch(struct cairn_bench_daemon *daemon)
{
        daemon->pid = fork();
        if (daemon->pid == 0)
                run_daemon(daemon);
        return daemon->pid > 0 ? connect_to(daemon, daemon->socket) : CAIRN_ENOMEM;
}

int cairn_bench_daemon_start(int argc, char **argv, uint64_t ram_bytes, uint64_t nvme_bytes,
                             struct cairn_bench_daemon *ret_daemon)
{
        struct cairn_bench_daemon *daemon = ret_daemon;
        const char *running = cairn_bench_flag_text(argc, argv, "socket", NULL);
        const char *base = getenv("TMPDIR");
        char beside[4096];
        int status;

        *daemon = (struct cairn_bench_daemon){.ram_bytes = ram_bytes,
                                              .nvme_bytes = nvme_bytes,
                                              .views = cairn_bench_flag_set(argc, argv, "view")};
        if (running) {
                status = connect_to(daemon, running);
        } else {
                default_program(beside, sizeof(beside));
                (void)snprintf(daemon->program, sizeof(daemon->program), "%s",
                               cairn_bench_flag_text(argc, argv, "cairnd", beside));
                (void)snprintf(daemon->folder, sizeof(daemon->folder), "%.40s/cairn-bench-XXXXXX",
                               cairn_bench_flag_text(argc, argv, "directory",
                                                     base ? base : "/tmp"));
                if (!mkdtemp(daemon->folder)) {
                        perror("cairn-bench: mkdtemp");
                        daemon->folder[0] = '\0';
                        return -1;
                }
                (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/s", daemon->folder);
                status = launch(daemon);
        }
        if (status != CAIRN_OK)
                cairn_bench_daemon_stop(daemon);
        return status == CAIRN_OK ? 0 : -1;
}

double cairn_bench_daemon_restart(struct cairn_bench_daemon *daemon)
{
        double begin_s;

        if (daemon->pid <= 0) {
                fprintf(stderr, "cairn-bench: only a private cairnd is started anew\n");
                return -1;
        }
        cairn_client_destroy(daemon->client);
        daemon->client = NULL;
        (void)kill(daemon->pid, SIGTERM);
        (void)waitpid(daemon->pid, NULL, 0);
        begin_s = cairn_bench_now_s();
        return launch(daemon) == CAIRN_OK ? cairn_bench_now_s() - begin_s : -1;
}

void cairn_bench_daemon_stop(struct cairn_bench_daemon *daemon)
{
        cairn_client_destroy(daemon->client);
        if (daemon->pid > 0) {
                (void)kill(daemon->pid, SIGKILL); // its data goes anyway
                (void)waitpid(daemon->pid, NULL, 0);
        }
        if (daemon->folder[0])
                (void)nftw(daemon->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        *daemon = (struct cairn_bench_daemon){0};
}

double cairn_bench_daemon_cpu_s(const struct cairn_bench_daemon *daemon)
{
        char path[64];
        unsigned long user, system;
        FILE *file;
        int fields;

        if (daemon->pid <= 0)
                return 0;
        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)daemon->pid);
        file = fopen(path, "r");
        if (!file)
                return 0;
        fields = fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system);
        (void)fclose(file);
        return fields == 2 ? (double)(user + system) / (double)sysconf(_SC_CLK_TCK) : 0;
}

struct wanted {
        const char *name;
        const char *label;
        double sum;
};

static void on_metric(void *arg, const char *name, const char *labels, double value)
{
        struct wanted *wanted = arg;

        if (strcmp(name, wanted->name) == 0 && strstr(labels ? labels : "", wanted->label))
                wanted->sum += value;
}

double cairn_bench_daemon_stat(const struct cairn_bench_daemon *daemon, const char *name,
                               const char *label)
{
        struct wanted wanted = {.name = name, .label = label};

        return cairn_stats(daemon->client, NULL, on_metric, &wanted) == CAIRN_OK ? wanted.sum : 0;
}

double cairn_bench_daemon_memory(const struct cairn_bench_daemon *daemon, const char *line)
{
        char path[64], text[256];
        double kib = 0;
        FILE *file;

        if (daemon->pid <= 0)
                return 0;
        (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon->pid);
        file = fopen(path, "r");
        while (file && fgets(text, sizeof(text), file)) {
                if (strncmp(text, line, strlen(line)) == 0 && text[strlen(line)] == ':')
                        kib = strtod(text + strlen(line) + 1, NULL);
        }
        if (file)
                (void)fclose(file);
        return 1024 * kib;
}

// ---- echo ----

static int transfer(int fd, uint8_t *bytes, size_t size, bool sending)
{
        while (size > 0) {
                ssize_t part =
                    sending ? send(fd, bytes, size, MSG_NOSIGNAL) : recv(fd, bytes, size, 0);

                if (part < 0 && errno == EINTR)
                        continue;
                if (part <= 0)
                        return -1;
                bytes += part;
                size -= (size_t)part;
        }
        return 0;
}

int cairn_bench_echo_start(size_t request_bytes, size_t reply_bytes,
                           struct cairn_bench_echo *ret_echo)
{
        size_t size = request_bytes > reply_bytes ? request_bytes : reply_bytes;
        int pair[2];

        *ret_echo = (struct cairn_bench_echo){
            .request_bytes = request_bytes, .reply_bytes = reply_bytes, .bytes = calloc(1, size)};
        if (!ret_echo->bytes || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
                perror("cairn-bench: echo");
                return -1;
        }
        ret_echo->pid = fork();
        if (ret_echo->pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)close(pair[0]);
                while (transfer(pair[1], ret_echo->bytes, request_bytes, false) == 0 &&
                       transfer(pair[1], ret_echo->bytes, reply_bytes, true) == 0)
                        ;
                _exit(0);
        }
        (void)close(pair[1]);
        ret_echo->fd = pair[0];
        return ret_echo->pid > 0 ? 0 : -1;
}

void cairn_bench_echo_stop(struct cairn_bench_echo *echo)
{
        (void)close(echo->fd);
        if (echo->pid > 0)
                (void)waitpid(echo->pid, NULL, 0);
        free(echo->bytes);
}

double cairn_bench_echo_s(struct cairn_bench_echo *echo)
{
        double begin = cairn_bench_now_s();

        if (transfer(echo->fd, echo->bytes, echo->request_bytes, true) != 0 ||
            transfer(echo->fd, echo->bytes, echo->reply_bytes, false) != 0)
                perror("cairn-bench: echo");
        return cairn_bench_now_s() - begin;
}
