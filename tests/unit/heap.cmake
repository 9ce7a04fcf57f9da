# The heap's records are looked into: its private headers are below libramp/.
rampfs_test(NAME heap SOURCES unit/test_heap.c unit/heap_fixture.c NEEDS ramp_heap LABELS quick TIMEOUT 120)
target_include_directories(test_heap PRIVATE ${CMAKE_SOURCE_DIR}/libramp)
rampfs_test(NAME heap_kill SOURCES unit/test_heap_kill.c unit/heap_fixture.c NEEDS ramp_heap LABELS quick TIMEOUT 240)
target_include_directories(test_heap_kill PRIVATE ${CMAKE_SOURCE_DIR}/libramp)
rampfs_test(NAME heap_threads SOURCES unit/test_heap_threads.c unit/heap_fixture.c NEEDS ramp_heap LABELS quick threads TIMEOUT 120)
rampfs_test(NAME containers SOURCES unit/test_containers.cpp unit/heap_fixture.c NEEDS ramp_heap LABELS quick TIMEOUT 120)
