# Real clusters under faults. Each test takes a seed: tests/chaos/NAME.sh SEED repeats its choices.
add_executable(chaos_live chaos/live.c)
set_target_properties(chaos_live PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(chaos_live PRIVATE Threads::Threads rampfs_flags)
rampfs_script_test(NAME chaos_kills COMMAND tests/chaos/kills.sh TIMEOUT 600)
rampfs_script_test(NAME chaos_partition COMMAND tests/chaos/partition.sh TIMEOUT 600)
rampfs_script_test(NAME chaos_restarts COMMAND tests/chaos/restarts.sh TIMEOUT 600)
rampfs_script_test(NAME chaos_middle COMMAND tests/chaos/middle.sh 1 2 TIMEOUT 300)
