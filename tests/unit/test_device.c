// Devices on real files: progress of short completions, fallbacks, creation and removal, refusals
// of the kernel.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "store_fixture.h"

static void advance_to(int64_t result, bool ended, int status, uint64_t left)
{
        static uint8_t bytes[3 * 4096];
        struct cairn_device_request request = {.kind = CAIRN_DEVICE_READ, .iov_count = 2};
        request.iov[0] = (struct iovec){bytes, 4096};
        request.iov[1] = (struct iovec){bytes + 4096, 8192};
        cr_assert_eq(cairn_device_advance(&request, result), ended);
        if (ended)
                cr_assert_eq(request.status, status);
        else
                cr_assert_eq(cairn_device_bytes_left(&request), left);
}

Test(device, short_completions_advance_by_whole_pages)
{
        advance_to(3 * 4096, true, CAIRN_OK, 0);
        advance_to(3 * 4096 - 1, false, 0, 4096);
        advance_to(4096, false, 0, 8192);
        advance_to(4095, false, 0, 3 * 4096);
        advance_to(1, false, 0, 3 * 4096);
        advance_to(0, false, 0, 3 * 4096);
        advance_to(-EAGAIN, false, 0, 3 * 4096);
        advance_to(-EIO, true, CAIRN_EIO, 0);
        advance_to(-EFBIG, true, CAIRN_ENOSPC, 0);
        advance_to(-ENOSPC, true, CAIRN_ENOSPC, 0);
        advance_to(3 * 4096 + 1, true, CAIRN_EIO, 0);
}

Test(device, no_progress_ends_after_a_bounded_number_of_attempts)
{
        static uint8_t bytes[4096];
        struct cairn_device_request request = {.kind = CAIRN_DEVICE_WRITE, .iov_count = 1};
        request.iov[0] = (struct iovec){bytes, sizeof(bytes)};
        int attempts = 1;
        while (!cairn_device_advance(&request, attempts % 2 ? 0 : -EAGAIN))
                attempts++;
        cr_assert_eq(attempts, CAIRN_DEVICE_ATTEMPTS_MAX);
        cr_assert_eq(request.status, CAIRN_EIO);
}

struct step {
        struct cairn_device_request request; // first
        bool done;
        int status;
};

static void on_done(struct cairn_device_request *request, int status)
{
        struct step *step = (struct step *)request;
        step->done = true;
        step->status = status;
}

static int run(struct cairn_device *device, struct step *step)
{
        step->done = false;
        step->request.on_done = on_done;
        device->ops->submit(device, &step->request);
        device->ops->flush(device);
        cr_assert_not(step->done, "called back inside the submit");
        while (!step->done) {
                struct pollfd fd = {.fd = device->ops->fd(device), .events = POLLIN};
                cr_assert_geq(poll(&fd, 1, 10000), 1);
                device->ops->reap(device);
        }
        return step->status;
}

static void count_slab(void *arg, uint32_t slab, uint64_t size_bytes)
{
        uint64_t *sum = arg;
        *sum += slab * 1000000 + size_bytes;
}

