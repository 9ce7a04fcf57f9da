rampfs_test(NAME proto SOURCES unit/test_proto.c NEEDS transport base LABELS quick TIMEOUT 60)

# The transfer floor itself over doubles of meta, programs and pull (transfer_world.h).
set(transfer_sources transfer_core.c recovered.c move.c move_message.c move_meta.c figures.c collapse.c traces.c
  move_request_core.c source_list.c source_mode.c source_weigh.c sample.c link_speed.c source_connect.c rounds.c source_hold.c news.c given.c source_window.c target_reserve.c
  target_pull.c copy.c departure.c source_line.c source_prepare.c source_close.c source_rounds.c source_prefill.c target_rounds.c
  source.c target.c prefill.c give_back.c dispatch.c move_request_remote.c move_request.c move_request_peer.c tool_pulls.c tool_give_up.c tool_moves.c registration.c
  transfer.c)
list(TRANSFORM transfer_sources PREPEND ${CMAKE_SOURCE_DIR}/rampfs/transfer/)
rampfs_test(NAME transfer
  SOURCES unit/test_transfer.c unit/transfer_asks.c unit/transfer_steps.c unit/transfer_departs.c unit/transfer_prefills.c unit/transfer_kills.c unit/transfer_world.c unit/transfer_node.c
    unit/transfer_meta.c unit/transfer_local.c unit/transfer_faults.c ${transfer_sources}
  NEEDS memory transport base_loop base LABELS threads TIMEOUT 600)
target_include_directories(test_transfer PRIVATE ${CMAKE_SOURCE_DIR})
target_link_options(test_transfer PRIVATE
  -Wl,--wrap=peer_send -Wl,--wrap=record_change -Wl,--wrap=store_remove -Wl,--wrap=reserve_memory
  -Wl,--wrap=collapse_segment -Wl,--wrap=populated_list -Wl,--wrap=link_speed)
add_test(NAME transfer_copy COMMAND test_transfer copy)
add_test(NAME transfer_precopy COMMAND test_transfer precopy)
# The longest tests that run beside others: they begin first.
set_tests_properties(transfer transfer_copy transfer_precopy PROPERTIES TIMEOUT 600 LABELS threads PROCESSORS ${slots_of_programs} COST 1000)
