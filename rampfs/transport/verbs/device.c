/*
 * This node's RDMA device. See device.h.
 */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/wire.h"
#include "transport/endpoint.h"

#define DEVICE_CM_FILE "/dev/infiniband/rdma_cm"
#define PORT_TRIES     16
#define DEVICE_BACKLOG 64
#define DEVICE_READS   16 /* as many as most adapters have */

struct domain {
	LIST_ENTRY(domain) entry;
	ramp_node_t node;
	struct ibv_pd *pd;
};

struct device {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener; /* keeps the context open */
	struct sockaddr_storage address;
	uint8_t challenge[PROOF_CHALLENGE_BYTES];
	uint8_t reads;
	pthread_mutex_t lock;
	LIST_HEAD(, domain) domains; /* protected by lock */
};

static void device_clear_port(struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)address)->sin6_port = 0;
	else
		((struct sockaddr_in *)address)->sin_port = 0;
}

int device_resolve(const char *address, struct device_addresses *out, struct ramp_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct addrinfo *list, *at;
	int rc = endpoint_split(address, host, sizeof(host), port, sizeof(port), err);

	out->n = 0;
	if (rc)
		return rc;
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc)
		return ramp_err_set(err, ENODEV, "%s: %s", address, gai_strerror(rc));
	for (at = list; at && out->n < sizeof(out->at) / sizeof(out->at[0]); at = at->ai_next) {
		struct sockaddr_storage *to = &out->at[out->n];

		memset(to, 0, sizeof(*to));
		memcpy(to, at->ai_addr, at->ai_addrlen);
		if (to->ss_family == AF_INET6 &&
		    IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)to)->sin6_addr)) {
			rc = ramp_err_set(err, ENODEV,
					  "%s is a link-local address, which others can't dial "
					  "over RDMA: give the node a global or fd00:: address",
					  host);
			continue;
		}
		device_clear_port(to);
		out->n++;
	}
	freeaddrinfo(list);
	return out->n ? 0 : rc;
}

/* 0, or -ENODEV: this machine has no RDMA device at all. Without this the libraries would write lines of their own. */
static int device_any(struct ramp_err *err)
{
	struct ibv_device **list;
	int n = 0;

	if (access(DEVICE_CM_FILE, R_OK | W_OK) && errno != ENOENT)
		return ramp_err_sys(err, errno, DEVICE_CM_FILE);
	if (access(DEVICE_CM_FILE, R_OK | W_OK))
		return ramp_err_set(err, ENODEV,
				    "this machine has no RDMA device (module rdma_ucm)");
	list = ibv_get_device_list(&n);
	if (list)
		ibv_free_device_list(list);
	return n > 0 ? 0 : ramp_err_set(err, ENODEV, "this machine has no RDMA device");
}

/* Makes an id of the channel that listens at the address. 0; else -errno, of which EADDRINUSE may pass. */
static int device_listen_once(struct device *device, const struct sockaddr_storage *at)
{
	struct sockaddr_storage bound = *at;
	int code;

	if (rdma_create_id(device->channel, &device->listener, NULL, RDMA_PS_TCP)) {
		code = errno;
		device->listener = NULL;
		return code > 0 ? -code : -EIO;
	}
	if (!rdma_bind_addr(device->listener, (struct sockaddr *)&bound) &&
	    device->listener->verbs && !rdma_listen(device->listener, DEVICE_BACKLOG))
		return 0;
	code = device->listener->verbs ? errno : ENODEV;
	rdma_destroy_id(device->listener);
	device->listener = NULL;
	return code > 0 ? -code : -ENODEV;
}

/* Listens at the address, at a port that the kernel chooses. An iWARP device listens there by a TCP socket,
   whose port may be taken, while the port that was chosen was free among RDMA's: then it is another one's
   turn. 0 where the address is on a device. */
static int device_bind(struct device *device, const struct sockaddr_storage *at,
		       struct ramp_err *err)
{
	struct endpoint_address where = {.sa = *at,
					 .len = at->ss_family == AF_INET6
							? sizeof(struct sockaddr_in6)
							: sizeof(struct sockaddr_in)};
	char text[ENDPOINT_TEXT_BYTES];
	int rc = -EADDRINUSE;

	for (int tries = 0; rc == -EADDRINUSE && tries < PORT_TRIES; tries++)
		rc = device_listen_once(device, at);
	if (device->listener)
		return 0;
	endpoint_address_text(&where, text);
	ramp_err_sys(err, -rc, "no RDMA device takes connections at %.*s",
		     (int)(strrchr(text, ':') - text), text);
	err->code = ENODEV;
	return -ENODEV;
}

