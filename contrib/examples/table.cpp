/*
 * A hash table in partitions, each of which is on some node, and moves from node to node (Slope's hash table).
 *   c++ -std=c++17 table.cpp -o table $(pkg-config --cflags --libs libramp) -pthread
 *   ./table          on every node; it reads lines and answers each with one:
 *     make PARTITION | put PARTITION KEY VALUE | get PARTITION KEY | move PARTITION NODE | list
 * RAMPFS_MOUNT names the mount where there are several.
 */
#include <iostream>
#include <ramp_host.hpp>
#include <sstream>

struct partition {
	explicit partition(const char *its_name) : name(its_name)
	{
	}
	ramp::string name;
	ramp::unordered_map<ramp::string, ramp::string> pairs;
};

static std::mutex lock; /* protects what follows, and the partitions in it */
static std::map<std::string, ramp::mig_ptr<partition>> here;

static std::string answer(ramp::host<partition> &host, const std::string &verb,
			  const std::string &name, const std::string &key, const std::string &value)
{
	if (verb == "make")
		return host.make(("table-" + name).c_str(), name.c_str()), "made";
	std::lock_guard<std::mutex> guard(lock);
	std::string names;
	for (auto &each : here)
		names += each.first + " ";
	if (verb == "list")
		return names.empty() ? "none" : names.substr(0, names.size() - 1);
	auto at = here.find(name);
	if (at == here.end())
		return name + " is not here";
	auto in = at->second.in();
	auto &pairs = at->second->pairs;
	if (verb == "put")
		return pairs[key.c_str()] = value.c_str(), "put";
	if (verb == "get")
		return pairs.count(key.c_str()) ? pairs[key.c_str()].c_str() : "none";
	if (verb != "move")
		return "make, put, get, move or list";
	host.migrate(at->second, key.c_str());
	here.erase(at);
	return "moved";
}

int main()
{
	auto ramp = ramp::cluster::open();
	/* For a partition that is made here, for one that an earlier process has left, and for one that arrives. */
	ramp::host<partition> host(ramp, "table-*", [](auto p) {
		std::lock_guard<std::mutex> guard(lock);
		here.insert_or_assign(p->name.c_str(), std::move(p));
	});
	host.adopt();
	host.start([](const std::exception &e) { std::cerr << e.what() << "\n"; });
	for (std::string line; std::getline(std::cin, line);) {
		std::string verb, name, key, value;
		std::istringstream(line) >> verb >> name >> key >> value;
		try {
			std::cout << answer(host, verb, name, key, value) << std::endl;
		} catch (const std::exception &e) {
			std::cout << e.what() << std::endl;
		}
	}
}
