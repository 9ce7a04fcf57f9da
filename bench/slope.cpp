/*
 * Programs of Slope's figures, which use libramp (bench/run precopy).
 *
 *	slope vector MOUNT NODE PAGES small|huge clean|dirty|lazy
 *						a vector of numbers that fills PAGES: made, connected, copied ahead,
 *						stored into once a page (dirty), handed over. Or moved lazily. Says in ms
 *						how long the copying ahead, the stores, and all that followed took
 *	slope two MOUNT NAME NODE		hands a segment over in two steps, as soon as NODE has read it ahead. Says in ms how
 *						long it took to close it to stores, and to hand it over from there
 *	slope source MOUNT NAME MIB small|huge	a partition of a hash table: makes it, and works in it; at a line from stdin
 *						it inserts no more
 *	slope target MOUNT NAME			receives it, and works in it
 *
 * In a partition one thread inserts a new key, stores into a value, loads a value, by turns. Both say "ready", and end when their stdin
 * does; then they say what `ahead` says (ahead.c), a line for each of the three.
 */
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <sys/xattr.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <ramp_container.hpp>

#include "bench.h"

/* ---- a partition of a hash table: Slope's "MP" ------------------------------------------------ */

using partition = ramp::container<ramp::map<std::uint64_t, std::uint64_t>>;

static constexpr unsigned kinds = 3;
static constexpr std::size_t longest_ms = 120000;
static const char *const names[kinds] = {"insert", "update", "read"};

struct account {
	double first_s = 0, last_s = 0;
	std::vector<std::uint32_t> counts = std::vector<std::uint32_t>(longest_ms);
};

static account accounts[kinds];
static double began_s;
static std::atomic<bool> over, inserts{true};
static sigjmp_buf gone;

static double now_s()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

static void on_signal(int)
{
	siglongjmp(gone, 1);
}

static std::uint64_t key(std::uint64_t n)
{
	return n * UINT64_C(0x9e3779b97f4a7c15);
}

static void note(unsigned kind, double at_s)
{
	account &a = accounts[kind];
	auto ms = static_cast<std::size_t>((at_s - began_s) * 1e3);

	if (a.first_s == 0)
		a.first_s = now_s();
	a.last_s = at_s;
	if (ms < longest_ms)
		a.counts[ms]++;
}

/* Until stdin ends. A segment that leaves ends it before: inserts are over by then, so no call was cut off that allocates, and the
   heap is closed, for the other node to open it. */
static void work(partition &p, std::uint64_t size)
{
	std::uint64_t random = 88172645463325252u, sum = 0;
	bool closed = false;
	auto &map = *p;

	for (unsigned i = 0; !over; i++) {
		next_random(&random);
		double at_s = now_s();
		unsigned kind = i % kinds;

		if (!inserts && !closed) {
			ramp_heap_close(p.heap());
			closed = true;
		}
		if (kind == 0 && closed)
			continue;
		if (kind == 0)
			map.emplace(key(size++), i);
		else if (kind == 1)
			map.find(key(random % size))->second = i;
		else
			sum += map.find(key(random % size))->second;
		note(kind, at_s);
	}
	if (sum == 1) /* the loads are made */
		std::cout << "\n";
}

static void say()
{
	for (unsigned k = 0; k < kinds; k++) {
		const account &a = accounts[k];
		auto ms = static_cast<std::size_t>(a.first_s > 0 ? (a.first_s - began_s) * 1e3 : 0);
		auto last =
			static_cast<std::size_t>(a.first_s > 0 ? (a.last_s - began_s) * 1e3 : 0);

		std::printf("%s 0 %.6f %.6f %.3f", names[k], a.first_s, a.last_s,
			    began_s * 1e3 + static_cast<double>(ms));
		for (; ms <= last && ms < longest_ms; ms++)
			std::printf(" %u", a.counts[ms]);
		std::puts("");
	}
}

static void listen()
{
	char byte;

	while (read(0, &byte, 1) == 1)
		inserts = false;
	over = true;
}

static void begin()
{
	began_s = now_s();
	std::thread(listen).detach();
	std::cout << "ready" << std::endl;
}

static std::uint64_t fill(partition &p, std::uint64_t mib)
{
	struct ramp_heap_stats stats {
	};
	std::uint64_t size = 0;

	for (; stats.used < mib << 20; ramp_heap_stats(p.heap(), &stats))
		for (unsigned i = 0; i < 1000; i++, size++)
			p->emplace(key(size), size);
	return size;
}

