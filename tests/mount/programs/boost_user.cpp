/*
 * A foreign C++ program: a Boost.Interprocess managed_mapped_file, with a map in it whose
 * keys and values follow from each other, and plain pointers to the map's nodes.
 *
 *	boost_user make|check FILE COUNT
 *
 * make fills the map up to COUNT entries, check looks at COUNT of them, both also through the
 * pointers; then they print the address of the map. Exit status 1: an entry is not as it was.
 */
#include <boost/interprocess/containers/map.hpp>
#include <boost/interprocess/containers/string.hpp>
#include <boost/interprocess/managed_mapped_file.hpp>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace bi = boost::interprocess;
using Manager = bi::managed_mapped_file::segment_manager;
using Text = bi::basic_string<char, std::char_traits<char>, bi::allocator<char, Manager>>;
using Node = std::pair<const int, Text>;
using Map = bi::map<int, Text, std::less<int>, bi::allocator<Node, Manager>>;

static std::string text_of(int key)
{
	return std::string(static_cast<size_t>(key % 50 + 20), static_cast<char>('a' + key % 26));
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	bool make = std::strcmp(argv[1], "make") == 0;
	int count = std::atoi(argv[3]);
	bi::managed_mapped_file file(bi::open_or_create, argv[2], 32 << 20);
	auto *map =
		file.find_or_construct<Map>("map")(std::less<int>(), file.get_segment_manager());
	/* Plain pointers hold because a segment has one address in every process of every node. */
	auto **plain = file.find_or_construct<const Node *>("plain")[100000](nullptr);

	for (int key = static_cast<int>(map->size()); make && key < count; key++)
		plain[key] =
			&*map->emplace(key, Text(text_of(key).c_str(), file.get_segment_manager()))
				  .first;
	if (map->size() != static_cast<size_t>(count))
		return 1;
	for (int key = 0; key < count; key++)
		if (map->at(key) != text_of(key).c_str() || plain[key]->first != key ||
		    plain[key]->second != text_of(key).c_str())
			return 1;
	std::cout << map << std::endl;
	return 0;
}
