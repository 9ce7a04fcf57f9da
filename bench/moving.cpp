/*
 * Programs of a paper's figures: they use libramp, and need no rampfs-run.
 *
 *	moving fill MOUNT NAME MIB NODE demand|lazy	a hash table that fills MIB, moved to NODE
 *	moving use MOUNT NAME SECONDS at-once|whole	receives it there, and gets and sets by turns for that many
 *							SECONDS, at once or when all of it has come. Says "waits";
 *							then a line for each 10 and each 100 ms since the arrival:
 *							which of the two, its number, operations, mean and p95 (ns);
 *							and "unavailable MS": until the first operation
 *	moving send MOUNT NODE MIB			makes a segment, stores into each page, connects and transfers
 *							it: us of the one, and of the other
 *	moving pingpong MOUNT NODE MIB TIMES [begin]	two nodes transfer a segment each to each other, the beginner
 *							first; both are prepared. Says "waits"; the beginner then
 *							says, a line for each of the TIMES: half of the time until
 *							it has the other's, and how long neither end could touch
 *							its own (us)
 */
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <thread>

#include <ramp_container.hpp>

#include "bench.h"

using steady = std::chrono::steady_clock;
using value = std::array<std::uint64_t, 16>; /* 128 bytes */
using table = ramp::container<ramp::unordered_map<std::uint64_t, value>>;

static double us_since(steady::time_point since)
{
	return std::chrono::duration<double, std::micro>(steady::now() - since).count();
}

/* ---- a hash table, right after its transfer ------------------------------------------------- */

static int fill(const ramp::cluster &ramp, const char *name, std::uint64_t mib, const char *node,
		bool lazy)
{
	ramp::container_options options;
	struct ramp_heap_stats stats {
	};

	options.max_bytes = mib << 20;
	auto t = table::make(ramp, name, options);
	auto in = t.in();
	t->reserve((mib << 20) / 144);
	for (std::uint64_t key = 0; stats.used < (mib << 20) * 97 / 100; key += 1000) {
		for (std::uint64_t i = 0; i < 1000; i++)
			(*t)[key + i].fill(key + i);
		ramp_heap_stats(t.heap(), &stats);
	}
	std::cout << t->size() << " entries" << std::endl;
	t.migrate(node, lazy ? RAMP_LAZY : RAMP_DEMAND);
	return 0;
}

/* The time that each operation took, in their order. */
struct record {
	explicit record(double seconds) : took_ns(static_cast<std::size_t>(seconds * 12e6), 1)
	{
		took_ns.clear(); /* its pages stay */
	}
	std::vector<std::uint32_t> took_ns;
	std::vector<std::size_t> ends; /* of each 10 ms: how many operations have ended */

	void add(double since_arrival_us, std::uint32_t ns)
	{
		while (ends.size() < static_cast<std::size_t>(since_arrival_us / 1e4))
			ends.push_back(took_ns.size());
		took_ns.push_back(ns);
	}
	void say(std::size_t first, std::size_t behind, int window_ms, std::size_t number) const
	{
		std::vector<std::uint32_t> of(took_ns.begin() + static_cast<std::ptrdiff_t>(first),
					      took_ns.begin() +
						      static_cast<std::ptrdiff_t>(behind));
		double sum = 0;

		for (std::uint32_t ns : of)
			sum += ns;
		std::sort(of.begin(), of.end());
		std::cout << window_ms << " " << number << " " << of.size() << " "
			  << (of.empty() ? 0 : sum / static_cast<double>(of.size())) << " "
			  << (of.empty() ? 0 : of[of.size() * 95 / 100]) << "\n";
	}
	void say_all() const
	{
		for (std::size_t w = 0; w < ends.size(); w++)
			say(w ? ends[w - 1] : 0, ends[w], 10, w);
		for (std::size_t w = 0; w + 10 <= ends.size(); w += 10)
			say(w ? ends[w - 1] : 0, ends[w + 9], 100, w / 10);
	}
};

static void await(const ramp::receiver &arrivals, ramp_event_kind kind, ramp_event *event)
{
	do {
		ramp::detail::must(ramp_watch_next(arrivals.get(), -1, event));
	} while (event->kind != kind);
}

