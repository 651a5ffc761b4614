/* bridge.py in C, for init.c. See there for what it does and why. */

#define _GNU_SOURCE
#include "bridge.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define CHUNK_BYTES (1 << 16)
#define CONNECTIONS 256
#define SPARE_FILES 32
#define EVENTS 64
#define MOST_BRIDGES 16

struct listener {
    int fd, port, server;
};

/* One of the two sockets of a connection. */
struct end {
    struct end *peer;
    int fd, is_client, ended; /* `ended`: it has sent its last byte */
    uint32_t watched;         /* 0: not in the epoll */
    char *pending;            /* bytes from the peer that are still to be sent here: `length` of them, from `at` */
    size_t at, length;
};

static struct listener listeners[MOST_BRIDGES];
static int listener_count, epoll = -1, accepting;
static struct end **ends; /* by descriptor */
static size_t ends_room, open_ends, most_ends;

int bridge_add(const char *word) {
    struct listener *made = listeners + listener_count;
    if (listener_count == MOST_BRIDGES || sscanf(word, "%d=%d", &made->port, &made->server) != 2)
        fail(EINVAL, word);
    listener_count++;
    return made->server;
}

int bridge_epoll(void) {
    return epoll;
}

static void watch(int operation, int fd, uint32_t wanted) {
    struct epoll_event event = {.events = wanted, .data.fd = fd};
    if (epoll_ctl(epoll, operation, fd, &event))
        fail(errno, "epoll");
}

static void accept_more(int wanted) {
    for (int i = 0; i < listener_count && wanted != accepting; i++)
        watch(wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listeners[i].fd, EPOLLIN);
    accepting = wanted;
}

void bridge_listen(void) {
    struct rlimit files;
    if (!listener_count)
        return;
    if (getrlimit(RLIMIT_NOFILE, &files) || (epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        fail(errno, "epoll");
    size_t room = files.rlim_cur > SPARE_FILES + 2 ? (files.rlim_cur - SPARE_FILES) / 2 : 1;
    most_ends = 2 * (room < CONNECTIONS ? room : CONNECTIONS);
    for (int i = 0; i < listener_count; i++) {
        struct listener *each = listeners + i;
        struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)each->port)};
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (fcntl(each->server, F_SETFD, FD_CLOEXEC))
            fail(errno, "a descriptor of a bridge");
        each->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (each->fd < 0 || setsockopt(each->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) ||
            bind(each->fd, (struct sockaddr *)&here, sizeof here) || listen(each->fd, CONNECTIONS)) {
            char what[64];
            snprintf(what, sizeof what, "cannot listen on port %d", each->port);
            fail(errno, what);
        }
    }
    accept_more(1);
}

static void reset_on_close(int fd) {
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
}

/* Wait for the events that this end can use now. */
static void watch_end(struct end *end) {
    uint32_t wanted = (end->ended || end->peer->length ? 0 : EPOLLIN) | (end->length ? EPOLLOUT : 0);
    if (wanted != end->watched)
        watch(!wanted ? EPOLL_CTL_DEL : end->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, end->fd, wanted);
    end->watched = wanted;
}

static void close_end(struct end *end, int reset) {
    if (reset && end->is_client)
        reset_on_close(end->fd);
    ends[end->fd] = NULL;
    close(end->fd); /* the epoll forgets it by itself */
    free(end->pending);
    free(end);
    open_ends--;
}

/* End a connection on both sides. */
static void close_both(struct end *end, int reset) {
    struct end *peer = end->peer;
    close_end(end, reset);
    close_end(peer, reset);
    if (!accepting)
        accept_more(1);
}

static struct end *make_end(int fd, int is_client) {
    if ((size_t)fd >= ends_room) {
        size_t room = 2 * (size_t)fd + 64;
        if (!(ends = realloc(ends, room * sizeof *ends)))
            fail(errno, "bridge");
        memset(ends + ends_room, 0, (room - ends_room) * sizeof *ends);
        ends_room = room;
    }
    struct end *made = calloc(1, sizeof *made);
    if (!made)
        fail(errno, "bridge");
    made->fd = fd;
    made->is_client = is_client;
    open_ends++;
    return ends[fd] = made;
}

/* Connect a waiting client; reset it when no server listens on the host's side. */
static void accept_one(const struct listener *from) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    if (open_ends >= most_ends)
        return;
    int client = accept4(from->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0) /* gone again */
        return;
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    snprintf(place.sun_path, sizeof place.sun_path, "/proc/self/fd/%d", from->server);
    if (server < 0 || connect(server, (struct sockaddr *)&place, sizeof place)) {
        reset_on_close(client); /* no server listens, or too many clients wait there already */
        close(client);
        if (server >= 0)
            close(server);
        return;
    }
    struct end *one = make_end(client, 1), *other = make_end(server, 0);
    one->peer = other;
    other->peer = one;
    watch_end(one);
    watch_end(other);
    if (open_ends >= most_ends)
        accept_more(0);
}

/* Send the pending bytes, as far as the socket takes them. -1 when the other side is gone. */
static int flush(struct end *end) {
    if (!end->length)
        return 0;
    ssize_t sent = send(end->fd, end->pending + end->at, end->length, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN ? 0 : -1;
    end->at += (size_t)sent;
    end->length -= (size_t)sent;
    if (end->length)
        return 0;
    free(end->pending);
    end->pending = NULL;
    return end->peer->ended ? shutdown(end->fd, SHUT_WR) : 0;
}

/* Pass one chunk to the peer, unless the last one is still pending there. -1 when one side is gone. */
static int receive(struct end *end) {
    static char chunk[CHUNK_BYTES];
    struct end *peer = end->peer;
    if (end->ended || peer->length)
        return 0;
    ssize_t length = recv(end->fd, chunk, sizeof chunk, 0);
    if (length < 0)
        return errno == EAGAIN ? 0 : -1;
    if (!length) {
        end->ended = 1;
        return shutdown(peer->fd, SHUT_WR);
    }
    if (!(peer->pending = malloc((size_t)length)))
        return -1;
    memcpy(peer->pending, chunk, (size_t)length);
    peer->at = 0;
    peer->length = (size_t)length;
    return flush(peer);
}

void bridge_serve_ready(void) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd, is_listener = 0;
        for (int j = 0; j < listener_count; j++)
            if (listeners[j].fd == fd) {
                accept_one(listeners + j);
                is_listener = 1;
            }
        /* Within these events a descriptor may have been closed and reused: then it has nothing to do yet. */
        struct end *end = is_listener || (size_t)fd >= ends_room ? NULL : ends[fd];
        if (!end)
            continue;
        if (flush(end) || receive(end))
            close_both(end, 1);
        else if (end->ended && end->peer->ended && !end->length && !end->peer->length)
            close_both(end, 0);
        else {
            watch_end(end);
            watch_end(end->peer);
        }
    }
}
