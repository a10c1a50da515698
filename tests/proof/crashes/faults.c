/* Preloaded into a command: a disk that is full from the Nth write below a folder on, or a wall clock that jumps.
 *
 * FAULT_FOLDER and FAULT_WRITE: writes to regular files below the folder fail with ENOSPC from that one on, counted
 * from 1. FAULT_COUNT: the file, but for a dot and the process id, that gets the number of writes in the end.
 * FAULT_JUMP_S and FAULT_JUMP_AFTER: CLOCK_REALTIME is so many seconds off after so many readings.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_long writes, readings;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static int is_full(int descriptor) {
    const char *folder = getenv("FAULT_FOLDER");
    char link[64], path[4096];
    struct stat status;
    if (!folder || fstat(descriptor, &status) || !S_ISREG(status.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    long count = atomic_fetch_add(&writes, 1) + 1, limit = number("FAULT_WRITE");
    return limit > 0 && count >= limit;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *data, size_t size) {
    if (is_full(descriptor)) { errno = ENOSPC; return -1; }
    return REAL(write)(descriptor, data, size);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t at) {
    if (is_full(descriptor)) { errno = ENOSPC; return -1; }
    return REAL(pwrite64)(descriptor, data, size, at);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    if (is_full(descriptor)) { errno = ENOSPC; return -1; }
    return REAL(writev)(descriptor, parts, count);
}

ssize_t sendfile64(int target, int source, off64_t *from, size_t count) {
    (void)source; (void)from; (void)count;
    errno = is_full(target) ? ENOSPC : ENOSYS; /* Python then copies by read and write */
    return -1;
}

ssize_t copy_file_range(int source, off64_t *from, int target, off64_t *to, size_t size, unsigned flags) {
    (void)source; (void)from; (void)to; (void)size; (void)flags;
    errno = is_full(target) ? ENOSPC : ENOSYS;
    return -1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = REAL(clock_gettime)(clock, now);
    long jump = number("FAULT_JUMP_S");
    if (!failed && jump && clock == CLOCK_REALTIME && atomic_fetch_add(&readings, 1) >= number("FAULT_JUMP_AFTER"))
        now->tv_sec += jump;
    return failed;
}

__attribute__((destructor)) static void say_count(void) {
    const char *file = getenv("FAULT_COUNT");
    char text[32], place[4096];
    if (!file) return;
    snprintf(place, sizeof place, "%s.%d", file, (int)getpid());
    int length = snprintf(text, sizeof text, "%ld", (long)writes);
    int descriptor = open(place, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (descriptor < 0) return;
    if (REAL(write)(descriptor, text, (size_t)length) != length) unlink(place);
    close(descriptor);
}
