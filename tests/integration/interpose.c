// Preloaded into a cairnd under test: a disk that stalls, and a wall clock that jumps. While the
// file $INTERPOSE_STALL exists, reads, writes and syncs of files wait; $INTERPOSE_CLOCK holds
// seconds that every clock but the monotonic ones is ahead. May be used by: tests.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// The next definition of a function, of the type of this one.
#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

static void stall(int fd)
{
        const char *path = getenv("INTERPOSE_STALL");
        const struct timespec while_ms = {.tv_nsec = 5000000};
        struct stat status;

        if (!path || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
                return;
        while (access(path, F_OK) == 0)
                (void)nanosleep(&while_ms, NULL);
}

ssize_t pread(int fd, void *buffer, size_t size, off_t offset)
{
        stall(fd);
        return NEXT(pread)(fd, buffer, size, offset);
}

ssize_t pwrite(int fd, const void *buffer, size_t size, off_t offset)
{
        stall(fd);
        return NEXT(pwrite)(fd, buffer, size, offset);
}

ssize_t preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
        stall(fd);
        return NEXT(preadv)(fd, iov, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
        stall(fd);
        return NEXT(pwritev)(fd, iov, count, offset);
}

int fdatasync(int fd)
{
        stall(fd);
        return NEXT(fdatasync)(fd);
}

int fsync(int fd)
{
        stall(fd);
        return NEXT(fsync)(fd);
}

// ---- clocks ----

static time_t jump_s(void)
{
        const char *path = getenv("INTERPOSE_CLOCK");
        char text[32] = {0};
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        if (fd < 0)
                return 0;
        ssize_t size = read(fd, text, sizeof(text) - 1);
        (void)close(fd);
        return size > 0 ? (time_t)strtoll(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
        int status = NEXT(clock_gettime)(clock, ret_time);

        if (status == 0 &&
            (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
                ret_time->tv_sec += jump_s();
        return status;
}

int gettimeofday(struct timeval *restrict ret_time, void *restrict zone)
{
        int status = NEXT(gettimeofday)(ret_time, zone);

        if (status == 0)
                ret_time->tv_sec += jump_s();
        return status;
}

time_t time(time_t *ret_time)
{
        time_t now = NEXT(time)(NULL) + jump_s();

        if (ret_time)
                *ret_time = now;
        return now;
}
