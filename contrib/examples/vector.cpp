/*
 * A vector is filled, and moves to a node that adds it up: nothing is copied, or written in another form (Slope's vector).
 *   c++ -std=c++17 vector.cpp -o vector $(pkg-config --cflags --libs libramp)
 *   ./vector --receive          on the other node
 *   ./vector NODE               on this one, when the other says that it waits
 * RAMPFS_MOUNT names the mount where there are several.
 */
#include <iostream>
#include <numeric>
#include <ramp_container.hpp>

using numbers = ramp::container<ramp::vector<std::uint32_t>>;

int main(int argc, char **argv)
{
	if (argc != 2)
		return std::cerr << "Usage: vector NODE | vector --receive\n", 2;
	auto ramp = ramp::cluster::open();

	if (std::string(argv[1]) != "--receive") {
		auto v = numbers::make(ramp, "vector");
		auto in = v.in();
		v->resize(4000000);
		std::iota(v->begin(), v->end(), 0);
		v.migrate(argv[1]);
	} else {
		ramp::receiver arrivals(ramp, "vector");
		std::cout << "node " << ramp.node() << " waits" << std::endl;
		auto v = numbers::receive(arrivals);
		std::cout << "the sum of " << v->size() << " numbers is "
			  << std::accumulate(v->begin(), v->end(), std::uint64_t(0)) << "\n";
		v.destroy();
	}
}
