"""The security map: each protection with the text that it stands in, the text without it, and the tests that go red then.

The rules S are those of docs/explanation/security.md. The rules D are about data: what keeps slots, runs, events and the schema
right when nodes race, die or lose the database. Where two protections cover for each other, both are removed at once: what
is left of a single one is not seen by a caller. Texts are short, so that they survive changes around them; each must be in its
file exactly once, which tests/security/test_map.py checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

SRC: Final = "src/noonbell"
ADDRESSES, CALLS, HOSTILE = (f"integration/targets/test_{name}.py" for name in ("addresses", "calls", "hostile"))
EDGE, ACCESS, CALLBACKS, OWN_RUNS = (
    f"integration/api/test_{name}.py" for name in ("edge", "access", "callbacks", "own_runs")
)
PAGES = "integration/web/test_pages.py"
TEXT, FOREIGN = "browser/test_hostile_text.py", "browser/test_foreign_pages.py"
CALLERS, AT_REST, CANARIES, SLOW, ROLES, STATIC, WAYS_IN, AUDIT_LINES, CARRIED = (
    f"security/test_{name}.py"
    for name in (
        *("callers", "at_rest", "canaries", "slow_callers", "roles", "static", "ways_in", "audit_lines"),
        "carried_secrets",
    )
)
PROXIES, WORKERS, WEB = "security/test_reverse_proxies.py", "security/test_worker_tokens.py", "security/test_pages.py"
SCOPES = "security/test_scoped_tokens.py"
TEMPLATE, SIGNING = "unit/targets/test_template.py", "unit/targets/test_signing.py"
LOGS, METRICS, PURE = "unit/telemetry/test_logs.py", "unit/telemetry/test_metrics.py", "unit/web/test_pure.py"
STORED, RATES = "conformance/store/test_access.py", "security/test_call_rates.py"
AUDIT_LOG = "integration/test_audit_log.py"
PLAN, SETTLE, HOLDING, LIFE, EVENTS, FLOWS, CHILDREN = (
    f"conformance/store/test_{name}.py" for name in ("plan", "settle", "holding", "life", "events", "flows", "children")
)
COMMANDS, BROKERS, GRPC = (
    "security/test_commands.py",
    "integration/targets/test_brokers.py",
    "integration/targets/test_grpc.py",
)
LOST = f"{BROKERS}::test_a_broker_that_dies_before_or_after_its_word_is_a_lost_connection_and_nothing_is_sent_twice"
SUBSCRIPTIONS = "integration/test_subscriptions.py"
STORED_SUBSCRIPTIONS, QUIET, CALENDARS = (
    f"conformance/store/test_{name}.py" for name in ("subscriptions", "quiet", "calendars")
)
WENT_BACK, HOSTS, DISK = (
    "conformance/store/test_went_back.py",
    "unit/stores/test_hosts.py",
    "integration/test_sqlite_disk.py",
)
LOCKS, DURABILITY, CUT_OFF = (f"integration/test_{name}.py" for name in ("locks", "durability", "cut_off_steps"))


class Edit(NamedTuple):
    file: str
    text: str
    """In the file exactly once."""
    instead: str


class Removal(NamedTuple):
    rule: str
    what: str
    """The protection that is gone, in words."""
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    """Under tests/, as pytest names them. Each goes red; of one with several cases, one case at least."""


def _cut(rule: str, what: str, file: str, text: str, instead: str, *tests: str) -> Removal:
    return Removal(rule, what, (Edit(f"{SRC}/{file}", text, instead),), tests)


def _both(rule: str, what: str, edits: tuple[tuple[str, str, str], ...], *tests: str) -> Removal:
    return Removal(rule, what, tuple(Edit(f"{SRC}/{file}", text, instead) for file, text, instead in edits), tests)


def found_times(root: Path, edit: Edit) -> int:
    path = root / edit.file
    return path.read_text().count(edit.text) if path.exists() else 0


_CHECK = "self._guard.check(address, place.port)"
_ESCAPE = "autoescape=True,"

REMOVALS: Final[tuple[Removal, ...]] = (
    # S1 to S5: what is dialled
    _cut(
        *("S1", "no address is judged", "targets/http/guard.py"),
        *("for candidate in (dialled, *carried(dialled)):", "for candidate in ():"),
        f"{ADDRESSES}::test_metadata_and_its_kin_are_not_dialled_in_any_spelling",
        f"{ADDRESSES}::test_a_denied_loopback_is_not_dialled_in_any_spelling",
    ),
    _cut(
        *("S1", "an IPv4 address inside an IPv6 one is not judged", "targets/http/guard.py"),
        *("for candidate in (dialled, *carried(dialled)):", "for candidate in (dialled,):"),
        f"{ADDRESSES}::test_metadata_and_its_kin_are_not_dialled_in_any_spelling",
        f"{ADDRESSES}::test_a_denied_loopback_is_not_dialled_in_any_spelling",
    ),
    _cut(
        *("S1", "link-local and metadata addresses are not in the list", "targets/http/guard.py"),
        *('"169.254.0.0/16": "link-local and cloud metadata",', ""),
        f"{ADDRESSES}::test_metadata_and_its_kin_are_not_dialled_in_any_spelling",
    ),
    _cut(
        *("S1", "webhooks of alerts pass by the guard", "alerts/posting.py"),
        *("super().__init__(guard, connect_timeout", "super().__init__(None, connect_timeout"),
        "integration/test_alerts.py::test_the_outbound_guard_holds_for_webhooks",
    ),
    _cut(
        *("S2", "a name is judged once and trusted from then on", "targets/http/pool.py", _CHECK),
        "place in self.__dict__.setdefault('_s', set()) or (self._guard.check(address, place.port), self._s.add(place))",
        f"{ADDRESSES}::test_a_name_that_points_elsewhere_the_second_time_is_stopped_at_the_dial",
    ),
    _cut(
        *("S2", "of several addresses the first is judged", "targets/http/pool.py", _CHECK),
        f"left < len(addresses) or {_CHECK}",
        f"{ADDRESSES}::test_a_denied_address_behind_a_dead_one_is_not_dialled_either",
    ),
    _cut(
        *("S3", "where a redirect leads is not judged", "targets/http/pool.py", _CHECK),
        f"exchange.came_from or {_CHECK}",
        f"{ADDRESSES}::test_a_redirect_to_a_denied_address_is_stopped_at_the_dial",
    ),
    _cut(
        *("S3", "any scheme is taken", "targets/http/target.py"),
        *("if request.url.scheme not in SCHEMES:", "if False:"),
        f"{ADDRESSES}::test_a_redirect_to_another_scheme_is_not_followed",
    ),
    _cut(
        *("S3", "secret headers follow a redirect", "targets/http/request.py"),
        *("if not is_secret(name)}", "}"),
        f"{ADDRESSES}::test_a_redirect_to_another_origin_carries_no_secret",
    ),
    _cut(
        *("S3", "the signature follows a redirect", "targets/http/request.py"),
        *("_without(kept, _FOR_THE_FIRST_ORIGIN)", "kept"),
        f"{ADDRESSES}::test_a_redirect_to_another_origin_carries_no_secret",
    ),
    _cut(
        *("S3", "a redirect may lead further inside", "targets/http/guard.py"),
        *("if origin is not None and _depth(address) > _depth(origin):", "if False:"),
        f"{ADDRESSES}::test_a_redirect_from_outside_to_this_machine_is_not_followed",
    ),
    _cut(
        *("S3", "a redirect may lead to the node's own port", "targets/http/target.py"),
        *("wire.place.port in self._own_ports", "False"),
        f"{ADDRESSES}::test_a_redirect_to_our_own_port_is_not_followed",
    ),
    _cut(
        *("S3", "a run may call the API that sent it, without a token", "api/access.py"),
        *('if scope["type"] == "http" and not _OPEN', 'if scope["type"] == "none" and not _OPEN'),
        f"{OWN_RUNS}::test_a_run_of_ours_without_a_token_is_refused",
    ),
    _cut(
        *("S4", "the proxy of the environment is dialled", "targets/http/target.py"),
        "request.place or origin_of(request.url)",
        "origin_of(type(request.url)(__import__('os').environ.get('HTTP_PROXY') or str(request.url)))",
        f"{CALLS}::test_the_proxy_of_the_environment_is_not_used",
    ),
    _cut(
        *("S5", "any port is dialled", "targets/http/guard.py"),
        *("if port in self._deny_ports:", "if False:"),
        f"{ADDRESSES}::test_the_ports_of_other_services_are_not_dialled",
    ),
    # S6 to S8: secrets and templates
    _cut(
        *("S6", "nothing is sealed", "sealing.py"),
        *("return text if self._first is None else self._first.seal(text)", "return text"),
        f"{AT_REST}::test_a_dump_of_every_table_holds_no_secret[sqlite]",
    ),
    _cut(
        *("S6", "secrets stay under the old key", "service/secrets.py"),
        *("if sealer.is_current(text):", "if is_sealed(text):"),
        f"{AT_REST}::test_after_a_rotation_the_old_key_is_not_needed_and_does_not_open[sqlite]",
    ),
    _cut(
        *("S6", "anyone may read the key file", "sealing.py"),
        *("if mode & (stat.S_IRWXO | stat.S_IWGRP):", "if False:"),
        "security/test_sealing.py::test_a_key_file_that_others_can_read_or_change_is_refused",
    ),
    _cut(
        *("S6", "a sealed secret is taken from a caller", "service/target_fields.py"),
        *("elif secret is not None and is_sealed(secret):", "elif False:"),
        f"{AT_REST}::test_a_sealed_text_is_not_taken_from_a_caller",
    ),
    _cut(
        *("S6", "anyone may read a new SQLite file", "stores/sqlite.py"),
        *("os.O_RDWR, 0o600))", "os.O_RDWR, 0o644))"),
        f"{AT_REST}::test_a_new_sqlite_file_and_its_log_are_for_their_owner_alone",
    ),
    _cut(
        *("S7", "answers and pages show a task's headers", "service/secrets.py"),
        *('"headers": masked,', '"headers": dict,'),
        f"{CANARIES}::test_a_canary_in_each_secret_field_is_emitted_nowhere",
        f"{WEB}::test_no_page_shows_a_secret",
    ),
    _cut(
        *("S7", "answers and pages show where alerts are sent", "alerts/channels.py"),
        *("else kind.shown_url(channel.url)", "else channel.url"),
        f"{CANARIES}::test_a_canary_in_each_secret_field_is_emitted_nowhere",
        f"{WEB}::test_no_page_shows_a_secret",
    ),
    _cut(
        *("S7", "an answer that repeats a secret is kept as it came", "targets/http/target.py"),
        *("conceal(said, hidden) if hidden else said", "said"),
        f"{CANARIES}::test_what_a_target_says_back_is_kept_without_the_secrets_it_heard",
    ),
    _cut(
        *("S7", "the log has callback tokens", "telemetry/logs.py"),
        *('return _CALLBACK.sub(rf"\\g<path>{MASK}", text)', "return text"),
        f"{CANARIES}::test_a_callback_token_in_an_address_is_not_logged",
    ),
    _cut(
        *("S7", "the log has passwords of addresses", "telemetry/logs.py"),
        *("text = mask_addresses(text)", "pass"),
        f"{LOGS}::test_secrets_are_not_written",
    ),
    _cut(
        *("S7", "masked secrets follow a task to another origin", "service/secrets.py"),
        *("if not isinstance(target, str) or _origin(target) == _origin(kept.target_url):", "if True:"),
        f"{CARRIED}::test_masked_secrets_do_not_go_to_another_origin",
        f"{CARRIED}::test_nor_does_the_dashboard_send_or_save_them",
    ),
    _cut(
        *("S8", "any name is a placeholder", "policy/placeholders.py"),
        *(" or found[0].root not in known:", ":"),
        f"{TEMPLATE}::test_what_is_not_a_known_placeholder_is_refused_when_saved_and_when_rendered",
    ),
    _cut(
        *("S8", "a placeholder reads attributes", "policy/value_path.py"),
        *(
            "else MISSING\n    return MISSING",
            "else MISSING\n    return getattr(value, str(segment), MISSING)",
        ),
        f"{TEMPLATE}::test_attributes_and_methods_of_a_value_cannot_be_reached",
    ),
    _cut(
        *("S8", "a value can leave its string of JSON", "targets/http/template.py"),
        *("return as_json(text)[1:-1]", "return text"),
        f"{TEMPLATE}::test_no_value_can_leave_its_string_in_a_json_body",
    ),
    # S9 to S11: browsers
    _cut(
        *("S9", "templates do not escape", "web/render.py", _ESCAPE, "autoescape=False,"),
        f"{TEXT}::test_no_page_takes_a_stored_text_for_more_than_a_text[en]",
        f"{TEXT}::test_what_stands_in_an_address_is_text",
        f"{TEXT}::test_what_a_form_sends_is_text_when_it_comes_back",
        f"{TEXT}::test_headers_and_cookies_are_text",
        f"{TEXT}::test_text_that_arrives_while_the_page_is_open_is_text",
        f"{STATIC}::test_nothing_unsafe_is_called[web/render.py]",
    ),
    _cut(
        *("S9", "a script makes markup of a text", "web/static/live.js"),
        *("show.textContent = show", "show.innerHTML = show"),
        f"{STATIC}::test_no_template_and_no_script_makes_markup_of_a_text",
    ),
    _cut(
        *("S9", "what a target said is a page", "web/run_page.py"),
        *('media_type="application/octet-stream"', 'media_type="text/html"'),
        "integration/web/test_details.py::test_a_long_body_is_shown_in_part_and_downloaded_whole_as_it_is_kept[memory]",
    ),
    _cut(
        *("S10", "a page of another site may call the API", "api/middleware.py"),
        *(" or from_another_site(scope, headers)", ""),
        f"{EDGE}::test_a_page_of_another_site_can_do_nothing",
        f"{CALLERS}::test_no_route_that_changes_something_can_be_called_by_a_page_of_another_site",
    ),
    _cut(
        *("S10", "forms may come from anywhere", "web/page.py"),
        *("if not is_ours and (", "if False and ("),
        f"{PAGES}::test_a_form_of_another_site_changes_nothing",
    ),
    _both(
        *("S10", "neither the API nor a form asks for the origin"),
        (
            ("api/middleware.py", " or from_another_site(scope, headers)", ""),
            ("web/page.py", "if not is_ours and (", "if False and ("),
        ),
        f"{FOREIGN}::test_a_foreign_page_can_do_nothing_where_no_token_is_asked_for",
        f"{FOREIGN}::test_a_foreign_page_can_do_nothing_with_the_session_of_its_browser",
    ),
    _cut(
        *("S10", "any name may point here", "api/middleware.py"),
        *("if problem is None and self._host_names is not None:", "if False:"),
        f"{CALLERS}::test_a_name_of_another_site_that_points_here_is_refused",
        f"{PROXIES}::test_without_tokens_a_name_of_another_site_is_no_way_in",
    ),
    _cut(
        *("S10", "a forwarded request counts as local", "api/request_origin.py"),
        *("if not self._forwarded and is_forwarded(headers):", "if False:"),
        f"{PROXIES}::test_in_auto_mode_a_forwarded_request_is_not_local",
    ),
    _cut(
        *("S10", "the session's cookie changes things over the API", "api/access.py"),
        *('reads = request.method in ("GET", "HEAD")', "reads = True"),
        f"{ROLES}::test_the_cookie_of_a_session_changes_nothing_over_the_api",
    ),
    _cut(
        *("S10", "the session's cookie goes along with requests of other sites", "web/context.py"),
        *('samesite="lax" if from_elsewhere else "strict",', 'samesite="none",'),
        f"{WEB}::test_a_login_leads_to_no_other_site",
    ),
    _cut(
        *("S10", "a link revokes a token", "web/settings.py"),
        *(
            'post(f"{TOKENS_PATH}/{{name}}/revoke", revoke_token, ',
            '__import__("noonbell.web.page", fromlist=["_"]).PageRoute(f"{TOKENS_PATH}/{{name}}/revoke", revoke_token, action=',
        ),
        f"{FOREIGN}::test_nothing_is_changed_by_an_address_alone",
    ),
    *(
        _cut(
            *("S11", f"answers without `{name}`", "api/middleware.py", f'    "{name}": "', f'    "x-{name}": "'),
            f"{CALLERS}::test_every_answer_of_every_route_has_the_careful_headers",
        )
        for name in (
            *("cache-control", "content-security-policy", "cross-origin-resource-policy", "referrer-policy"),
            *("x-content-type-options", "x-frame-options"),
        )
    ),
    _cut(
        *("S11", "pages without a policy of content", "web/context.py"),
        *('answer.headers["content-security-policy"] = POLICY', "pass"),
        f"{CALLERS}::test_every_page_has_the_careful_headers",
    ),
    _both(
        *("S11", "pages may be framed"),
        (
            ("web/context.py", "base-uri 'none'; frame-ancestors 'none'", "base-uri 'none'"),
            ("api/middleware.py", '    "x-frame-options": "', '    "x-x-frame-options": "'),
        ),
        f"{FOREIGN}::test_a_foreign_page_can_read_nothing_and_frame_nothing",
    ),
    # S12 to S15: who calls
    _cut(
        *("S12", "no call needs a token", "api/access.py"),
        *("if not self._enabled or endpoint.role is None:", "if True:"),
        f"{ACCESS}::test_without_a_token_every_route_is_401_but_four",
    ),
    _cut(
        *("S12", "no page needs a token", "web/page.py"),
        *("if ctx.token is None and ctx.deps.asks_for_tokens and page.role is not None:", "if False:"),
        f"{ROLES}::test_without_a_session_every_page_but_those_for_everyone_leads_to_the_login",
    ),
    _cut(
        *("S12", "off loopback no token is asked for", "wiring/application.py"),
        *("return not is_loopback(settings.server.host)", "return False"),
        "acceptance/test_starts.py::test_off_loopback_everybody_is_asked_for_a_token",
    ),
    _cut(
        *("S12", "tokens are stored as they are", "model/access.py"),
        *("return hashlib.sha256(secret.encode()).hexdigest()", "return secret"),
        f"{AT_REST}::test_a_dump_of_every_table_holds_no_token[sqlite]",
    ),
    _cut(
        *("S12", "the part of a token that is shown opens", "stores/sql/access.py"),
        *("where hash = :hash", "where hash >= :hash or 1 = 1"),
        f"{STORED}::test_a_token_is_found_by_its_hash_alone[memory]",
    ),
    _cut(
        *("S12", "a token has 32 bits", "model/access.py"),
        *("PREFIX + secrets.token_urlsafe(32)", "PREFIX + secrets.token_urlsafe(4)"),
        f"{ACCESS}::test_a_token_has_256_bits_and_no_two_are_the_same",
    ),
    _cut(
        *("S12", "a revoked token opens", "model/access.py"),
        *("return self.revoked_at is None and (", "return (self.revoked_at or 1) and ("),
        f"{ACCESS}::test_a_wrong_or_revoked_token_is_401",
    ),
    _cut(
        *("S12", "an expired token opens", "model/access.py"),
        *("now < self.expires_at)", "True)"),
        f"{STORED}::test_a_token_is_good_until_its_time_is_up[memory]",
    ),
    _cut(
        *("S12", "any session cookie is believed", "web/context.py"),
        *("is_ours = hmac.compare_digest(mark, self._sign(token_id, until))", "is_ours = True"),
        f"{PAGES}::test_a_session_that_was_tampered_with_is_none",
    ),
    _cut(
        *("S12", "the API makes a token for a caller without one", "api/tokens.py"),
        *("if not self._mints:", "if False:"),
        f"{PROXIES}::test_no_token_is_minted_while_none_is_asked_for",
    ),
    _cut(
        *("S12", "the dashboard makes a token for a caller without one", "web/settings.py"),
        *("if not ctx.deps.asks_for_tokens:", "if False:"),
        f"{PROXIES}::test_no_token_is_minted_while_none_is_asked_for",
    ),
    _cut(
        *("S13", "operators may do over the API what is for admins", "api/tokens.py"),
        *('"Create a token", Role.ADMIN', '"Create a token", Role.OPERATOR'),
        f"{ROLES}::test_the_matrix_of_routes_and_roles_is_the_table",
        f"{ROLES}::test_only_admins_make_tokens",
    ),
    _cut(
        *("S13", "viewers may do over the API what is for operators", "api/tasks.py"),
        *('"Create a task", Role.OPERATOR', '"Create a task", Role.VIEWER'),
        f"{ROLES}::test_the_matrix_of_routes_and_roles_is_the_table",
    ),
    _cut(
        *("S13", "an endpoint without a role is for viewers", "api/endpoint.py"),
        *("role: Role | None = Role.ADMIN", "role: Role | None = Role.VIEWER"),
        f"{ROLES}::test_an_endpoint_names_its_role_and_one_without_is_for_admins",
    ),
    _cut(
        *("S13", "no page asks for a role", "web/page.py"),
        *("not token.role.includes(page.role)", "False"),
        f"{ROLES}::test_the_matrix_of_pages_and_roles_is_the_table",
    ),
    _cut(
        *("S13", "operators make tokens in the dashboard", "web/settings.py"),
        *('make_token, "create_token", role=Role.ADMIN', 'make_token, "create_token"'),
        f"{ROLES}::test_only_admins_make_tokens",
        f"{ROLES}::test_the_table_has_every_page_with_its_role_and_what_the_log_calls_it",
    ),
    _cut(
        *("S13", "a token with a scope is one without", "api/access.py"),
        *("if token.scope is not None:", "if False:"),
        f"{SCOPES}::test_of_tasks_only_those_inside_are_there",
        f"{SCOPES}::test_of_runs_only_those_inside_are_there",
    ),
    _cut(
        *("S13", "an endpoint without a rule is open to scopes", "api/endpoint.py"),
        *("scope: ScopeRule = ScopeRule.NOTHING", "scope: ScopeRule = ScopeRule.ANYTHING"),
        f"{SCOPES}::test_an_endpoint_without_a_rule_is_closed_to_scopes",
    ),
    _cut(
        *("S13", "a page without a rule is open to scopes", "web/page.py"),
        *("case ScopeRule.NOTHING | ScopeRule.QUEUE | ScopeRule.BODY:", "case ScopeRule.QUEUE | ScopeRule.BODY:"),
        f"{SCOPES}::test_pages_about_more_than_the_scope_are_refused",
    ),
    _cut(
        *("S13", "a page of a task shows the tasks of others that follow it", "web/following.py"),
        *("    if ctx.sees_all:\n        return followers\n", "    if True:\n        return followers\n"),
        f"{SCOPES}::test_pages_show_what_is_inside_and_nothing_else",
    ),
    _cut(
        *("S13", "lists of tasks have what is outside of a scope", "service/filters.py"),
        *(
            "include_system=found.include_system,\n        scope=scope.current(),",
            "include_system=found.include_system,",
        ),
        f"{SCOPES}::test_a_bulk_change_of_everything_is_one_of_what_is_inside",
    ),
    _cut(
        *("S13", "a task may leave the scope of its token", "service/tasks.py"),
        *("        scope.check_spec(draft.spec)\n", ""),
        f"{SCOPES}::test_no_task_is_made_outside_or_moved_there",
    ),
    _cut(
        *("S14", "the fencing token is enough to settle, under any name", "stores/sql/settle.py"),
        *("if settlement.worker_id is not None and live.worker_id != settlement.worker_id:", "if False:"),
        f"{CALLERS}::test_a_worker_cannot_touch_the_run_of_another",
    ),
    _both(
        *("S14", "the name is enough to extend, to log and to report progress, with any fencing token"),
        (
            ("stores/sql/workers.py", "or live.token != token or live.worker_id", "or live.worker_id"),
            ("stores/sql/workers.py", " and live.token == token else None", " else None"),
        ),
        f"{CALLERS}::test_a_worker_cannot_touch_the_run_of_another",
    ),
    _cut(
        *("S14", "a worker's token claims from any queue", "service/workers.py"),
        *("            if others:", "            if False:"),
        f"{WORKERS}::test_it_does_not_claim_from_another_queue",
    ),
    _cut(
        *("S14", "a worker's token settles runs of any queue", "service/workers.py"),
        *("if run is not None and run.queue not in bounds.queues:", "if False:"),
        f"{WORKERS}::test_it_does_not_touch_a_run_of_another_queue_with_all_that_its_worker_knows",
    ),
    _cut(
        *("S14", "a worker's token speaks in any worker's name", "service/workers.py"),
        *("if there is not None and not set(there.queues) <= set(bounds.queues):", "if False:"),
        f"{WORKERS}::test_it_does_not_speak_for_a_worker_of_other_queues",
    ),
    _cut(
        *("S14", "a worker's token may do what viewers may", "model/access.py"),
        *("self in (Role.OPERATOR, Role.ADMIN) and ", ""),
        f"{WORKERS}::test_over_the_whole_table_it_may_call_six_routes_and_those_that_are_open",
        f"{WORKERS}::test_in_the_dashboard_it_opens_what_needs_no_token_and_nothing_else",
    ),
    _cut(
        *("S15", "wrong tokens are not counted", "service/access.py"),
        *("if left := self._guesses.seconds_left(peer):", "if left := 0.0:"),
        f"{ACCESS}::test_guessing_tokens_is_slowed_down_and_good_ones_are_not",
        f"{PAGES}::test_guessing_tokens_is_slowed_down",
    ),
    _cut(
        *("S15", "wrong tokens lock out good ones", "service/access.py"),
        *(
            "        hashed = hash_of(secret)\n",
            "        self.check_peer(peer)\n        hashed = hash_of(secret)\n",
        ),
        f"{PROXIES}::test_wrong_tokens_do_not_lock_out_good_ones_behind_the_same_address",
    ),
    _cut(
        *("S15", "a caller may make up its address", "wiring/application.py"),
        *("proxy_headers=False,", "proxy_headers=True,"),
        f"{PROXIES}::test_a_made_up_address_does_not_get_around_the_limit",
    ),
    _cut(
        *("S15", "each address of an IPv6 network counts by itself", "service/access.py"),
        *("(address, 64)", "(address, 128)"),
        f"{PROXIES}::test_behind_a_trusted_proxy_each_caller_is_counted_alone_and_ipv6_by_its_network",
    ),
    _cut(
        *("S15", "forged callbacks are not counted", "service/callbacks.py"),
        *("keep = not self._unknown.seconds_left(source.peer)", "keep = True"),
        f"{CALLERS}::test_guessing_callback_tokens_is_slowed_down",
    ),
    _cut(
        *("S15", "a good token may call any number of times over the API", "api/access.py"),
        *("            self._access.count(token)", "            pass"),
        f"{RATES}::test_a_token_beyond_its_limit_waits_and_no_other_does",
    ),
    _cut(
        *("S15", "a good token may open any number of pages", "web/page.py"),
        *("            ctx.deps.access.count(token)", "            pass"),
        f"{RATES}::test_pages_of_a_session_count_for_its_token",
    ),
    _cut(
        *("S15", "the limit of a token holds up what its worker reports", "api/access.py"),
        *("if endpoint.is_counted:", "if True:"),
        f"{RATES}::test_what_a_worker_reports_is_not_counted",
    ),
    # S16, which has many parts
    _cut(
        *("S16", "JSON of any depth", "json_text.py"),
        *("    if is_too_deep(body):", "    if False:"),
        f"{EDGE}::test_a_bomb_is_no_json_and_costs_milliseconds",
    ),
    _cut(
        *("S16", "large bodies are decoded in the event loop", "json_text.py"),
        *("if size <= ASIDE_FROM:", "if True:"),
        "unit/service/test_json_text.py::test_a_large_text_is_decoded_in_a_thread",
    ),
    _cut(
        *("S16", "JSON of any number of values", "json_text.py"),
        *("    if _has_too_many_values(body):", "    if False:"),
        "unit/service/test_json_text.py::test_a_text_of_too_many_values_is_refused",
    ),
    _both(
        *("S16", "a body may say that it has any size"),
        (
            ("api/middleware.py", "return too_large(most_bytes) if is_large else None", "return None"),
            ("api/params.py", "int(length) > most_bytes:", "False:"),
        ),
        f"{EDGE}::test_a_body_that_says_it_is_huge_is_refused_unread",
    ),
    _both(
        *("S16", "a body may have any size"),
        (
            ("api/middleware.py", "if self._read > self._most_bytes:", "if False:"),
            ("json_text.py", "        if size > most_bytes:", "        if False:"),
        ),
        f"{EDGE}::test_a_body_that_does_not_say_its_size_is_cut_off",
    ),
    _cut(
        *("S16", "any number of headers", "api/middleware.py"),
        *("if len(headers.raw) > MOST_HEADERS or", "if False and"),
        f"{CALLERS}::test_headers_that_are_too_many_or_too_large_are_413_or_cut_off[many]",
    ),
    _cut(
        *("S16", "a head of any size", "api/connection_limits.py"),
        *("if self._in_head and self._head_bytes > MOST_HEAD_BYTES and", "if False and"),
        f"{CALLERS}::test_headers_that_are_too_many_or_too_large_are_413_or_cut_off[endless]",
    ),
    _cut(
        *("S16", "a head may take any time", "api/connection_limits.py"),
        *("self.loop.call_later(seconds, self._give_up)", "self.loop.call_later(3600, self._give_up)"),
        f"{CALLERS}::test_headers_that_do_not_end_in_time_are_cut_off",
    ),
    _cut(
        *("S16", "a body may take any time", "api/connection_limits.py"),
        *("self.loop.call_later(seconds, self._look_at_body)", "self.loop.call_later(3600, self._look_at_body)"),
        f"{SLOW}::test_bodies_that_never_end_are_closed_and_heartbeats_come_through_meanwhile",
    ),
    _cut(
        *("S16", "an answer may stay unread for any time", "api/connection_limits.py"),
        *(
            "        if left <= 0:\n            self.transport.abort()",
            "        if False:\n            self.transport.abort()",
        ),
        f"{SLOW}::test_an_answer_that_is_not_read_is_given_up",
    ),
    _cut(
        *("S16", "one address may have all connections", "api/connection_limits.py"),
        *("beyond_of_peer = self._beyond_of_peer(most, is_shared=is_shared)", "beyond_of_peer = 0"),
        f"{SLOW}::test_one_address_cannot_take_all_connections",
    ),
    _cut(
        *("S16", "all bodies together may have any size", "api/middleware.py"),
        *("if self._room.used + more > self._room.most_bytes:", "if False:"),
        f"{SLOW}::test_bodies_together_have_a_limit_and_small_ones_find_room",
    ),
    _cut(
        *("S16", "numbers without bounds", "fields/kinds.py"),
        *("not isinstance(value, int) or not self.low <= value <= self.high:", "not isinstance(value, int):"),
        f"{CALLERS}::test_every_number_of_every_route_has_its_bounds",
    ),
    # S17 to S19: callbacks and signatures
    _cut(
        *("S17", "the body comes before the token", "api/runs.py"),
        *("if not await self._callbacks.knows(token):", "if False:"),
        f"{CALLBACKS}::test_a_forged_token_is_refused_before_its_body_is_read",
    ),
    _cut(
        *("S17", "a token speaks for the run that its body names", "service/callbacks.py"),
        *(
            "self._receive(self._incoming(source, token=token), message",
            "self._receive(self._incoming(source, task_id=given.get('task_id'), run_id=given.get('run_id')), message",
        ),
        f"{CALLBACKS}::test_a_token_speaks_for_its_own_run_only",
    ),
    _cut(
        *("S17", "callback tokens are stored as they are", "stores/sql/claim.py"),
        *("return hashlib.sha256(token.encode()).hexdigest()", "return token"),
        f"{AT_REST}::test_a_dump_of_every_table_holds_no_token[sqlite]",
    ),
    _cut(
        *("S17", "a callback token has 32 bits", "stores/sql/claim.py"),
        *("secrets.token_urlsafe(32)", "secrets.token_urlsafe(4)"),
        f"{CALLBACKS}::test_a_callback_token_has_256_bits_and_no_two_are_the_same",
    ),
    _cut(
        *("S17", "an old token of an earlier attempt is believed", "engine/callback.py"),
        *("if is_stale(task.spec, subject, token_ttl):", "if False:"),
        f"{CALLBACKS}::test_the_token_of_an_earlier_attempt_is_good_for_the_time_of_the_settings",
    ),
    _cut(
        *("S17", "a callback of a run that is over is not turned away", "stores/sql/settle.py"),
        *("if live is None or subject.status in FINAL:", "if False:"),
        f"{CALLBACKS}::test_a_repeated_callback_changes_nothing_and_is_recorded[memory]",
    ),
    _cut(
        *("S18", "the body is not signed", "targets/http/signing.py"),
        *("(message_id.encode(), timestamp, body)", '(message_id.encode(), timestamp, b"")'),
        f"{SIGNING}::test_the_reference_library_accepts_it",
        f"{SIGNING}::test_the_fixed_vector",
    ),
    _both(
        *("S18", "a task with a secret is called without a signature"),
        (
            ("targets/http/request.py", "    if spec.secret:", "    if False:"),
            ("targets/http/request.py", "signing.keys(spec.secret) if spec.secret else ()", "()"),
        ),
        f"{CALLS}::test_a_signed_call_is_accepted_by_the_reference_library",
    ),
    _cut(
        *("S19", "any signature of a callback is believed", "targets/http/signing.py"),
        *("if not any(hmac.compare_digest(", "if False and not any(hmac.compare_digest("),
        f"{SIGNING}::test_what_is_wrong_with_a_signature_is_named",
        f"{CALLBACKS}::test_a_signature_that_is_wrong_is_refused_with_its_reason_and_the_right_one_is_heard[memory]",
    ),
    _cut(
        *("S19", "a signature is demanded of no callback", "wiring/assemble.py"),
        *("if self.must_be_signed else", "if False else"),
        f"{CALLBACKS}::test_a_callback_that_is_not_signed_is_heard_unless_signatures_are_required",
    ),
    # S20 to S26: what is sent in
    _cut(
        *("S20", "wildcards of a text are wildcards", "stores/sql/reading.py"),
        *('for special in ("!", "%", "_"):', 'for special in ("!",):'),
        f"{CALLERS}::test_no_text_in_a_query_is_more_than_a_text[sqlite]",
    ),
    _cut(
        *("S20", "a text stands in the statement", "stores/sql/reading.py"),
        "conditions.append(\"lower(t.name) like :name escape '!'\")",
        "conditions.append(f\"lower(t.name) like '%{query.name}%' and :name = :name\")",
        f"{CALLERS}::test_no_text_in_a_query_is_more_than_a_text[sqlite]",
    ),
    _both(
        *("S20", "any text is an order"),
        (
            ("service/filters.py", ", choices=_TASK_ORDERS)", ")"),
            (
                "stores/sql/reading.py",
                "        if name not in known:",
                "        known = {name: name, **known}\n        if False:",
            ),
        ),
        f"{CALLERS}::test_no_text_in_a_query_is_more_than_a_text[sqlite]",
    ),
    _cut(
        *("S21", "a saved header may hold line breaks", "service/target_fields.py"),
        *('return unfit(value.replace("\\t", " "))', "return None"),
        f"{EDGE}::test_a_header_that_would_make_another_is_refused",
    ),
    _cut(
        *("S21", "a task may set the headers of the connection", "service/target_fields.py"),
        *("if is_http and (name.lower() in OWNED_HEADERS or is_of_the_connection(name)):", "if False:"),
        f"{EDGE}::test_a_header_that_would_make_another_is_refused",
    ),
    _cut(
        *("S21", "a rendered header may hold line breaks", "targets/http/request.py"),
        *("if found := _UNSENDABLE.search(value):", "if found := None:"),
        f"{ADDRESSES}::test_a_raw_sink_sees_no_header_that_was_not_meant",
    ),
    _cut(
        *("S22", "a file is read by the path that a caller gives", "web/render.py"),
        "content = asset_contents().get(name)",
        "content = __import__('pathlib').Path(__file__).parent.joinpath('static', name.replace('\\0', '/')).read_bytes()",
        f"{CALLERS}::test_no_address_leads_to_a_file_of_the_machine",
    ),
    _cut(
        *("S23", "patterns of alert rules are regular expressions", "policy/alerts.py"),
        *("patterns = [translate(text) for", "patterns = [text for"),
        f"{CALLERS}::test_a_pattern_of_names_costs_little_whatever_it_is",
    ),
    _cut(
        *("S23", "a text of a caller is taken for a regular expression", "policy/alerts.py"),
        *(
            "return any(sign in text for sign in",
            "return re.search(text, text) is None or any(sign in text for sign in",
        ),
        f"{STATIC}::test_no_regular_expression_is_made_of_what_a_caller_sent",
    ),
    _cut(
        *("S24", "an expression that never fires is taken", "when/cron.py"),
        *("if fields and not ever(_days(fields, dialect)):", "if False:"),
        f"{CALLERS}::test_a_cron_expression_that_never_fires_or_never_ends_is_refused_at_once",
    ),
    _cut(
        *("S24", "an expression of any length is taken", "when/cron.py"),
        *("MAX_LENGTH = 1024", "MAX_LENGTH = 1 << 30"),
        f"{CALLERS}::test_a_cron_expression_that_never_fires_or_never_ends_is_refused_at_once",
    ),
    _cut(
        *("S25", "an answer is unpacked in one piece", "targets/http/connection.py"),
        *("part = self._inflate.decompress(window, _MADE)", "part = self._inflate.decompress(window)"),
        f"{HOSTILE}::test_a_decompression_bomb_is_cut_at_the_cap_in_little_memory",
    ),
    _cut(
        *("S25", "an unpacked answer may have many times its size", "targets/http/connection.py"),
        *("            if len(body) > self.limit:", "            if len(body) > 32 * self.limit:"),
        f"{HOSTILE}::test_a_flood_is_cut_at_the_cap",
    ),
    _cut(
        *("S26", "a file of tasks or settings may make Python objects", "yaml_text.py"),
        *('getattr(yaml, "CSafeLoader", yaml.SafeLoader)', "yaml.UnsafeLoader"),
        f"{STATIC}::test_nothing_unsafe_is_called[yaml_text.py]",
        f"{WAYS_IN}::test_a_task_file_cannot_make_python_objects",
    ),
    # S27 to S38
    _cut(
        *("S27", "changes over the API leave no line", "api/access.py"),
        *("        await self._access.note(deed)", "        del deed"),
        f"{ACCESS}::test_every_change_leaves_one_line_with_who_did_it",
        f"{AUDIT_LINES}::test_every_route_that_changes_something_leaves_one_line",
    ),
    _cut(
        *("S27", "changes in the dashboard leave no line", "web/page.py"),
        *("if page.action and answer.status_code < 400 and not ctx.nothing_changed:", "if False:"),
        f"{PAGES}::test_buttons_do_what_the_api_does_and_the_audit_log_has_it[memory]",
    ),
    _cut(
        *("S27", "a token made on the command line leaves no line", "cli/access.py"),
        *('await access.note(audit_action("create_token"', 'str(audit_action("create_token"'),
        f"{AUDIT_LINES}::test_what_the_command_line_changes_on_the_store_leaves_a_line",
    ),
    _cut(
        *("S27", "a changed line is not noticed", "policy/audit_chain.py"),
        *(" and entry.hash == chained(", " and None is not chained("),
        f"{STORED}::test_an_entry_that_was_changed_or_taken_out_is_noticed[memory]",
    ),
    _cut(
        *("S27", "a log that was written anew, with other signatures, is not noticed", "policy/audit_chain.py"),
        *("        elif not good:", "        elif False:"),
        f"{AUDIT_LOG}::test_a_log_that_was_rewritten_whole_is_a_flaw",
    ),
    _cut(
        *("S27", "a log whose end was cut off is not noticed", "policy/audit_chain.py"),
        *("last = max([end.counted, *self._expected])", "last = 0"),
        f"{AUDIT_LOG}::test_a_log_whose_newest_lines_were_cut_off_is_a_flaw_against_its_head",
    ),
    _cut(
        *("S27", "the head of the log is kept nowhere but in the store", "engine/node.py"),
        *('audit_log.info("audit log head %s", end.head)', "pass"),
        "acceptance/test_audit_heads.py::test_a_stop_leaves_the_head_in_the_servers_log",
    ),
    _cut(
        *("S27", "the log can be changed over the API", "api/tokens.py"),
        *('@call("GET", "/audit"', '@call("DELETE", "/audit"'),
        f"{CALLERS}::test_the_audit_log_can_be_read_and_nothing_else",
    ),
    _cut(
        *("S28", "an error tells what went wrong inside", "api/responses.py"),
        *('"something went wrong here; the log has it under the request_id"', "repr(error)"),
        f"{EDGE}::test_what_nobody_foresaw_is_internal_and_tells_nothing",
    ),
    _cut(
        *("S28", "a callback is told whether there is such a run", "service/callbacks.py"),
        *(
            "    if subject is None:\n        raise NotFound(_NO_RUN)",
            "    if subject is None:\n        raise NotFound(str(recorded.reason))",
        ),
        f"{CALLBACKS}::test_a_run_of_another_task_and_no_run_look_the_same",
    ),
    _cut(
        *("S28", "a deleted task is told from one that never was", "service/tasks.py"),
        *(
            '            raise NotFound("there is no such task")\n        scope.check_task(task)\n',
            '            raise NotFound(f"there is no such task: {task}")\n        scope.check_task(task)\n',
        ),
        f"{CALLERS}::test_what_is_gone_and_what_never_was_look_the_same",
    ),
    _cut(
        *("S29", "a page of another site listens to the stream", "api/events.py"),
        *("        _check_origin(request)\n", ""),
        f"{CALLERS}::test_no_page_of_another_site_listens_to_the_stream",
    ),
    _cut(
        *("S29", "the stream needs no token", "api/events.py"),
        *('"A stream of events", Role.VIEWER', '"A stream of events", None'),
        f"{CALLERS}::test_the_stream_is_closed_to_callers_without_a_token",
    ),
    _cut(
        *("S29", "pages of other sites may read answers", "api/middleware.py"),
        *('    "x-frame-options": "DENY",', '    "access-control-allow-origin": "*",'),
        f"{CALLERS}::test_no_answer_lets_a_page_of_another_site_read_it",
    ),
    _cut(
        *("S30", "any address is one of the dashboard", "web/login.py"),
        *('return path if is_ours and path.isprintable() else "/"', "return path"),
        f"{PURE}::test_a_redirect_stays_on_the_dashboard",
        f"{PAGES}::test_signing_in_leads_to_no_other_site",
    ),
    _both(
        *("S30", "after login the browser goes anywhere"),
        (
            ("web/login.py", 'return path if is_ours and path.isprintable() else "/"', "return path"),
            (
                "web/context.py",
                'RedirectResponse(self.root + path.removeprefix("/"), 303)',
                "RedirectResponse(path, 303)",
            ),
        ),
        f"{WEB}::test_a_login_leads_to_no_other_site",
        f"{FOREIGN}::test_a_login_leads_to_no_other_site",
    ),
    _cut(
        *("S31", "any certificate is taken", "targets/http/pool.py"),
        *("ssl.create_default_context()", "ssl._create_unverified_context()"),
        f"{HOSTILE}::test_a_certificate_that_nobody_trusts_is_refused_before_anything_is_sent",
        f"{STATIC}::test_nothing_unsafe_is_called[targets/http/pool.py]",
    ),
    _cut(
        *("S32", "the log takes control characters as they come", "telemetry/logs.py"),
        *("return escaped(redacted(text))", "return redacted(text)"),
        f"{LOGS}::test_nothing_in_a_record_can_forge_a_line",
    ),
    _cut(
        *("S33", "a cell may be a formula", "service/runs.py"),
        *("if text.startswith(_FORMULA) else text", "if False else text"),
        "integration/web/test_queues_and_workers.py::test_the_log_is_exported_with_its_filters_and_no_cell_is_a_formula",
    ),
    _cut(
        *("S34", "each task has a series of its own", "telemetry/metrics.py"),
        *("if len(self._known) >= self._limit:", "if False:"),
        f"{METRICS}::test_tasks_past_the_limit_share_a_series",
    ),
    _cut(
        *("S34", "the figures need no token", "api/system.py"),
        *('"Metrics for Prometheus", Role.VIEWER', '"Metrics for Prometheus", None'),
        f"{ROLES}::test_the_matrix_of_routes_and_roles_is_the_table",
    ),
    Removal(
        *("S35", "the lock holds a version without its hash"),
        (Edit("requirements.lock", "\nhatchling==", "\nhatchet==1.0\nhatchling=="),),
        ("architecture/test_papers.py::test_a_lock_file_holds_versions_and_hashes_only[requirements.lock]",),
    ),
    Removal(
        *("S35", "packages are installed without a look at their hashes"),
        (Edit("tools/setup", "--require-hashes requirements.lock", "requirements.lock"),),
        ("architecture/test_papers.py::test_what_is_installed_from_a_lock_file_is_checked_by_its_hashes[tools/setup]",),
    ),
    Removal(
        *("S35", "the image is built without a look at hashes"),
        (
            Edit(
                "Dockerfile",
                "--require-hashes --only-binary :all: --requirement image.lock",
                "--requirement image.lock",
            ),
        ),
        ("architecture/test_image.py::test_pip_takes_nothing_without_a_hash",),
    ),
    Removal(
        *("S36", "the process of the image is root"),
        (Edit("Dockerfile", "USER 10001", "USER root"),),
        ("architecture/test_image.py::test_the_process_of_the_image_is_not_root",),
    ),
    Removal(
        *("S36", "the unit lets the process gain rights"),
        (Edit("deploy/noonbell.service", "NoNewPrivileges=yes", "NoNewPrivileges=no"),),
        ("architecture/test_units.py::test_a_unit_takes_away_what_it_does_not_need[noonbell.service]",),
    ),
    Removal(
        *("S36", "the worker's unit lets the process gain rights"),
        (Edit("deploy/noonbell-worker@.service", "NoNewPrivileges=yes", "NoNewPrivileges=no"),),
        ("architecture/test_units.py::test_a_unit_takes_away_what_it_does_not_need[noonbell-worker@.service]",),
    ),
    _cut(
        *("S37", "a signature of any age is believed", "targets/http/signing.py"),
        *("if abs(away := now - int(timestamp)) > TOLERANCE:", "if (away := 0):"),
        f"{SIGNING}::test_what_is_wrong_with_a_signature_is_named",
        f"{CALLBACKS}::test_an_old_signature_of_a_callback_is_refused",
    ),
    _cut(
        *("S37", "the time is not signed", "targets/http/signing.py"),
        *("(message_id.encode(), timestamp, body)", "(message_id.encode(), 0, body)"),
        f"{SIGNING}::test_what_is_wrong_with_a_signature_is_named",
    ),
    _cut(
        *("S38", "files of tasks are not checked", "service/task_files.py"),
        *("    await check(services, declared, path=path)\n", ""),
        f"{WAYS_IN}::test_what_the_api_refuses_no_other_way_takes",
    ),
    _cut(
        *("S38", "`noonbell validate` takes anything", "cli/task_files.py"),
        *("            read_task(fields, now, rules)\n", "            pass\n"),
        f"{WAYS_IN}::test_validate_refuses_it_without_a_server",
    ),
    # Commands
    _cut(
        *("S39", "any program is run", "targets/command/allowed.py"),
        *("if not self._is_any and _place(program) not in", "if False and _place(program) not in"),
        f"{COMMANDS}::test_a_program_that_is_not_in_the_file_is_refused",
        f"{COMMANDS}::test_a_link_to_an_allowed_program_is_another_program",
    ),
    _cut(
        *("S39", "a program is known by the file that its links lead to", "targets/command/allowed.py"),
        *("os.path.join(os.path.realpath(directory), name)", "os.path.realpath(program)"),
        f"{COMMANDS}::test_another_name_of_the_same_binary_is_another_program",
    ),
    _cut(
        *("S39", "the shell need not be allowed", "targets/command/allowed.py"),
        *("path = self._program(argv[0])", "path = SHELL if spec.shell else self._program(argv[0])"),
        f"{COMMANDS}::test_the_shell_must_be_allowed_itself",
    ),
    _both(
        *("S39", "every command is run by a shell"),
        (
            (
                "targets/command/allowed.py",
                "else [str(word) for word in spec.command or ()]",
                'else [SHELL, "-c", " ".join(str(word) for word in spec.command or ())]',
            ),
            ("targets/command/allowed.py", "path = self._program(argv[0])", "path = SHELL"),
        ),
        f"{COMMANDS}::test_signs_of_a_shell_are_arguments",
    ),
    _cut(
        *("S39", "a command has the environment of its worker", "targets/command/target.py"),
        *('found = {\n        "PATH": PATH,', 'found = {\n        **os.environ,\n        "PATH": PATH,'),
        f"{COMMANDS}::test_nothing_of_the_workers_environment_is_inherited",
    ),
    _cut(
        *("S39", "a task sets variables by which a program runs something else", "targets/command/allowed.py"),
        *("if self.file.env is None and changes_code(name):", "if False:"),
        f"{COMMANDS}::test_a_variable_that_changes_what_is_run_is_refused",
    ),
    _cut(
        *("S39", "a command runs in any directory", "targets/command/allowed.py"),
        *('if roots is not None and cwd != "/" and', 'if False and roots is not None and cwd != "/" and'),
        f"{COMMANDS}::test_a_directory_outside_of_those_allowed_is_refused",
    ),
    _cut(
        *("S39", "a command takes any user", "targets/command/allowed.py"),
        *("if user not in self.file.users:", "if False:"),
        f"{COMMANDS}::test_a_user_that_is_not_in_the_file_is_refused",
    ),
    _cut(
        *("S39", "a worker that is not root takes another user", "targets/command/allowed.py"),
        *("if os.geteuid() != 0:", "if False:"),
        f"{COMMANDS}::test_a_worker_that_is_not_root_takes_no_other_user",
    ),
    _cut(
        *("S39", "a command of another user keeps root's groups", "targets/command/supervisor.py"),
        *("os.setgroups([group.gr_gid for group in grp.getgrall() if account.pw_name in group.gr_mem])", "pass"),
        f"{COMMANDS}::test_a_command_of_another_user_has_nothing_of_roots",
    ),
    _cut(
        *("S39", "a command may gain privileges", "targets/command/supervisor.py"),
        *("prctl(_NO_NEW_PRIVS, 1)", "pass"),
        f"{COMMANDS}::test_a_command_gains_no_privileges_and_leaves_no_core",
    ),
    _cut(
        *("S39", "anyone may write the file of allowed programs", "targets/command/allowed.py"),
        *(
            'if problem is not None:\n            raise SettingsError.field("commands"',
            'if False:\n            raise SettingsError.field("commands"',
        ),
        f"{COMMANDS}::test_a_file_that_others_can_write_is_no_file",
    ),
    _cut(
        *("S39", "anyone may write an allowed program", "targets/command/allowed.py"),
        *(
            "if not self._is_any:\n            self._check_owner(real)",
            "if False:\n            self._check_owner(real)",
        ),
        f"{COMMANDS}::test_a_program_that_anyone_can_write_is_refused",
    ),
    _cut(
        *("S39", "without a file every program is run", "app/embedded.py"),
        "commands = None if options.commands is None else allowed_commands(options.commands)",
        "from noonbell.targets.command.allowed import Allowed, AllowFile\n"
        '    commands = Allowed(AllowFile(programs=("*",)), "none") if options.commands is None'
        " else allowed_commands(options.commands)",
        "acceptance/test_commands.py::test_a_command_of_a_crontab_is_run_by_a_worker_that_allows_it",
    ),
    _cut(
        *("S39", "a worker of the protocol claims commands", "model/call.py"),
        *("NAMED_TYPES: Final = (CALL_TYPE, COMMAND_TYPE)", "NAMED_TYPES: Final = (CALL_TYPE,)"),
        f"{COMMANDS}::test_a_worker_of_the_protocol_cannot_name_itself_one_of_commands",
    ),
    _cut(
        *("S39", "what left the process group of a command lives on", "targets/command/supervisor.py"),
        "me, pause = os.getpid(), 0.001\n",
        "me, pause = os.getpid(), 0.001\n"
        "        with suppress(OSError):\n            os.killpg(self._pid, signal.SIGKILL)\n        return\n",
        f"{COMMANDS}::test_a_daemon_that_left_its_group_ends_with_its_command",
    ),
    _both(
        *("S39", "a command that ignores SIGTERM is left alone"),
        (
            (
                "targets/command/supervisor.py",
                "if self._kill_at is not None and now >= self._kill_at:",
                "if False:",
            ),
            (
                "targets/command/supervisor.py",
                "if heard is None:\n            self.end_all()\n",
                "if heard is None:\n",
            ),
            ("targets/command/supervisor.py", "prctl(_PDEATHSIG, signal.SIGKILL)", "pass"),
            ("targets/command/target.py", "os.killpg(self._group, signal.SIGKILL)", "pass"),
        ),
        f"{COMMANDS}::test_a_command_that_ignores_term_is_killed_when_its_run_is_canceled",
    ),
    _both(
        *("S39", "a command outlives its supervisor"),
        (
            ("targets/command/supervisor.py", "prctl(_PDEATHSIG, signal.SIGKILL)", "pass"),
            ("targets/command/target.py", "os.killpg(self._group, signal.SIGKILL)", "pass"),
        ),
        f"{COMMANDS}::test_a_command_that_kills_its_supervisor_dies_with_it",
    ),
    _cut(
        *("S39", "every line of a command is kept", "targets/command/target.py"),
        *('"head_lines": 10_000,', '"head_lines": 1_000_000,'),
        f"{COMMANDS}::test_many_short_lines_cost_little_log",
    ),
    _cut(
        *("S39", "all that a command writes is held in memory", "targets/command/supervisor.py"),
        *("while self._tail_size - len(self._tail[0][1]) >= self._tail_bytes:", "while False:"),
        "unit/targets/test_command_output.py::test_what_lies_between_is_dropped_whole_chunk_by_whole_chunk",
    ),
    _cut(
        *("S39", "the log of a run has the secrets of its command", "targets/command/target.py"),
        *("text = conceal(line, hidden)", "text = line"),
        f"{COMMANDS}::test_secrets_are_masked_in_log_result_and_error",
    ),
    _cut(
        *("S39", "answers and pages show a command's environment", "masking.py"),
        *("value if not value or is_harmless_variable(name) else MASK", "value"),
        f"{COMMANDS}::test_the_variables_of_a_command_are_masked_and_not_carried_to_another_one",
    ),
    _cut(
        *("S39", "a masked environment follows a task to another command", "service/secrets.py"),
        *('_RUNS: Final = ("command", "shell", "cwd", "user")', "_RUNS: Final = ()"),
        f"{COMMANDS}::test_the_variables_of_a_command_are_masked_and_not_carried_to_another_one",
    ),
    _cut(
        *("S39", "the audit log does not say which command was set", "api/access.py"),
        *("**noted_commands(),", ""),
        f"{COMMANDS}::test_the_audit_log_says_who_set_which_command",
    ),
    # Brokers and gRPC servers
    _cut(
        *("S40", "the addresses of brokers pass by the guard", "targets/brokers/pool.py"),
        *("self._guard.check(each, address.port)", "pass"),
        f"{BROKERS}::test_a_denied_address_is_not_dialled",
        f"{BROKERS}::test_metadata_addresses_are_not_dialled_by_any_client",
        f"{BROKERS}::test_ports_of_other_protocols_are_denied",
    ),
    _cut(
        *("S40", "the name of a broker is asked for again after its address was judged", "targets/brokers/pool.py"),
        *(
            "sock = await _connected(each, address.port)",
            "sock = await _connected((await self._names._resolver.resolve(address.host))[0], address.port)",
        ),
        f"{BROKERS}::test_the_address_that_was_checked_is_the_one_that_is_dialled",
    ),
    _cut(
        *("S40", "a broker with any certificate is taken", "targets/brokers/pool.py"),
        *("self._ssl_context = ssl.create_default_context()", "self._ssl_context = ssl._create_unverified_context()"),
        f"{BROKERS}::test_tls_is_verified_by_the_name_of_the_broker",
    ),
    _cut(
        *("S40", "a broker's certificate may be for another name", "targets/brokers/pool.py"),
        "return Link(sock, address, where, self._tls() if address.is_tls else None)",
        "context = self._tls() if address.is_tls else None\n"
        "                if context is not None:\n                    context.check_hostname = False\n"
        "                return Link(sock, address, where, context)",
        f"{BROKERS}::test_tls_is_verified_by_the_name_of_the_broker",
    ),
    _cut(
        *("S40", "NATS gets credentials without the TLS that its address asks for", "targets/brokers/nats.py"),
        *("if self._needs_tls:", "if False:"),
        f"{BROKERS}::test_no_credentials_are_sent_to_a_server_without_tls_where_the_address_asks_for_it",
    ),
    _cut(
        *("S40", "an error of a broker repeats the password", "targets/brokers/message.py"),
        *(", *_credentials(address)]", "]"),
        f"{BROKERS}::test_a_password_that_the_server_repeats_is_shown_nowhere",
    ),
    _cut(
        *("S40", "answers and pages show the password of a broker's address", "service/secrets.py"),
        *('shown = {**message, "url": mask_credentials(message["url"])}', "shown = {**message}"),
        f"{CANARIES}::test_a_canary_in_each_secret_field_is_emitted_nowhere",
    ),
    _cut(
        *("S40", "a message may have any size", "targets/brokers/message.py"),
        *("content_of(_body(assignment), max_body)", "content_of(_body(assignment), 1 << 30)"),
        f"{BROKERS}::test_a_message_that_is_too_large_is_not_sent",
    ),
    _cut(
        *("S40", "the addresses of gRPC servers pass by the guard", "targets/grpc/channels.py"),
        *("self._guard.check(each, address.port)", "pass"),
        f"{GRPC}::test_a_denied_address_is_never_dialled",
    ),
    _cut(
        *("S40", "gRPC looks the name up itself", "targets/grpc/channels.py"),
        *(
            "for dialled in _by_family(allowed, address.port)]",
            'for dialled in [f"dns:{address.host}:{address.port}"]]',
        ),
        f"{GRPC}::test_the_address_that_was_checked_is_the_one_that_is_dialled",
    ),
    _cut(
        *("S40", "gRPC asks the proxy of the environment", "targets/grpc/channels.py"),
        *('("grpc.enable_http_proxy", 0)', '("grpc.enable_http_proxy", 1)'),
        f"{GRPC}::test_a_proxy_of_the_environment_is_not_asked",
    ),
    _cut(
        *("S40", "a gRPC server's certificate may be for another name", "targets/grpc/channels.py"),
        *('("grpc.ssl_target_name_override", address.host)', '("grpc.ssl_target_name_override", "bell.test")'),
        f"{GRPC}::test_a_wrong_name_or_a_foreign_ca_is_refused",
    ),
    _cut(
        *("S40", "gRPC calls are sent without the TLS that their address asks for", "targets/grpc/channels.py"),
        *("tls = (call.tls or GrpcTls()) if address.is_tls else None", "tls = None"),
        f"{GRPC}::test_tls_is_verified_by_our_own_ca",
        f"{GRPC}::test_the_caller_shows_its_own_certificate",
    ),
    _cut(
        *("S40", "the answer of a gRPC server may have any size", "targets/grpc/channels.py"),
        *('("grpc.max_receive_message_length", self._max_bytes)', '("grpc.max_receive_message_length", -1)'),
        f"{GRPC}::test_the_answer_may_not_be_larger_than_the_limit",
    ),
    _both(
        *("S40", "a gRPC request may have any size"),
        (
            ("targets/grpc/target.py", "if len(content) > self._max_body_bytes:", "if False:"),
            (
                "targets/grpc/channels.py",
                '("grpc.max_send_message_length", self._max_bytes)',
                '("grpc.max_send_message_length", -1)',
            ),
        ),
        f"{GRPC}::test_a_request_may_not_be_larger_than_the_limit",
    ),
    _cut(
        *("S40", "an error of a gRPC server repeats the metadata", "targets/grpc/target.py"),
        *("error_message=conceal(storable(message), hidden)[", "error_message=storable(message)["),
        f"{GRPC}::test_secrets_are_in_no_error_and_in_nothing_that_is_kept",
    ),
    _cut(
        *("S40", "tasks with other credentials share a gRPC connection", "targets/grpc/channels.py"),
        *("metadata = tuple(sorted(call.metadata.items()))", "metadata = ()"),
        f"{GRPC}::test_tasks_with_other_credentials_share_no_connection",
    ),
    # Receivers of subscriptions
    _cut(
        *("S41", "webhooks of subscriptions pass by the guard", "subscriptions/sender.py"),
        *("super().__init__(guard, connect_timeout", "super().__init__(None, connect_timeout"),
        f"{SUBSCRIPTIONS}::test_an_address_that_the_guard_denies_is_never_dialled",
    ),
    _cut(
        *("S41", "events are posted without a signature", "subscriptions/sender.py"),
        'headers.put_own(signing.sign(subscription.secret or "", message_id, self._now() // SECOND, body))',
        "pass",
        f"{SUBSCRIPTIONS}::test_events_arrive_as_signed_cloud_events_in_order",
        "integration/api/test_subscriptions.py::test_a_test_is_posted_signed_and_logged",
    ),
    _cut(
        *("S41", "deliveries show the signature", "subscriptions/sender.py"),
        *(" if name.lower() != signing.SIGNATURE}", "}"),
        "integration/api/test_subscriptions.py::test_events_are_delivered_looked_at_and_replayed",
    ),
    _cut(
        *("S41", "a receiver that repeats the secret has it stored", "subscriptions/sender.py"),
        *('hidden = hidden_parts(request.url, (plain.secret or "").split())', "hidden = []"),
        f"{SUBSCRIPTIONS}::test_what_a_receiver_repeats_of_the_secret_and_the_address_is_not_kept",
    ),
    # D1 to D10: data
    _cut(
        *("D1", "the schema allows two runs of one slot", "stores/migrations/m0001_foundation.py"),
        *('"create unique index runs_slot on', '"create index runs_slot on'),
        f"{PLAN}::test_the_store_itself_refuses_a_second_run_of_a_slot",
    ),
    _cut(
        *("D1", "after a conflict the planner does not look before it writes", "stores/sql/store.py"),
        *("skip=skip, careful=True)", "skip=skip)"),
        f"{PLAN}::test_a_cursor_that_was_set_back_makes_no_second_run_of_a_slot",
    ),
    _cut(
        *("D2", "PostgreSQL settles with any token", "stores/postgres_fast.py"),
        *(
            'l.gate is null and {NO_EDGE}")\n',
            'l.gate is null and {NO_EDGE}").replace("l.token + 0 = s.token", "true")\n',
        ),
        f"{SETTLE}::test_the_same_worker_with_an_old_token_cannot_settle",
    ),
    _cut(
        *("D2", "PostgreSQL settles with any token behind a limit", "stores/postgres_fast.py"),
        *(
            "{numbered(_SETTLE_COUNTED, 1)}{_FREED}",
            "{numbered(_SETTLE_COUNTED.replace('l.token + 0 = s.token', 'true'), 1)}{_FREED}",
        ),
        f"{SETTLE}::test_the_same_worker_with_an_old_token_cannot_settle",
    ),
    _both(
        *("D2", "a heartbeat of a former process is taken"),
        (
            ("stores/sql/workers.py", "if incarnation and rows[0][2] != incarnation:", "if not rows:"),
            ("stores/sql/workers.py", ', "incarnation": incarnation} if incarnation else {"id": worker_id}', "}"),
        ),
        f"{HOLDING}::test_a_heartbeat_of_a_former_process_is_told_to_stop_and_keeps_no_worker_alive",
    ),
    _both(
        *("D3", "SQLite keeps ids that were reserved in a transaction that was undone"),
        (
            (
                "stores/sqlite.py",
                "def rollback(self) -> None:\n        self._ids.drop()",
                "def rollback(self) -> None:",
            ),
            ("stores/sqlite.py", "except BaseException:\n            self._ids.drop()", "except BaseException:"),
        ),
        f"{LIFE}::test_ids_that_a_transaction_took_and_gave_back_are_not_given_out_twice",
    ),
    _cut(
        *("D4", "SQLite does not wait for the disk", "stores/sqlite.py"),
        *('"pragma synchronous = full"', '"pragma synchronous = off"'),
        f"{DURABILITY}::test_a_commit_of_sqlite_is_on_the_disk_when_it_is_told",
    ),
    _cut(
        *("D4", "PostgreSQL lets a frozen process hold its rows", "stores/postgres_pool.py"),
        *('"idle_in_transaction_session_timeout": "15s"', '"idle_in_transaction_session_timeout": "0"'),
        f"{DURABILITY}::test_a_process_that_is_frozen_in_a_transaction_holds_its_rows_no_longer_than_a_lease",
    ),
    _cut(
        *("D4", "MariaDB lets a frozen process hold its rows", "stores/mysql.py"),
        *(", idle_transaction_timeout = 15 */", " */"),
        f"{DURABILITY}::test_a_process_that_is_frozen_in_a_transaction_holds_its_rows_no_longer_than_a_lease",
    ),
    _cut(
        *("D5", "a claim on PostgreSQL waits for the claim of another node", "stores/postgres_fast.py"),
        *("r.run_id limit $2 for update skip locked", "r.run_id limit $2 for update"),
        f"{LOCKS}::test_a_claim_leaves_alone_the_run_that_another_node_is_taking",
    ),
    _cut(
        *("D5", "a claim on MariaDB waits for the claim of another node", "stores/mysql.py"),
        *('skip_locked_l=" for update skip locked"', 'skip_locked_l=" for update"'),
        f"{LOCKS}::test_a_claim_leaves_alone_the_run_that_another_node_is_taking",
    ),
    _cut(
        *("D5", "a claim waits for a limit that another node is taking from", "stores/postgres_fast.py"),
        *("order by task_id for update skip locked", "order by task_id for update"),
        f"{LOCKS}::test_a_claim_leaves_alone_the_limit_that_another_node_is_taking_from",
    ),
    _cut(
        *("D5", "a planner waits for the planner of another node", "stores/sql/planning.py"),
        *("order by next_fire_at limit :limit{q.skip_locked}", "order by next_fire_at limit :limit{q.lock}"),
        f"{LOCKS}::test_a_planner_leaves_alone_the_task_that_another_node_is_planning",
    ),
    _cut(
        *("D6", "events are numbered without the lock", "stores/sql/events.py"),
        *("where name = 'events'\" + q.lock)", "where name = 'events'\")"),
        f"{LOCKS}::test_two_readers_never_give_an_event_two_numbers",
    ),
    _cut(
        *("D6", "events are numbered by id", "stores/sql/events.py"),
        *("order by at, id limit :limit", "order by id limit :limit"),
        f"{EVENTS}::test_what_one_node_publishes_and_another_runs_is_told_in_that_order",
    ),
    _cut(
        *("D6", "PostgreSQL writes events after the commit", "stores/postgres.py"),
        "return _changed(await connection.execute(self._text(_INSERT_EVENTS), *values))",
        "later = self._with_connection(lambda aside: aside.execute(self._text(_INSERT_EVENTS), *values))\n"
        "                asyncio.get_running_loop().call_later(1, asyncio.ensure_future, later)\n"
        "                return len(rows)",
        f"{DURABILITY}::test_a_change_whose_event_cannot_be_written_has_not_happened",
    ),
    _cut(
        *("D7", "the sweep comes ten times as rarely", "engine/sweeper.py"),
        *("poll: float = 0.5,", "poll: float = 5.0,"),
        "unit/engine/test_sweeper.py::test_the_sweep_looks_about_twice_a_second",
    ),
    _cut(
        *("D8", "a wake-up that connects again wakes nobody", "stores/wakeups.py"),
        *("self._connected.set()\n        self._wake_all()", "self._connected.set()"),
        *(
            f"integration/test_{name}.py::test_a_listener_that_reconnects_wakes_those_who_wait_for_a_topic_that_is_not_polled"
            for name in ("wakeups", "redis")
        ),
    ),
    _cut(
        *("D9", "a step of the schema is recorded before it is done", "stores/migrations/__init__.py"),
        'yield from _do_all(q, step, statements, progress)\n        failpoint.hit("K13")\n        yield from _record(step)\n',
        # The step that makes the column of `oldest_code` cannot be recorded before it.
        "is_early = step.number != _SAYS_OLDEST_CODE\n"
        "        if is_early:\n            yield from _record(step)\n            yield from _keep(q)\n"
        '        yield from _do_all(q, step, statements, progress)\n        failpoint.hit("K13")\n'
        "        if not is_early:\n            yield from _record(step)\n",
        f"{CUT_OFF}::test_a_node_that_is_killed_in_a_step_is_followed_by_one_that_finishes_it",
    ),
    _cut(
        *("D9", "half a step on MariaDB is done again from its beginning", "stores/migrations/__init__.py"),
        *("if q.has_index is not None and (yield from _is_done(q, sql)):", "if q.objects is None:"),
        f"{CUT_OFF}::test_on_a_database_that_cannot_take_a_table_back_half_a_step_is_finished",
    ),
    _cut(
        *("D10", "the end of a step does not move its flow on in its transaction", "stores/sql/finish.py"),
        *("over = yield from flows.advance(q, cache, now, by_flow)", "over = []"),
        f"{FLOWS}::test_two_nodes_settle_the_steps_of_one_flow",
        f"{FLOWS}::test_a_foreach_has_a_run_for_each_item",
    ),
    _cut(
        *("D10", "nodes that settle steps of one flow do not wait for each other", "stores/sql/active_runs.py"),
        *('held = f" order by run_id{q.lock}"', 'held = " order by run_id"'),
        f"{FLOWS}::test_two_nodes_that_settle_the_last_two_needs_start_what_follows_once",
    ),
    _both(
        *("D10", "two upstreams that end at once may both open, and both complete, a join"),
        (
            (
                "stores/migrations/m0014_after.py",
                "create unique index joins_root on joins",
                "create index joins_root on joins",
            ),
            ("stores/sql/joins.py", 'task_ids, f" order by task_id{q.lock}")', 'task_ids, " order by task_id")'),
        ),
        "integration/test_after_races.py::test_upstreams_that_end_at_the_same_moment_make_one_run",
    ),
    _cut(
        *("D10", "a parked job is resumed by each child that ends", "stores/sql/children.py"),
        *("in sorted(gathering.items()) if run_id not in still]", "in sorted(gathering.items())]"),
        f"{CHILDREN}::test_the_end_of_the_last_child_wakes_it_for_a_further_attempt_that_is_no_retry",
    ),
    _cut(
        *("D10", "an item of a foreach that failed is not counted", "policy/flows.py"),
        *("state.failed + len(statuses) - good", "state.failed"),
        f"{FLOWS}::test_a_foreach_fails_with_an_item_unless_it_may",
    ),
    _cut(
        *("D10", "items of a foreach start without regard to those under way", "policy/flows.py"),
        *("min(planned.at_once - under_way, state.total", "min(planned.at_once, state.total"),
        f"{FLOWS}::test_no_more_items_are_under_way_than_max_parallel",
    ),
    # D11 to D14: messages, subscriptions, quiet hours and calendars
    *(
        _cut(
            "D11", f"a message to {kind} is a success before the broker's word", file, text, instead, f"{LOST}[{case}]"
        )
        for kind, file, text, instead, case in (
            (
                "AMQP",
                "targets/brokers/amqp.py",
                "publisher_confirms=True, on_return_raises=True",
                "publisher_confirms=False",
                "amqp-before-at_least_once",
            ),
            (
                "NATS",
                "targets/brokers/nats.py",
                "await self._or_closed(self._client.flush(_FOREVER))",
                "pass",
                "nats-before-at_least_once",
            ),
            (
                "Redis",
                "targets/brokers/redis.py",
                "return await self._connection.read_response()",
                'return await self._connection.read_response() if words == ("PING",) else b"0-1"',
                "redis-before-at_least_once",
            ),
            (
                "MQTT",
                "targets/brokers/mqtt.py",
                "if not await done_before(publishing, self._client.ended()):\n                raise lost(self._client.ended().exception())\n            publishing.result()",
                "pass",
                "mqtt-before-at_least_once",
            ),
        )
    ),
    _cut(
        *("D11", "a message that no queue is bound for is a success", "targets/brokers/amqp.py"),
        *("mandatory=spec.mandatory,", ""),
        f"{BROKERS}::test_what_the_broker_refuses_is_not_retried",
    ),
    _both(
        *("D11", "a message that is delivered at most once goes over a connection that was used before"),
        (
            (
                "targets/brokers/pool.py",
                "held = None if anew else self._idle(place)",
                "held = self._idle(place)",
            ),
            ("targets/brokers/pool.py", "if anew or self._is_closed or", "if self._is_closed or"),
        ),
        f"{BROKERS}::test_at_most_once_dials_anew_for_each_message",
    ),
    _cut(
        *("D11", "a gRPC call that is made at most once goes over a connection that was used before"),
        *("targets/grpc/channels.py", "if alone:", "if False:"),
        f"{GRPC}::test_at_most_once_dials_anew_for_each_attempt",
    ),
    _cut(
        *("D11", "JetStream gets another id with each attempt", "targets/brokers/nats.py"),
        *('headers["Nats-Msg-Id"] = message.key', 'headers["Nats-Msg-Id"] = str(id(message))'),
        f"{BROKERS}::test_a_stream_acknowledges_and_knows_a_message_that_comes_again",
    ),
    _cut(
        *("D12", "a position is written before its events are delivered", "subscriptions/delivery.py"),
        "attempts = await self._send(held, planned)\n        if room:\n            held.pass_over(found, planned.taken)\n",
        "if room:\n            held.pass_over(found, planned.taken)\n"
        "        held.written_at = float('-inf')\n        await self._write(held, [])\n"
        "        attempts = await self._send(held, planned)\n",
        f"{SUBSCRIPTIONS}::test_a_node_that_dies_before_it_has_written_is_followed_by_one_that_sends_again",
    ),
    _cut(
        *("D12", "the event after one that failed is posted", "subscriptions/delivery.py"),
        *("goes_on = answer is not None and answer.error is None", "goes_on = True"),
        f"{SUBSCRIPTIONS}::test_the_event_after_one_that_failed_waits_in_the_same_pass",
    ),
    _cut(
        *("D12", "a new event passes by one of its run that waits", "policy/subscriptions.py"),
        *("blocked = key in keys and len(groups.get(key, ())) < len(keys[key])", "blocked = False"),
        f"{SUBSCRIPTIONS}::test_a_failing_event_holds_back_its_own_run_and_no_other",
    ),
    _cut(
        *("D12", "a node that has lost a subscription writes its position", "stores/sql/subscriptions.py"),
        *(
            "if not rows or (there := _held(rows[0])).state.token != held.state.token or not there",
            "if not rows or not (there := _held(rows[0]))",
        ),
        f"{STORED_SUBSCRIPTIONS}::test_a_change_makes_a_pass_that_began_before_void",
    ),
    _cut(
        *("D12", "two nodes hold a subscription", "stores/sql/subscriptions.py"),
        *("where active = 1 and (holder = :holder or expires_at <= :now)", "where active = 1 and :holder <> :now"),
        f"{STORED_SUBSCRIPTIONS}::test_one_holder_has_a_subscription_until_its_time_is_up",
    ),
    _cut(
        *("D12", "a subscription that fails is never disabled", "stores/sql/subscriptions.py"),
        *("given_up = policy.has_failed_too_long(settled, now, rules)", "given_up = False"),
        f"{STORED_SUBSCRIPTIONS}::test_what_fails_for_the_whole_window_disables_the_subscription_once",
        f"{SUBSCRIPTIONS}::test_after_the_window_it_is_disabled_with_an_alert_and_goes_on_when_it_is_active_again",
    ),
    _cut(
        *("D12", "events that were removed before their delivery are not told of", "subscriptions/delivery.py"),
        *("held.missed += _missed(page, after, is_whole=is_whole)", "pass"),
        f"{SUBSCRIPTIONS}::test_events_that_were_removed_before_they_could_be_delivered_are_told_of",
    ),
    _cut(
        *("D13", "a claim takes runs of a task that is quiet", "stores/sql/claim.py"),
        *("if not asking or not (yield from resting.rest_tasks(q, cache, now, asking)):", "if True:"),
        f"{QUIET}::test_what_is_due_when_they_begin_is_put_aside_by_the_claim",
        f"{QUIET}::test_retries_losses_and_releases_are_held_too",
    ),
    _cut(
        *("D13", "a claim takes runs of a queue that is quiet", "stores/sql/claim.py"),
        *("yield from _rest_queues(q, cache, queues)", "pass"),
        f"{QUIET}::test_a_quiet_queue_holds_all_but_what_is_triggered_by_hand",
    ),
    _cut(
        *("D13", "held runs start all at once", "stores/sql/resting.py"),
        *("spread_over(now, seconds, len(found))", "spread_over(now, 0.0, len(found))"),
        f"{QUIET}::test_thousands_of_held_runs_are_let_go_in_order_over_the_time_that_was_asked_for",
    ),
    _cut(
        *("D14", "a change of a calendar does not reach its tasks", "stores/sql/calendars.py"),
        *("if has_changed else []\n    facts", "if before is None else []\n    facts"),
        f"{CALENDARS}::test_a_change_leaves_out_what_is_accounted_for",
        f"{CALENDARS}::test_slots_up_to_now_are_accounted_for_under_the_old_revision",
    ),
    _cut(
        *("D14", "a calendar and its tasks are changed in two transactions", "stores/sql/calendars.py"),
        "tasks = (yield from _carry_tasks",
        'yield Execute("commit")\n    yield Execute("begin")\n    tasks = (yield from _carry_tasks',
        f"{CALENDARS}::test_a_change_that_is_cut_off_has_changed_neither_the_calendar_nor_a_task",
    ),
    _cut(
        *("D14", "a calendar that tasks use is deleted", "stores/sql/calendars.py"),
        *("    if found.tasks:\n", "    if False:\n"),
        f"{CALENDARS}::test_a_used_calendar_is_not_deleted",
    ),
    _cut(
        *("D14", "what was accounted for under the old calendar is planned again", "when/calendar.py"),
        *(
            "return Carried(best, left_out_of(old, cursor, new, cursor if best is None else best))",
            "return Carried(best, ())",
        ),
        "unit/when/test_calendar.py::test_a_change_while_slots_wait_leaves_out_what_is_done",
    ),
    # D15: the store that nodes work on is the only one, and all of it is there
    _cut(
        *("D15", "a store that went back goes on as if nothing had happened", "stores/sql/pulses.py"),
        *("return found.at < self.at", "return False"),
        f"{WENT_BACK}::test_a_node_that_remembers_more_notes_the_stretch_once",
        "integration/test_store_went_back.py::test_an_asynchronous_standby_repeats_no_slot_that_must_not_be_repeated",
    ),
    _cut(
        *(
            "D15",
            "an at-most-once run that waits is carried out once more on a store that went back",
            "stores/sql/pulses.py",
        ),
        *("skipped = yield from _skip_waiting(q, cache, now)", "skipped = 0"),
        f"{WENT_BACK}::test_what_may_have_been_delivered_is_skipped_if_it_must_not_be_twice",
        f"{WENT_BACK}::test_a_run_that_was_handed_back_before_is_skipped_as_well",
    ),
    _cut(
        *("D15", "a slot of an at-most-once task is run once more on a store that went back", "stores/sql/pulses.py"),
        *("skipped += yield from _skip_due(q, cache, now)", "skipped += 0"),
        f"{WENT_BACK}::test_what_may_have_been_delivered_is_skipped_if_it_must_not_be_twice",
    ),
    _cut(
        *("D15", "a lease of a store that went back counts as not begun", "stores/sql/pulses.py"),
        *("(row.run_id, row.flags | RunFlag.BEGUN)", "(row.run_id, row.flags)"),
        f"{WENT_BACK}::test_a_lease_that_had_not_begun_counts_as_begun",
    ),
    _cut(
        *("D15", "of two primaries the one that was promoted earlier is taken", "stores/hosts.py"),
        *("highest = max(state.timeline", "highest = min(state.timeline"),
        f"{HOSTS}::test_the_highest_timeline_is_taken_and_the_other_is_named",
        "integration/test_several_hosts.py::test_postgres_is_found_again_after_a_fail_over_and_an_old_primary_is_not_taken",
    ),
    _both(
        *("D15", "of two hosts that both take writes the first is taken"),
        (
            ("stores/hosts.py", "    if len(rivals) > 1:\n", "    if False:\n"),
            ("stores/hosts.py", "(chosen,) = rivals", "chosen, *_ = rivals"),
        ),
        f"{HOSTS}::test_two_that_take_writes_are_refused",
        "integration/test_several_hosts.py::test_two_primaries_of_postgres_are_refused",
    ),
    _cut(
        *("D15", "a primary from before a promotion that was seen is taken", "stores/hosts.py"),
        *("    if chosen.timeline < timeline:\n", "    if False:\n"),
        f"{HOSTS}::test_a_timeline_below_the_one_that_was_seen_is_refused",
    ),
    _cut(
        *("D15", "another server behind a pooler is not looked at", "stores/postgres.py"),
        *("if self._server is not None:\n            sql +=", "if False:\n            sql +="),
        "integration/test_pgbouncer.py::test_a_server_that_has_taken_the_place_of_another_behind_the_pooler_is_looked_at",
    ),
    _cut(
        *("D15", "a store that a move has closed takes writes", "stores/sql/change_capture.py"),
        *('{text} from {gate}"', '{text}"'),
        "integration/test_closed_store.py::test_a_write_into_a_closed_store_names_the_move",
    ),
    _cut(
        *("D15", "a node starts on a store that a move has not filled yet", "stores/sql/change_capture.py"),
        *("            case MovePhase.FILLING:\n", "            case MovePhase.PREPARING:\n"),
        "acceptance/test_backup.py::test_a_restore_that_is_killed_goes_on_and_a_copy_can_be_an_installation_of_its_own",
    ),
    _cut(
        *("D15", "SQLite goes on in a file that is gone", "stores/sqlite.py"),
        *("    if found != opened:\n", "    if False:\n"),
        f"{DISK}::test_nothing_is_acknowledged_once_the_file_is_gone",
        f"{DISK}::test_a_file_that_was_replaced_by_a_copy_is_not_worked_on",
    ),
    _cut(
        *("D15", "SQLite is kept where locks have no effect", "stores/sqlite.py"),
        *("    if not locks_hold(folder):\n", "    if False:\n"),
        f"{DISK}::test_a_file_system_whose_locks_have_no_effect_is_refused",
    ),
    _cut(
        *("D15", "a slot may have a run in each partition", "stores/sql/ids.py"),
        *("                if rows:\n", "                if rows and not column:\n"),
        "integration/test_partitions.py::test_a_slot_and_a_key_have_one_run_over_all_partitions",
    ),
)