static int use(const ramp::cluster &ramp, const char *name, double seconds, bool whole)
{
	ramp::receiver arrivals(ramp, name);
	std::uint64_t random = 88172645463325252u, sum = 0;
	record all(seconds);
	ramp_event event;

	std::cout << "waits" << std::endl;
	await(arrivals, RAMP_ARRIVED, &event);
	steady::time_point arrival = steady::now();
	auto t = table::open_id(ramp, event.id);
	if (whole)
		await(arrivals, RAMP_WHOLE, &event);
	std::uint64_t entries = t->size();
	double first_us = us_since(arrival), now_us = first_us;

	for (unsigned i = 0; now_us < first_us + seconds * 1e6; i++) {
		next_random(&random);
		double begin_us = now_us;
		value &found = t->find(random % entries)->second;
		if (i % 2)
			found.fill(i);
		else
			for (std::uint64_t x : found)
				sum += x;
		now_us = us_since(arrival);
		all.add(now_us, static_cast<std::uint32_t>((now_us - begin_us) * 1e3));
	}
	all.say_all();
	std::cout << "unavailable " << first_us / 1e3 << "\n";
	t.destroy();
	return sum == 1; /* the loads are made */
}

/* ---- segments of a size --------------------------------------------------------------------- */

static ramp_segment *filled(const ramp::cluster &ramp, const std::string &name, std::uint64_t mib)
{
	struct ramp_alloc what {
	};
	ramp_segment *segment;

	what.name = name.c_str();
	what.size = mib << 20;
	ramp::detail::must(ramp_alloc(ramp, &what, &segment));
	for (std::uint64_t at = 0; at < what.size; at += 4096)
		static_cast<char *>(ramp_data(segment))[at] = 1;
	return segment;
}

static int send(const ramp::cluster &ramp, const char *node, std::uint64_t mib)
{
	ramp::detail::segment_ptr segment(filled(ramp, "sent", mib));
	ramp_move_options options{};
	options.mode = RAMP_DEMAND;
	steady::time_point since = steady::now();

	ramp::detail::must(ramp_connect(segment.get(), node, &options));
	double connect_us = us_since(since);
	since = steady::now();
	ramp::detail::must(ramp_transfer(segment.get()));
	std::cout << connect_us << " " << us_since(since) << "\n";
	return 0;
}

static double last_window_us(const ramp::cluster &ramp)
{
	std::ifstream metrics(std::string(ramp_mount(ramp)) + "/.ramp/metrics");
	std::string name = "rampfs_window_last_microseconds ";

	for (std::string line; std::getline(metrics, line);)
		if (!line.compare(0, name.size(), name))
			return std::stod(line.substr(name.size()));
	return 0;
}

/* Until a segment of that node is on its way to this one. */
static void await_prepared(const ramp::cluster &ramp, const char *node)
{
	struct from_to {
		const char *from, *to;
	} way{node, ramp.node()};
	auto is_it = [](void *arg, const ramp_info *info) {
		auto *wanted = static_cast<from_to *>(arg);
		return !std::strcmp(info->node, wanted->from) &&
				       !std::strcmp(info->target, wanted->to)
			       ? 1
			       : 0;
	};

	while (!ramp::detail::must(ramp_list(ramp, nullptr, is_it, &way)))
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

static int pingpong(const ramp::cluster &ramp, const char *node, std::uint64_t mib, int times,
		    bool begins)
{
	ramp::receiver arrivals(ramp, "ball-*");
	ramp::detail::segment_ptr mine(filled(ramp, std::string("ball-") + ramp.node(), mib));
	ramp_segment *theirs;

	std::cout << "waits" << std::endl;
	while (times--) {
		ramp::detail::must(ramp_connect(mine.get(), node, nullptr));
		ramp::detail::must(ramp_prepare(mine.get()));
		if (begins)
			await_prepared(ramp, node);
		steady::time_point since = steady::now();
		if (begins)
			ramp::detail::must(ramp_transfer(mine.get()));
		ramp::detail::must(ramp_receive(arrivals.get(), -1, 0, &theirs));
		double took_us = us_since(since);
		if (begins)
			std::cout << took_us / 2 << " " << last_window_us(ramp) << std::endl;
		else
			ramp::detail::must(ramp_transfer(mine.get()));
		mine.reset(theirs); /* the next connect waits until all of its pages are here */
	}
	return 0;
}

int main(int argc, char **argv)
{
	std::vector<std::string> arg(argv + 1, argv + argc);

	try {
		auto ramp = ramp::cluster::open(arg.at(1).c_str());
		if (arg.at(0) == "fill")
			return fill(ramp, argv[3], std::stoul(arg.at(3)), arg.at(4).c_str(),
				    arg.at(5) == "lazy");
		if (arg.at(0) == "use")
			return use(ramp, argv[3], std::stod(arg.at(3)), arg.at(4) == "whole");
		if (arg.at(0) == "send")
			return send(ramp, argv[3], std::stoul(arg.at(3)));
		if (arg.at(0) == "pingpong")
			return pingpong(ramp, argv[3], std::stoul(arg.at(3)), std::stoi(arg.at(4)),
					arg.size() > 5);
	} catch (const std::exception &e) {
		std::cerr << "moving: " << e.what() << "\n";
	}
	return 1;
}