static void exercise(bool uring, bool buffered)
{
        struct fixture f;
        fixture_init(&f);
        const char *directories[] = {f.directory};
        struct cairn_device_options options = {.directories = directories,
                                               .directories_count = 1,
                                               .queue_depth = 4,
                                               .force_buffered = buffered};
        struct cairn_device *device;
        char text[CAIRN_TEXT_BYTES_MAX];
        int status = uring ? cairn_device_uring_create(&options, &device, text)
                           : cairn_device_sync_create(&options, &device, text);
        if (uring && status == CAIRN_EUNSUPPORTED)
                cr_skip_test("this kernel refuses io_uring");
        cr_assert_eq(status, CAIRN_OK, "%s", text);
        uint8_t *bytes = aligned_alloc(4096, 64 << 10);
        memset(bytes, 0xab, 64 << 10);
        struct step create = {
            .request = {.kind = CAIRN_DEVICE_CREATE, .offset = 1 << 20, .slab = 7, .iov_count = 1}};
        create.request.iov[0] = (struct iovec){bytes, 8192};
        cr_assert_eq(run(device, &create), CAIRN_OK);
        int file = create.request.file;
        uint64_t sum = 0;
        cr_assert_eq(device->ops->list(device, 0, count_slab, &sum), CAIRN_OK);
        cr_assert_eq(sum, 7 * 1000000 + (1 << 20));
        struct step again = create;
        cr_assert_neq(run(device, &again), CAIRN_OK, "a file is never made twice");

        // More requests than the queue holds, then everything back.
        struct step steps[16];
        for (uint32_t i = 0; i < 16; i++) {
                memset(bytes + i * 4096, (int)i, 4096);
                steps[i] = (struct step){.request = {.kind = CAIRN_DEVICE_WRITE,
                                                     .file = file,
                                                     .offset = 8192 + i * 4096,
                                                     .iov_count = 1,
                                                     .on_done = on_done}};
                steps[i].request.iov[0] = (struct iovec){bytes + i * 4096, 4096};
                device->ops->submit(device, &steps[i].request);
        }
        device->ops->flush(device);
        for (uint32_t i = 0; i < 16; i++) {
                while (!steps[i].done)
                        device->ops->reap(device);
                cr_assert_eq(steps[i].status, CAIRN_OK);
        }
        struct step sync = {.request = {.kind = CAIRN_DEVICE_SYNC, .file = file}};
        cr_assert_eq(run(device, &sync), CAIRN_OK);
        uint8_t *back = aligned_alloc(4096, 64 << 10);
        struct step read = {
            .request = {.kind = CAIRN_DEVICE_READ, .file = file, .offset = 8192, .iov_count = 2}};
        read.request.iov[0] = (struct iovec){back, 4096};
        read.request.iov[1] = (struct iovec){back + 4096, 60 << 10};
        cr_assert_eq(run(device, &read), CAIRN_OK);
        cr_assert_eq(memcmp(bytes, back, 64 << 10), 0);
        struct step beyond = {
            .request = {
                .kind = CAIRN_DEVICE_READ, .file = file, .offset = 2 << 20, .iov_count = 1}};
        beyond.request.iov[0] = (struct iovec){back, 4096};
        cr_assert_eq(run(device, &beyond), CAIRN_EIO, "the end of the file is no data");
        struct step remove_step = {
            .request = {.kind = CAIRN_DEVICE_REMOVE, .file = file, .slab = 7}};
        cr_assert_eq(run(device, &remove_step), CAIRN_OK);
        sum = 0;
        cr_assert_eq(device->ops->list(device, 0, count_slab, &sum), CAIRN_OK);
        cr_assert_eq(sum, 0);
        free(bytes);
        free(back);
        device->ops->destroy(device);
        fixture_finish(&f);
}

Test(device, uring_direct)
{
        exercise(true, false);
}

Test(device, uring_buffered)
{
        exercise(true, true);
}

Test(device, threads_direct)
{
        exercise(false, false);
}

Test(device, threads_buffered)
{
        exercise(false, true);
}

static void refuse_uring(int error)
{
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {.len = 4, .filter = code};
        cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void put_and_get(struct fixture *f)
{
        fixture_open(f);
        for (uint64_t i = 0; i < 10; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cairn_store_drop_ram(f->store);
        for (uint64_t i = 0; i < 10; i++)
                cr_assert_eq(fixture_get(f, i, 1, CAIRN_PART_RAW | CAIRN_PART_CODE), CAIRN_OK);
}

// Case 24: each refusal is one warning, and the same answers.
Test(device, case_24_uring_refused_with_eperm)
{
        struct fixture f;
        fixture_init(&f);
        refuse_uring(EPERM);
        put_and_get(&f);
        cr_assert_not(fixture_stats(&f).device_uring);
        cr_assert_eq(f.warnings, 1);
        cr_assert_not_null(strstr(f.warning, "io_uring"));
        fixture_finish(&f);
}

Test(device, case_24_uring_refused_with_enosys)
{
        struct fixture f;
        fixture_init(&f);
        refuse_uring(ENOSYS);
        put_and_get(&f);
        cr_assert_not(fixture_stats(&f).device_uring);
        cr_assert_eq(f.warnings, 1);
        fixture_finish(&f);
}

Test(device, case_24_little_memory_may_be_locked)
{
        struct fixture f;
        fixture_init(&f);
        struct rlimit limit = {64 << 10, 64 << 10};
        cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
        put_and_get(&f);
        fixture_finish(&f);
}

Test(device, case_24_data_directory_on_tmpfs)
{
        if (access("/dev/shm", W_OK) != 0)
                cr_skip_test("no /dev/shm here");
        cr_assert_eq(setenv("TMPDIR", "/dev/shm", 1), 0);
        struct fixture f;
        fixture_init(&f);
        put_and_get(&f);
        cr_assert_leq(f.warnings, 1);
        fixture_finish(&f);
}
