/*
 * Two nodes with a ball each throw them to each other (RAMP's ping-pong of two segments).
 *   c++ -std=c++17 pingpong.cpp -o pingpong $(pkg-config --cflags --libs libramp)
 *   ./pingpong NODE TIMES          on one node: waits for the other's ball, and throws its own
 *   ./pingpong NODE TIMES begin    on the other, when the first says that it waits
 * NODE is the other one. RAMPFS_MOUNT names the mount where there are several.
 */
#include <chrono>
#include <iostream>
#include <ramp_container.hpp>

using ball = ramp::container<long>; /* how often it was caught */

int main(int argc, char **argv)
{
	if (argc < 3)
		return std::cerr << "Usage: pingpong NODE TIMES [begin]\n", 2;
	auto ramp = ramp::cluster::open();
	ramp::receiver arrivals(ramp, "ball-*");
	auto mine = ball::make(ramp, (std::string("ball-") + ramp.node()).c_str());
	bool begins = argc > 3;
	std::cout << "node " << ramp.node() << (begins ? " begins" : " waits") << std::endl;
	auto since = std::chrono::steady_clock::now();

	for (int n = std::stoi(argv[2]); n > 0; n--) {
		if (begins)
			mine.migrate(argv[1]);
		auto theirs = ball::receive(arrivals);
		++*theirs;
		if (!begins)
			mine.migrate(argv[1]);
		mine = std::move(theirs);
	}
	std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - since;

	std::cerr << took.count() / std::stoi(argv[2]) / 2 << " ms a throw\n";
	std::cout << "node " << ramp.node() << " has a ball that was caught " << *mine
		  << " times\n";
	mine.destroy();
}
