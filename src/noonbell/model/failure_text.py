"""What went wrong with an attempt, where Noonbell itself says so: a code with its facts, and the English sentence.

The sentence is stored as the error message, for logs and for programs. The code and the facts are stored beside it, as
`said` of the error's details, so that each reader gets it in their own language: `failure.CODE` of the catalogues
(`service.translation`). What a target, a handler or a library says in its own words is a fact, or a plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

SAID: Final = "said"
CAUSE: Final = "cause"
"""In the details of a flow: its step that failed first, and what that said of its error."""
"""The field of `error_details`."""

TEXTS: Final[Mapping[str, str]] = {
    "lost": "worker {worker} was lost: its lease expired",
    "no_callback": "no callback within {seconds} s",
    "took_longer": "it took longer than {seconds} s",
    "took_longer_hangs": (
        "it took longer than {seconds} s, and its worker could not end it: the handler blocks the event loop (the run's log says so),"
        " or kept running after it was canceled"
    ),
    "took_longer_blocked": (
        "it took longer than {seconds} s, and could not be ended: the event loop was blocked for over {late} s"
    ),
    "worker_stopped": "the worker had to stop; at-most-once delivery does not allow another attempt",
    "not_stored": "the outcome could not be stored: {error}",
    "no_target": "this worker has no target for {kind} tasks",
    "callback_said_failed": "the callback reported FAILED",
    "worker_said": "the worker reported {word}",
    "handler_failed": "the handler reported a failure",
    "result_not_json": "the handler returned a {type} that cannot be stored as JSON: {error}",
    "payload_unfit": "the payload is not valid: {error}",
    "no_handler": "this worker has no handler for job type {type}",
    "process_ended": "its process ended without reporting a result",
    "process_exit": "its process exited with code {code}",
    "process_killed": "its process was killed by {signal}",
    "process_killed_memory": "its process was killed by {signal}, which the system does when memory runs out",
    "process_not_ready": "its process failed to start: {error}",
    "supervisor_ended": "its supervisor process ended without reporting a result",
    "too_many_processes": "it had more processes than max_processes in the worker's file allows",
    "program_no_path": "{program} is not an absolute path; give the full path of the program",
    "program_not_listed": "{program} is not among the programs that {file} allows",
    "cwd_no_path": "cwd {cwd} is not an absolute path",
    "cwd_outside": "cwd {cwd} is outside the directories that {file} allows",
    "user_not_listed": "user {user} is not among the users that {file} allows",
    "user_not_root": "cannot switch to user {user}: the worker does not run as root",
    "variable_of_runs": "variable {name} is set for each run; a task cannot set it",
    "variable_not_listed": "variable {name} is not among those that {file} allows",
    "variable_changes_code": "variable {name} can make a program run something else; {file} does not allow it",
    "command_killed": "it was killed by {signal}",
    "command_no_code": "it ended without an exit code",
    "command_exit": "it exited with code {code}",
    "step_failed": "step {names} failed",
    "step_failed_why": "step {names} failed: {error}",
    "steps_failed": "steps {names} failed",
    "steps_failed_why": "steps {names} failed; step {step} was the first: {error}",
    "many_steps_failed": "steps {names} and {more} more failed",
    "many_steps_failed_why": "steps {names} and {more} more failed; step {step} was the first: {error}",
    # of what a step of a flow is given, or of its condition; what fits two of them is the first
    "input_item": "item {index}: {error}",
    "input_result_gone": "the result of step {step} is no longer kept",
    "input_answer_cut": "the answer of step {step} was too large to be kept whole",
    "input_no_root": "{path} is not there: this run has no {root}",
    "input_no_keys": "{path} is not there: {above} has no {key}; it has nothing",
    "input_more_keys": "{path} is not there: {above} has no {key}; it has {names} and {more} more",
    "input_no_key": "{path} is not there: {above} has no {key}; it has {names}",
    "input_no_index": "{path} is not there: {above} is a list of {count}",
    "input_no_field": "{path} is not there: {above} is {found}",
    "input_foreach_no_list": "foreach is {found}, and not a list",
    "input_foreach_long": "foreach has {count} items; at most {most} are allowed",
    "input_compared_deep": "the condition compares values that are nested too deep",
    "input_not_ordered": "{left} is {found} and {right} is {other}; {sign} compares two numbers or two texts",
    "input_no_text_in": "{left} is {found}; a text is looked for in {other}",
    "input_not_in": "{right} is {found}; 'in' looks into a list, a text or an object",
    "input_long_text": "{source} makes a text of over {most} characters",
    "input_by_zero": "{source} divides by zero",
    "input_large_number": "{source} is too large a number",
    "input_no_sum": "{source} is {found}; {sign} takes two numbers or two texts",
    "input_no_number": "{source} is {found}; {sign} takes numbers",
    "input_number_for": "{source} is too large a number for {sign}",
    "input_no_json": "the values that the step is given cannot be written as JSON",
    "input_too_large": "what the step is given has more than {most} bytes as JSON",
    "input_nested_deep": "what the step is given is nested deeper than {most} levels",
    "answered": "the target returned {status}",
    "answered_own_api": (
        "the target returned {status}: it is the API of this same Noonbell, which rejects calls of its own runs"
        " without a token."
        " Create one with `noonbell token create --role operator --name NAME`, and add it to the task: --header"
        " 'Authorization: Bearer"
        " TOKEN'"
    ),
    "answer_too_large": "the response is larger than executor.max_body_bytes",
    "no_connection": "no connection within executor.connect_timeout",
    "no_answer_of": "{where} does not respond",
    "no_whole_answer": "no complete response within {seconds} s",
    "lost_in_answer": "the connection was lost before the response was complete",
    "lost_after_sending": "the connection was lost after the request was sent: the target may have done its work",
    "not_http": "the response is not HTTP: {error}",
    "broken_body": "the response body is corrupt: {error}",
    "tls_failed": "TLS failed: {error}",
    "refused": "{where}: Connection refused",
    "unreachable": "{where} cannot be reached: {error}",
    "network_unreachable": "{where}: Network is unreachable",
    "host_unreachable": "{where}: No route to host",
    "no_such_host": "{host} cannot be resolved: {error}",
    "port_denied": "port {port} belongs to another protocol: connections to it are blocked",
    "address_denied": "{address}: {error}; executor.allow_networks can allow it",
    "redirect_inside": "{address}: a redirect from {origin} must not lead to a more internal address",
    "scheme_denied": "scheme {scheme} is not allowed: only http and https",
    "unknown_service": "this node has no service {name}: executor.services has {known}",
    "no_services": "this node has no service {name}: executor.services is empty",
    "redirect_without_location": "{status} without a Location",
    "too_many_redirects": "more than {most} redirects",
    "no_broker_answer": "no response from the broker within {seconds} s",
    "no_consumer_answer": "no response from the consumer within {seconds} s",
    "consumer_failed": "the consumer reported a failure",
    "lost_before_broker": "the connection was lost before the broker responded, so it may have the message",
    "lost_before_broker_why": (
        "the connection was lost before the broker responded, so it may have the message: {error}"
    ),
    "credentials_refused": "{where} rejected the credentials: {error}",
    "connection_not_taken": "{where} rejected the connection: {error}",
    "no_queue_bound": "no queue is bound for it: {error}",
    "broker_nacked": "the broker could not accept the message (basic.nack)",
    "broker_refuses": "the broker rejected the message: {error}",
    "server_refuses": "the server rejected the message: {error}",
    "no_grpc_answer": "no response within {seconds} s",
    "lost_after_call": "the connection was lost after the call was sent: the server may have done its work",
    "grpc_answered": "the server returned {status}",
    # of the source of a calendar
    "source_answered": "it returned {status}; expected 200",
    "source_too_large": "it is larger than {most} bytes",
    # of a run that was canceled: the store says why beside it, as `why` and `by`
    "canceled": "canceled",
    "canceled_by": "canceled by {by}",
    "canceled_deleted": "its task was deleted",
    "canceled_error": "its task is in ERROR",
    "canceled_flow": "its flow has ended",
    "canceled_parent": "the run that spawned it was canceled",
    "canceled_replaced": "canceled by the next run of its task (overlap_action CANCEL_PREV)",
    "canceled_store_went_back": (
        "the store went back to an earlier state, and this retry may have been delivered before that"
    ),
    # of a message of an alert, to a channel
    "alert_answered": "it returned {status}",
    "alert_answered_why": "it returned {status}: {error}",
    "alert_no_answer": "no response within {seconds} s",
    "alert_no_recipients": "the channel has no recipients",
    "alert_no_sender": "the channel has no sender or no recipients",
    "alert_no_code": "the response has no code: this is not a URL of that service",
    "alert_no_bot": "the response is not from the Bot API",
    "alert_no_channel": "there is no enabled channel {name}",
    "alert_no_kind": "this node cannot send to channels of type {kind}",
    "alert_apprise_error": "Apprise failed: {error}",
    "alert_apprise_refused": "the service did not accept it; Apprise's log says why",
    "alert_apprise_missing": "Apprise is not installed: pip install 'noonbell[alerts]'",
    "alert_apprise_url": "Apprise does not support this kind of URL",
    "alert_mail_answered": "the mail server returned {code}: {error}",
    "alert_mail_refused": "the mail server rejected {recipients}",
    "alert_mail_not_ascii": "the user, the password or an address has characters that SMTP cannot send; expected ASCII",
    "alert_mail_lost": "the mail server closed the connection: {error}",
    "alert_mail_failed": "sending the mail failed: {error}",
    "alert_mail_open": "the mail server does not offer TLS, and a password is not sent without it",
    "alert_sealed": (
        "its secrets are encrypted with key {keys}, which is not in secrets.key_file of this node; add the key,"
        " or enter the secrets again"
    ),
    "alert_fault": "{error}; see the node's log",
    "alert_quiet_skipped": "quiet hours",
    "alert_quiet_held": "held: quiet hours",
}

GIVEN_UP: Final = "it failed for {seconds} s; the last error: {error}"
"""Why a subscription was disabled. It is stored as this text alone."""


class FailureText(str):
    """The English sentence; and how it came about."""

    __slots__ = ("code", "facts")

    code: str
    facts: dict[str, Any]

    def __new__(cls, code: str, facts: dict[str, Any]) -> Self:
        made = super().__new__(cls, TEXTS[code].format(**facts))
        made.code, made.facts = code, facts
        return made


def failure_text(code: str, /, **facts: Any) -> FailureText:
    return FailureText(code, facts)


def said_in(error: Exception) -> str:
    """The message of an exception, still with its code where it has one."""
    found = error.args[0] if error.args else None
    return found if isinstance(found, FailureText) else str(error)


def said_by(message: str, conceal: Callable[[str], str] = str) -> dict[str, Any]:
    """What the details of an error say of its message; nothing of one in a target's own words. `conceal` takes secrets
    out of facts.
    """
    if not isinstance(message, FailureText):
        return {}
    facts = {name: conceal(value) if isinstance(value, str) else value for name, value in message.facts.items()}
    return {SAID: {"code": message.code, "facts": facts}}
