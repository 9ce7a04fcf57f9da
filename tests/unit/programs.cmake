# The program that the tests command. It takes the few files of base that it needs unsanitized.
add_executable(programs_prog unit/programs_prog.c ${CMAKE_SOURCE_DIR}/libramp/base/session.c
  ${CMAKE_SOURCE_DIR}/libramp/base/wire.c)
set_target_properties(programs_prog PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_include_directories(programs_prog PRIVATE ${CMAKE_SOURCE_DIR}/libramp)
target_link_libraries(programs_prog PRIVATE Threads::Threads rampfs_flags)

# programs_test(NAME): of the programs floor, over programs_world.h.
function(programs_test name)
  rampfs_test(NAME ${name} SOURCES unit/test_${name}.c unit/programs_world.c unit/programs_orders.c
    unit/memory_fixture.c NEEDS programs memory meta base_loop base LABELS quick threads TIMEOUT 300)
  target_compile_definitions(test_${name} PRIVATE PROG_PATH="$<TARGET_FILE:programs_prog>")
  add_dependencies(test_${name} programs_prog)
endfunction()
foreach(part programs sessions strangers doors)
  programs_test(${part})
endforeach()
programs_test(stretches)
# To register and to unregister fails; a program has very many mappings.
target_link_options(test_stretches PRIVATE -Wl,--wrap=kernel_uffd_register
  -Wl,--wrap=kernel_uffd_unregister -Wl,--wrap=mappings_count)
foreach(part strangers doors)
  target_sources(test_${part} PRIVATE unit/stranger.c)
endforeach()
# The kernel's answer to a read of page faults is changed.
target_link_options(test_programs PRIVATE -Wl,--wrap=preadv2)
# A program does something between two looks at it.
target_link_options(test_sessions PRIVATE -Wl,--wrap=fsopen,--wrap=kernel_uffd_register)
# One program mremaps all the time.
target_link_options(test_strangers PRIVATE -Wl,--wrap=kernel_uffd_continue)
# The first look at /proc is held until all callers have come.
rampfs_test(NAME search SOURCES unit/test_search.c NEEDS programs LABELS quick threads)
target_link_options(test_search PRIVATE -Wl,--wrap=bounded_look)
