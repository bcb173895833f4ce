/* Writes down, in their order, the calls that put the journal on disk and bytes on the
 * network: a library to preload into the daemon (test_system_calls.py builds and reads it).
 *
 * Each record is one write to a file that is appended to, JOURNAL_CALLS, so the kernel
 * orders them.  A write is recorded once it has returned, a sync and a send before and
 * after: what stands behind another record did happen after it.  Files are those under
 * JOURNAL_UNDER, sockets those of TCP on IPv4.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int calls;
static const char *under;

__attribute__((constructor)) static void begin(void) {
    under = getenv("JOURNAL_UNDER");
    calls = open(getenv("JOURNAL_CALLS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unsetenv("LD_PRELOAD"); /* its children are not meant */
}

/* The path of a file that is meant, else false. */
static int file(int fd, char *name) {
    char link[64];
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, name, PATH_MAX - 1);
    name[size < 0 ? 0 : size] = 0;
    return under && !strncmp(name, under, strlen(under));
}

/* "PORT PEER:PORT" of a connection, else false. */
static int connection(int fd, char *name) {
    struct sockaddr_in here, peer;
    socklen_t size = sizeof here, other = sizeof peer;
    if (getsockname(fd, (void *)&here, &size) || getpeername(fd, (void *)&peer, &other))
        return 0;
    sprintf(name, "%d %s:%d", ntohs(here.sin_port), inet_ntoa(peer.sin_addr),
            ntohs(peer.sin_port));
    return peer.sin_family == AF_INET;
}

/* *result* is what the call returned; with *data*, so many bytes of that are recorded. */
static void record(char kind, const char *name, ssize_t result, off_t offset,
                   const struct iovec *data) {
    int before = errno;
    struct { int32_t kind, thread; int64_t result, offset; uint32_t name, data; } head = {
        kind, gettid(), result, offset, strlen(name), data && result > 0 ? result : 0};
    size_t left = head.data, size = sizeof head + head.name;
    char *all = malloc(size + left);
    memcpy(all, &head, sizeof head);
    memcpy(all + sizeof head, name, head.name);
    for (size_t some; left; data++, size += some, left -= some) {
        some = data->iov_len < left ? data->iov_len : left;
        memcpy(all + size, data->iov_base, some);
    }
    if (write(calls, all, size) != (ssize_t)size)
        abort();
    free(all);
    errno = before;
}

ssize_t writev(int fd, const struct iovec *data, int parts) {
    char name[PATH_MAX];
    ssize_t done = REAL(writev)(fd, data, parts);
    if (done > 0 && file(fd, name))
        record('w', name, done, lseek(fd, 0, SEEK_CUR) - done, data);
    return done;
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    char name[PATH_MAX];
    if (!connection(fd, name))
        return REAL(send)(fd, data, size, flags);
    record('t', name, 0, 0, NULL);
    ssize_t done = REAL(send)(fd, data, size, flags);
    record('T', name, done, 0, &(struct iovec){(void *)data, size});
    return done;
}

/* Reads are slow and small, so that what was sent together comes in several batches. */
ssize_t recv(int fd, void *data, size_t size, int flags) {
    usleep(300);
    return REAL(recv)(fd, data, size < 256 ? size : 256, flags);
}

/* What a fortified Python calls. */
ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags) {
    (void)room;
    return recv(fd, data, size, flags);
}

static int sync_with(int (*real)(int), int fd) {
    char name[PATH_MAX];
    if (!file(fd, name))
        return real(fd);
    record('s', name, 0, 0, NULL);
    usleep(5000); /* as on a disk: what does not wait for it comes before its end */
    int result = real(fd);
    record('S', name, result, 0, NULL);
    return result;
}

int fdatasync(int fd) { return sync_with(REAL(fdatasync), fd); }

int fsync(int fd) { return sync_with(REAL(fsync), fd); }
