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

static void run_daemon(const char *program, const struct cairn_bench_daemon *daemon,
                       uint64_t ram_bytes, uint64_t nvme_bytes)
{
        char data[96], log[96], ram[32], nvme[32];

        (void)snprintf(data, sizeof(data), "%s/data", daemon->folder);
        (void)snprintf(log, sizeof(log), "%s/log", daemon->folder);
        (void)snprintf(ram, sizeof(ram), "%llu", (unsigned long long)ram_bytes);
        (void)snprintf(nvme, sizeof(nvme), "%llu", (unsigned long long)nvme_bytes);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // whatever happens to the benchmark
        if (!freopen(log, "w", stderr))
                _exit(126);
        execl(program, program, "--socket", daemon->socket, "--data_dir", data, "--ram_bytes", ram,
              "--nvme_bytes", nvme, (char *)NULL);
        fprintf(stderr, "%s: %s\n", program, strerror(errno));
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

int cairn_bench_daemon_start(int argc, char **argv, uint64_t ram_bytes, uint64_t nvme_bytes,
                             struct cairn_bench_daemon *ret_daemon)
{
        struct cairn_bench_daemon *daemon = ret_daemon;
        struct cairn_client_options options = {.connect_wait_ms = 10000, .name = "cairn-bench"};
        char beside[4096], text[640] = "";
        const char *program, *base = getenv("TMPDIR");

        *daemon = (struct cairn_bench_daemon){0};
        options.socket_path = cairn_bench_flag_text(argc, argv, "socket", NULL);
        if (!options.socket_path) {
                default_program(beside, sizeof(beside));
                program = cairn_bench_flag_text(argc, argv, "cairnd", beside);
                (void)snprintf(daemon->folder, sizeof(daemon->folder), "%.40s/cairn-bench-XXXXXX",
                               base ? base : "/tmp");
                if (!mkdtemp(daemon->folder)) {
                        perror("cairn-bench: mkdtemp");
                        return -1;
                }
                (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/s", daemon->folder);
                options.socket_path = daemon->socket;
                daemon->pid = fork();
                if (daemon->pid == 0)
                        run_daemon(program, daemon, ram_bytes, nvme_bytes);
        }
        if (daemon->pid < 0 ||
            cairn_client_create(&options, &daemon->client, text, sizeof(text)) != CAIRN_OK) {
                fprintf(stderr, "cairn-bench: no cairnd: %s\n", text);
                print_log(daemon);
                cairn_bench_daemon_stop(daemon);
                return -1;
        }
        return 0;
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
