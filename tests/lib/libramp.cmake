# The shim: its mapping table, programs that know nothing of rampfs, and its protocol against a
# daemon of the test's own.
set(shim_tests ${CMAKE_CURRENT_LIST_DIR})
rampfs_test(NAME ranges SOURCES ${shim_tests}/test_ranges.c ${CMAKE_SOURCE_DIR}/libramp/ranges.c LABELS quick)
target_include_directories(test_ranges PRIVATE ${CMAKE_SOURCE_DIR}/libramp)
rampfs_script_test(NAME shim_compat COMMAND ${shim_tests}/compat.sh LABELS quick)