static int device_setup(struct device *device, struct ramp_err *err)
{
	struct ibv_context *context = device->listener->verbs;
	struct ibv_device_attr attr;
	struct wire_w w;
	int rc = ibv_query_device(context, &attr);

	if (rc)
		return ramp_err_sys(err, rc, "%s: its limits", device_name(device));
	if (attr.max_qp_rd_atom < 1)
		return ramp_err_set(err, ENODEV, "%s answers no RDMA READ", device_name(device));
	device->reads =
		attr.max_qp_rd_atom < DEVICE_READS ? (uint8_t)attr.max_qp_rd_atom : DEVICE_READS;
	memcpy(&device->address, rdma_get_local_addr(device->listener),
	       rdma_get_local_addr(device->listener)->sa_family == AF_INET6
		       ? sizeof(struct sockaddr_in6)
		       : sizeof(struct sockaddr_in));
	device_clear_port(&device->address);
	wire_w_init(&w, device->challenge, sizeof(device->challenge));
	wire_put_u64(&w, ramp_random64());
	wire_put_u64(&w, ramp_random64());
	if (fcntl(device->channel->fd, F_SETFL, O_NONBLOCK) ||
	    fcntl(context->async_fd, F_SETFL, O_NONBLOCK))
		return ramp_err_sys(err, errno, "%s: its events", device_name(device));
	return 0;
}

int device_open(const struct device_addresses *addresses, struct device **out, struct ramp_err *err)
{
	struct device *device;
	int rc = device_any(err);

	if (rc)
		return rc;
	device = calloc(1, sizeof(*device));
	if (!device)
		return ramp_err_sys(err, ENOMEM, "RDMA device");
	pthread_mutex_init(&device->lock, NULL);
	device->channel = rdma_create_event_channel();
	if (!device->channel)
		rc = ramp_err_sys(err, errno ? errno : ENODEV, "RDMA connection manager");
	for (unsigned i = 0; i < addresses->n && device->channel && !device->listener; i++)
		rc = device_bind(device, &addresses->at[i], err);
	if (!rc)
		rc = device_setup(device, err);
	if (rc) {
		device_close(device);
		return rc;
	}
	*out = device;
	return 0;
}

void device_close(struct device *device)
{
	struct domain *domain;

	while ((domain = LIST_FIRST(&device->domains))) {
		LIST_REMOVE(domain, entry);
		ibv_dealloc_pd(domain->pd);
		free(domain);
	}
	if (device->listener)
		rdma_destroy_id(device->listener);
	if (device->channel)
		rdma_destroy_event_channel(device->channel);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

/* The numbers stay taken: librdmacm closes them some day. */
void device_abandon(struct device *device)
{
	struct ibv_context *context = device->listener->verbs;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	while (!LIST_EMPTY(&device->domains)) {
		struct domain *domain = LIST_FIRST(&device->domains);

		LIST_REMOVE(domain, entry);
		ibv_dealloc_pd(domain->pd);
		free(domain);
	}
	(void)dup3(null, context->async_fd, O_CLOEXEC);
	(void)dup3(null, context->cmd_fd, O_CLOEXEC);
	close(null);
}

/* The call looks which devices are there still, and closes the others, now or with the last id. */
void device_let_go(void)
{
	struct ibv_context **list = rdma_get_devices(NULL);

	if (list)
		rdma_free_devices(list);
}

const char *device_name(const struct device *device)
{
	return ibv_get_device_name(device->listener->verbs->device);
}

struct ibv_context *device_context(const struct device *device)
{
	return device->listener->verbs;
}

struct rdma_event_channel *device_channel(const struct device *device)
{
	return device->channel;
}

const struct sockaddr_storage *device_address(const struct device *device)
{
	return &device->address;
}

uint16_t device_port(const struct device *device)
{
	return ntohs(rdma_get_src_port(device->listener));
}

const uint8_t *device_challenge(const struct device *device)
{
	return device->challenge;
}

uint8_t device_reads(const struct device *device)
{
	return device->reads;
}

struct ibv_pd *device_domain(struct device *device, ramp_node_t node)
{
	struct domain *domain;

	pthread_mutex_lock(&device->lock);
	LIST_FOREACH (domain, &device->domains, entry)
		if (domain->node == node)
			goto out;
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		goto out;
	domain->node = node;
	domain->pd = ibv_alloc_pd(device->listener->verbs);
	if (domain->pd) {
		LIST_INSERT_HEAD(&device->domains, domain, entry);
	} else {
		free(domain);
		domain = NULL;
	}
out:
	pthread_mutex_unlock(&device->lock);
	return domain ? domain->pd : NULL;
}
