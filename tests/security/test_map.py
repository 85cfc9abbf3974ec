"""Every line of the security catalogue has a test that goes red without the rule, or a reason why it is not ours.

Of some lines a part of the rule is proved and the rest is not there: `HALF` says what is missing. The lines are explained in
docs/explanation/security.md, which says the same.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "security.md"

ADDRESSES, CALLS = "integration/targets/test_addresses.py", "integration/targets/test_calls.py"
EDGE, ACCESS, CALLBACKS = (f"integration/api/test_{name}.py" for name in ("edge", "access", "callbacks"))
HOSTILE = "integration/targets/test_hostile.py"
TEXT, FOREIGN = "browser/test_hostile_text.py", "browser/test_foreign_pages.py"
CALLERS, AT_REST, CANARIES = (f"security/test_{name}.py" for name in ("callers", "at_rest", "canaries"))
SLOW = "security/test_slow_callers.py"
ROLES, PROXIES, WORKERS = (f"security/test_{name}.py" for name in ("roles", "reverse_proxies", "worker_tokens"))

PROVED: dict[str, list[tuple[str, str]]] = {
    "S1": [
        (ADDRESSES, "test_metadata_and_its_kin_are_not_dialled_in_any_spelling"),
        (ADDRESSES, "test_a_denied_loopback_is_not_dialled_in_any_spelling"),
        (ADDRESSES, "test_without_the_guard_the_canary_is_reached"),
    ],
    "S2": [(ADDRESSES, "test_a_name_that_points_elsewhere_the_second_time_is_stopped_at_the_dial")],
    "S3": [
        (ADDRESSES, "test_a_redirect_to_a_denied_address_is_stopped_at_the_dial"),
        (ADDRESSES, "test_a_redirect_to_another_scheme_is_not_followed"),
        (ADDRESSES, "test_a_redirect_to_another_origin_carries_no_secret"),
    ],
    "S4": [(CALLS, "test_the_proxy_of_the_environment_is_not_used")],
    "S5": [(ADDRESSES, "test_the_ports_of_other_services_are_not_dialled")],
    "S6": [
        (AT_REST, "test_a_dump_of_every_table_holds_no_secret"),
        (AT_REST, "test_after_a_rotation_the_old_key_is_not_needed_and_does_not_open"),
        ("security/test_sealing.py", "test_a_key_file_that_others_can_read_or_change_is_refused"),
    ],
    "S7": [
        (CANARIES, "test_a_canary_in_each_secret_field_is_emitted_nowhere"),
        (CANARIES, "test_what_a_target_says_back_is_kept_without_the_secrets_it_heard"),
        ("security/test_pages.py", "test_no_page_shows_a_secret"),
        ("security/test_carried_secrets.py", "test_masked_secrets_do_not_go_to_another_origin"),
    ],
    "S8": [
        (
            "unit/targets/test_template.py",
            "test_what_is_not_a_known_placeholder_is_refused_when_saved_and_when_rendered",
        ),
        ("unit/targets/test_template.py", "test_attributes_and_methods_of_a_value_cannot_be_reached"),
    ],
    "S9": [
        (TEXT, "test_every_text_went_into_every_field_that_takes_one"),
        (TEXT, "test_no_page_takes_a_stored_text_for_more_than_a_text"),
        (TEXT, "test_what_stands_in_an_address_is_text"),
        (TEXT, "test_what_a_form_sends_is_text_when_it_comes_back"),
        (TEXT, "test_headers_and_cookies_are_text"),
        (TEXT, "test_text_that_arrives_while_the_page_is_open_is_text"),
        ("security/test_static.py", "test_no_template_and_no_script_makes_markup_of_a_text"),
    ],
    "S10": [
        (EDGE, "test_a_page_of_another_site_can_do_nothing"),
        (CALLERS, "test_no_route_that_changes_something_can_be_called_by_a_page_of_another_site"),
        (CALLERS, "test_a_name_of_somebody_else_that_points_here_is_no_way_in"),
        (PROXIES, "test_without_tokens_a_name_of_another_site_is_no_way_in"),
        (PROXIES, "test_in_auto_mode_a_forwarded_request_is_not_local"),
        (ROLES, "test_the_cookie_of_a_session_changes_nothing_over_the_api"),
        (FOREIGN, "test_a_foreign_page_can_do_nothing_where_nobody_is_asked_for_a_token"),
        (FOREIGN, "test_a_foreign_page_can_do_nothing_with_the_session_of_who_looks_at_it"),
        (FOREIGN, "test_nothing_is_changed_by_an_address_alone"),
    ],
    "S11": [
        (CALLERS, "test_every_answer_of_every_route_has_the_careful_headers"),
        (CALLERS, "test_every_page_has_the_careful_headers"),
        (FOREIGN, "test_a_foreign_page_can_read_nothing_and_frame_nothing"),
    ],
    "S12": [
        (ACCESS, "test_without_a_token_every_route_is_401_but_four"),
        ("acceptance/test_starts.py", "test_off_loopback_everybody_is_asked_for_a_token"),
        ("conformance/store/test_access.py", "test_a_token_is_found_by_its_hash_alone"),
        (AT_REST, "test_a_dump_of_every_table_holds_no_token"),
        (PROXIES, "test_no_token_is_minted_while_none_is_asked_for"),
    ],
    "S13": [
        (ROLES, "test_the_matrix_of_routes_and_roles_is_the_table"),
        (ROLES, "test_the_matrix_of_pages_and_roles_is_the_table"),
        (ROLES, "test_only_admins_make_tokens"),
    ],
    "S14": [
        (CALLERS, "test_a_worker_cannot_touch_the_run_of_another"),
        (WORKERS, "test_it_does_not_claim_from_another_queue"),
        (WORKERS, "test_it_does_not_touch_a_run_of_another_queue_with_all_that_its_worker_knows"),
        (WORKERS, "test_it_does_not_speak_for_a_worker_of_other_queues"),
        (WORKERS, "test_over_the_whole_table_it_may_call_six_routes_and_those_that_are_open"),
    ],
    "S15": [
        (ACCESS, "test_guessing_tokens_is_slowed_down_and_good_ones_are_not"),
        (PROXIES, "test_wrong_tokens_do_not_lock_out_good_ones_behind_the_same_address"),
        (PROXIES, "test_a_made_up_address_does_not_get_around_the_limit"),
        (CALLERS, "test_guessing_callback_tokens_is_slowed_down"),
    ],
    "S16": [
        (EDGE, "test_a_bomb_is_no_json_and_costs_milliseconds"),
        (EDGE, "test_a_body_that_says_it_is_huge_is_refused_unread"),
        (EDGE, "test_a_body_that_does_not_say_its_size_is_cut_off"),
        (CALLERS, "test_headers_that_are_too_many_or_too_large_are_413_or_cut_off"),
        (CALLERS, "test_a_caller_who_never_finishes_his_headers_is_hung_up_on"),
        ("acceptance/test_hostile_bodies.py", "test_no_body_on_any_route_holds_the_event_loop"),
        (SLOW, "test_bodies_that_never_end_are_closed_and_heartbeats_come_through_meanwhile"),
        (SLOW, "test_an_answer_that_is_not_read_is_given_up"),
        (SLOW, "test_one_address_cannot_take_all_connections"),
        (SLOW, "test_bodies_together_have_a_limit_and_small_ones_find_room"),
        (CALLERS, "test_every_number_of_every_route_has_its_bounds"),
    ],
    "S17": [
        (CALLBACKS, "test_a_forged_token_is_refused_before_its_body_is_read"),
        (CALLBACKS, "test_a_token_speaks_for_its_own_run_only"),
        (CALLBACKS, "test_the_token_is_in_no_answer"),
        (CALLBACKS, "test_a_repeated_callback_changes_nothing_and_is_recorded"),
        (AT_REST, "test_a_dump_of_every_table_holds_no_token"),
    ],
    "S18": [
        ("unit/targets/test_signing.py", "test_the_reference_library_accepts_it"),
        ("unit/targets/test_signing.py", "test_any_other_byte_is_refused"),
    ],
    "S19": [
        ("unit/targets/test_signing.py", "test_what_is_wrong_with_a_signature_is_named"),
        (CALLBACKS, "test_a_signature_that_is_wrong_is_refused_with_its_reason_and_the_right_one_is_heard"),
        (CALLBACKS, "test_a_callback_that_is_not_signed_is_heard_unless_signatures_are_required"),
    ],
    "S20": [(CALLERS, "test_no_text_in_a_query_is_more_than_a_text")],
    "S21": [
        (EDGE, "test_a_header_that_would_make_another_is_refused"),
        (ADDRESSES, "test_a_raw_sink_sees_no_header_that_was_not_meant"),
        (EDGE, "test_a_malformed_request_is_refused_by_the_server_itself"),
    ],
    "S22": [(CALLERS, "test_no_address_leads_out_of_the_house")],
    "S23": [
        ("security/test_static.py", "test_no_regular_expression_is_made_of_what_somebody_sent"),
        (CALLERS, "test_a_pattern_of_names_costs_little_whatever_it_is"),
    ],
    "S24": [(CALLERS, "test_a_cron_expression_that_never_fires_or_never_ends_is_refused_at_once")],
    "S25": [(HOSTILE, "test_a_decompression_bomb_is_cut_at_the_cap_in_little_memory")],
    "S26": [
        ("security/test_static.py", "test_nothing_unsafe_is_called"),
        ("security/test_ways_in.py", "test_a_task_file_cannot_make_python_objects"),
    ],
    "S27": [
        (ACCESS, "test_every_change_leaves_one_line_with_who_did_it"),
        ("security/test_audit_lines.py", "test_every_route_that_changes_something_leaves_one_line"),
        (ROLES, "test_the_table_has_every_page_with_its_role_and_what_the_log_calls_it"),
        ("conformance/store/test_access.py", "test_an_entry_that_was_changed_or_taken_out_is_noticed"),
        (CALLERS, "test_the_audit_log_can_be_read_and_nothing_else"),
        ("security/test_audit_lines.py", "test_what_the_command_line_changes_on_the_store_leaves_a_line"),
    ],
    "S28": [
        (CALLBACKS, "test_a_run_of_another_task_and_no_run_look_the_same"),
        (CALLERS, "test_what_is_gone_and_what_never_was_look_the_same"),
        (EDGE, "test_what_nobody_foresaw_is_internal_and_tells_nothing"),
    ],
    "S29": [
        (ACCESS, "test_without_a_token_every_route_is_401_but_four"),
        (CALLERS, "test_no_page_of_another_site_listens_to_the_stream"),
        (CALLERS, "test_no_answer_lets_a_page_of_another_site_read_it"),
    ],
    "S30": [
        ("security/test_pages.py", "test_after_login_nobody_is_sent_to_another_site"),
        (FOREIGN, "test_the_door_leads_to_rooms_of_this_house_only"),
    ],
    "S31": [(HOSTILE, "test_a_certificate_that_nobody_trusts_is_refused_before_anything_is_sent")],
    "S32": [("unit/sinks/test_logs.py", "test_nothing_in_a_record_can_forge_a_line")],
    "S33": [
        (CALLERS, "test_no_route_answers_with_a_table_that_a_spreadsheet_would_run"),
        (TEXT, "test_no_page_takes_a_stored_text_for_more_than_a_text"),
    ],
    "S34": [
        ("unit/sinks/test_metrics.py", "test_tasks_past_the_limit_share_a_series"),
        (ACCESS, "test_without_a_token_every_route_is_401_but_four"),
    ],
    "S35": [("architecture/test_papers.py", "test_a_lock_file_holds_versions_and_hashes_only")],
    "S37": [("unit/targets/test_signing.py", "test_an_old_signature_is_refused")],
    "S38": [
        ("security/test_ways_in.py", "test_what_the_api_refuses_no_other_way_takes"),
        ("security/test_ways_in.py", "test_validate_refuses_it_without_a_server"),
    ],
}

HALF = {
    "S13": "scopes of a token and of projects: a role holds for everything there is",
    "S15": "a limit for good tokens",
    "S27": "a key or an anchor of the chain outside the store",
    "S35": "hashes in the image, whose build takes the locked versions without them; pip-audit, SBOM, signed releases",
}
"""What the catalogue asks for besides, and is not there: in the words of the page's row, behind "Not there:"."""

NOT_OURS = {"S36"}
"""The page says why."""

LINES = [f"S{number}" for number in range(1, 39)]


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_line_is_proved_or_is_not_ours():
    assert sorted({*PROVED, *NOT_OURS}) == sorted(LINES)
    assert not NOT_OURS & set(PROVED)


@pytest.mark.parametrize("line", PROVED)
def test_every_test_that_is_named_is_there(line):
    assert PROVED[line]
    assert [(path, name) for path, name in PROVED[line] if name not in names_in(path)] == []


@pytest.mark.parametrize("line", LINES)
def test_the_page_explains_the_line_and_says_what_is_missing(line):
    (row,) = re.findall(rf"^\| {line} \|.*$", PAGE.read_text(), re.MULTILINE)
    _, mark, missing = row.rstrip(" |").partition("Not there: ")
    assert missing == HALF.get(line, "")
    assert bool(mark) is (line in HALF)


def test_of_a_half_the_other_half_is_proved():
    assert set(HALF) <= set(PROVED)