static void work_until_gone(partition &p, const std::uint64_t size)
{
	std::signal(SIGBUS, on_signal);
	if (!sigsetjmp(gone, 1))
		work(p, size);
	while (!over)
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

static void source(const ramp::cluster &ramp, const std::string &name, std::uint64_t mib,
		   const std::string &pages)
{
	ramp::container_options options;
	std::string path = std::string(ramp_mount(ramp)) + "/" + ramp.node() + "/" + name;

	options.max_bytes = (mib + 1024) << 20; /* inserts continue */
	auto p = partition::make(ramp, name.c_str(), options);
	if (pages == "small" &&
	    setxattr(path.c_str(), "user.ramp.pages", pages.data(), pages.size(), 0))
		throw std::system_error(errno, std::generic_category(), path);
	auto in = p.in();
	std::uint64_t size = fill(p, mib);
	begin();
	work_until_gone(p, size);
	say();
	std::fflush(stdout);
	_exit(0); /* its segment is another node's */
}

static void target(const ramp::cluster &ramp, const char *name)
{
	ramp::receiver arrivals(ramp, name);
	ramp_event event;

	begin();
	do {
		ramp::detail::must(ramp_watch_next(arrivals.get(), -1, &event));
	} while (event.kind != RAMP_ARRIVED);
	auto p = partition::open_id(ramp, event.id);
	auto in = p.in();
	work(p, p->size());
	say();
}

/* ---- a vector ------------------------------------------------------------------------------- */

static constexpr std::uint64_t numbers_a_page = 4096 / sizeof(std::uint32_t);

static void move_vector(const ramp::cluster &ramp, const char *node, std::uint64_t pages,
			bool small, const std::string &how)
{
	struct ramp_alloc what {
	};
	ramp_segment *segment;
	ramp_move_options options{};
	double at_s[4];

	what.name = "vector";
	what.size = pages * (small ? 4096 : 2 << 20);
	what.no_huge = small;
	ramp::detail::must(ramp_alloc(ramp, &what, &segment));
	auto *numbers = static_cast<std::uint32_t *>(ramp_data(segment));
	std::iota(numbers, numbers + what.size / sizeof(*numbers), 0);
	options.mode = how == "lazy" ? RAMP_LAZY : RAMP_PRECOPY;
	options.wait_whole = 1;
	at_s[0] = now_s();
	ramp::detail::must(ramp_connect(segment, node, &options));
	if (how != "lazy")
		ramp::detail::must(ramp_prepare(segment));
	at_s[1] = now_s();
	for (std::uint64_t n = 0; how == "dirty" && n < what.size / sizeof(*numbers);
	     n += numbers_a_page)
		numbers[n]++;
	at_s[2] = now_s();
	ramp::detail::must(ramp_transfer(segment));
	at_s[3] = now_s();
	std::printf("%.3f %.3f %.3f\n", (at_s[1] - at_s[0]) * 1e3, (at_s[2] - at_s[1]) * 1e3,
		    (at_s[3] - at_s[2]) * 1e3);
	ramp_put(segment);
}

/* ---- in two steps --------------------------------------------------------------------------- */

static void two_steps(const ramp::cluster &ramp, const char *name, const char *node)
{
	ramp_segment *segment;
	ramp_move_options options{};
	double at_s[3];
	int rc;

	ramp::detail::must(ramp_get(ramp, name, 0, &segment));
	options.mode = RAMP_PRECOPY;
	options.wait_whole = 1;
	ramp::detail::must(ramp_connect(segment, node, &options));
	do { /* the last call is the one that closes it */
		at_s[0] = now_s();
		rc = ramp_try_finish_write(segment);
		if (rc == -EAGAIN)
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
	} while (rc == -EAGAIN);
	ramp::detail::must(rc);
	at_s[1] = now_s();
	ramp::detail::must(ramp_finish_read(segment));
	at_s[2] = now_s();
	std::printf("%.3f %.3f\n", (at_s[1] - at_s[0]) * 1e3, (at_s[2] - at_s[1]) * 1e3);
	ramp_put(segment);
}

int main(int argc, char **argv)
{
	std::vector<std::string> arg(argv + 1, argv + argc);

	try {
		auto ramp = ramp::cluster::open(arg.at(1).c_str());
		if (arg.at(0) == "vector")
			move_vector(ramp, argv[3], std::stoul(arg.at(3)), arg.at(4) == "small",
				    arg.at(5));
		else if (arg.at(0) == "two")
			two_steps(ramp, arg.at(2).c_str(), arg.at(3).c_str());
		else if (arg.at(0) == "source")
			source(ramp, arg.at(2), std::stoul(arg.at(3)), arg.at(4));
		else
			target(ramp, arg.at(2).c_str());
		return 0;
	} catch (const std::exception &e) {
		std::cerr << "slope: " << e.what() << "\n";
	}
	return 1;
}
