# mypy: disable-error-code="empty-body"
"""Every call of the API, by the name that its description has for it, with the types of what it takes and answers.

`tools/reference.py --write` makes the methods from the endpoints. One declaration serves both clients: `Client` gets the answer,
`AsyncClient` awaits it.

Arguments without a name fill the path. Named ones are the query of a GET or DELETE and the body of anything else; `body=`
is a whole body, `query=` a query beside it, `if_match=` the version that a change expects. `from` is written `from_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from noonbell.client.transport import api_call

if TYPE_CHECKING:
    from noonbell.client import types


class ApiCalls:
    """A method for each endpoint; and `call`, which takes the fields of a call as they are."""

    @api_call("POST", "/calls", field="url")
    def call(self, url: str, **fields: Unpack[types.CallOptionsInput]) -> types.PublishedJson:
        """Make one HTTP request, now or later, without a task"""

    @api_call("POST", "/calls/batch", field="calls")
    def call_batch(self, calls: Sequence[types.CallWriteInput]) -> types.CallBatchAnswerJson:
        """Make up to 10,000 of them in one transaction, each with its `url`"""

    # Endpoints: made by tools/reference.py

    # Tasks

    @api_call("POST", "/tasks/apply")
    def apply_tasks(self, **fields: Unpack[types.ApplyInput]) -> types.AppliedJson:
        """Apply the tasks of a file for one owner"""

    @api_call("POST", "/tasks")
    def create_task(self, **fields: Unpack[types.TaskWriteInput]) -> types.TaskCreatedJson:
        """Create a task"""

    @api_call("POST", "/tasks/batch")
    def create_tasks(self, **fields: Unpack[types.TaskBatchInput]) -> types.TasksCreatedJson:
        """Create up to 10,000 tasks in one transaction"""

    @api_call("PATCH", "/tasks/batch")
    def patch_tasks(self, **fields: Unpack[types.TaskBatchPatchInput]) -> types.TasksPatchedJson:
        """Change up to 10,000 tasks in one transaction"""

    @api_call("DELETE", "/tasks/batch")
    def delete_tasks(
        self, *, body: types.TaskBatchDeleteInput, **fields: Unpack[types.RemovalInput]
    ) -> types.TasksDeletedJson:
        """Delete up to 10,000 tasks in one transaction"""

    @api_call("GET", "/tasks")
    def list_tasks(self, **fields: Unpack[types.TaskListInput]) -> types.TaskPageJson:
        """List tasks"""

    @api_call("POST", "/tasks/enable")
    def enable_tasks(self, **fields: Unpack[types.BulkTasksInput]) -> types.TasksChangedJson:
        """Enable all tasks that match a filter"""

    @api_call("POST", "/tasks/disable")
    def disable_tasks(self, **fields: Unpack[types.BulkTasksInput]) -> types.TasksChangedJson:
        """Disable all tasks that match a filter"""

    @api_call("GET", "/tasks/{id}")
    def get_task(self, task: int | str, /) -> types.TaskJson:
        """Read a task"""

    @api_call("PUT", "/tasks/{id}")
    def replace_task(
        self, task: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.TaskReplaceInput]
    ) -> types.TaskUpdatedJson:
        """Replace a task: fields left out get their defaults"""

    @api_call("PATCH", "/tasks/{id}")
    def patch_task(
        self, task: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.TaskPatchInput]
    ) -> types.TaskUpdatedJson:
        """Change some fields of a task"""

    @api_call("DELETE", "/tasks/{id}")
    def delete_task(
        self, task: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.RemovalInput]
    ) -> types.DeletedJson:
        """Delete a task"""

    @api_call("POST", "/tasks/{id}/enable")
    def enable_task(self, task: int | str, /, *, if_match: int | None = None) -> types.StatusOfTaskJson:
        """Enable a task"""

    @api_call("POST", "/tasks/{id}/resume")
    def resume_task(self, task: int | str, /, *, if_match: int | None = None) -> types.StatusOfTaskJson:
        """Same as enable"""

    @api_call("POST", "/tasks/{id}/disable")
    def disable_task(
        self, task: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.TaskPauseWriteInput]
    ) -> types.TaskPausedJson:
        """Disable a task"""

    @api_call("POST", "/tasks/{id}/pause")
    def pause_task(
        self, task: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.TaskPauseWriteInput]
    ) -> types.TaskPausedJson:
        """Same as disable"""

    @api_call("POST", "/tasks/{id}/reset")
    def reset_task(self, task: int | str, /) -> types.StatusOfTaskJson:
        """Reset a task in ERROR or COMPLETED"""

    @api_call("POST", "/tasks/{id}/skip")
    def skip_slots(self, task: int | str, /, **fields: Unpack[types.SkipWriteInput]) -> types.SkipJson:
        """Skip the next slots of a task"""

    @api_call("GET", "/tasks/{id}/next")
    def next_slots(self, task: int | str, /, **fields: Unpack[types.NextListInput]) -> types.PreviewJson:
        """The next slots of a task"""

    @api_call("POST", "/tasks/{id}/trigger")
    def trigger_task(self, task: int | str, /, **fields: Unpack[types.TriggerWriteInput]) -> types.TriggeredJson:
        """Run a task now"""

    @api_call("GET", "/tasks/{id}/runs")
    def list_runs_of_task(self, task: int | str, /, **fields: Unpack[types.RunsOfTaskInput]) -> types.RunPageJson:
        """The runs of a task"""

    @api_call("GET", "/tasks/{id}/keys")
    def list_keys_of_task(self, task: int | str, /) -> types.KeyLinesJson:
        """The keys of a task that runs wait for"""

    @api_call("GET", "/tasks/{id}/slots")
    def list_slots(self, task: int | str, /, **fields: Unpack[types.SlotListInput]) -> types.SlotPageJson:
        """The slots of a time range, each with its outcome"""

    @api_call("GET", "/tasks/{id}/explain")
    def explain_task(self, task: int | str, /, **fields: Unpack[types.ExplainTaskInput]) -> types.ExplanationJson:
        """Why a task did or did not run"""

    @api_call("GET", "/timeline")
    def timeline(self, **fields: Unpack[types.TimelineListInput]) -> types.TimelineJson:
        """What ran and what is planned, task by task"""

    @api_call("POST", "/tasks/{id}/backfill")
    def backfill_task(self, task: int | str, /, **fields: Unpack[types.BackfillWriteInput]) -> types.BackfilledJson:
        """Backfill a task"""

    @api_call("POST", "/tasks/{id}/clean")
    def clean_task(self, task: int | str, /, **fields: Unpack[types.CleanWriteInput]) -> types.CleanedJson:
        """Remove the final runs of a task"""

    # Runs

    @api_call("GET", "/runs/{run_id}/explain")
    def explain_run(self, run_id: int | str, /, **fields: Unpack[types.ExplainRunInput]) -> types.ExplanationJson:
        """Why a run ended as it did, or what it waits for"""

    @api_call("GET", "/runs")
    def list_runs(self, **fields: Unpack[types.RunListInput]) -> types.RunPageJson:
        """The runs of all tasks"""

    @api_call("GET", "/runs/export")
    def export_runs(self, **fields: Unpack[types.RunExportInput]) -> str:
        """All runs that match a filter, as CSV or NDJSON"""

    @api_call("POST", "/runs/batch")
    def publish_runs(self, **fields: Unpack[types.BatchWriteInput]) -> types.BatchAnswerJson:
        """Publish up to 10,000 runs in one transaction"""

    @api_call("POST", "/runs/import")
    def import_runs(self, **fields: Unpack[types.RunRecordsInput]) -> types.HistoryImportedJson:
        """Import final runs of another system"""

    @api_call("POST", "/runs/cancel")
    def cancel_runs(self, **fields: Unpack[types.BulkRunsInput]) -> types.RunsCanceledJson:
        """Cancel all runs that match a filter"""

    @api_call("POST", "/runs/retry")
    def retry_runs(self, **fields: Unpack[types.BulkRunsInput]) -> types.RunsRetriedJson:
        """Retry all runs that match a filter"""

    @api_call("POST", "/runs/clean")
    def clean_runs(self, **fields: Unpack[types.CleanRunsWriteInput]) -> types.RunsCleanedJson:
        """Remove final runs from history"""

    @api_call("GET", "/runs/{run_id}")
    def get_run(self, run_id: int | str, /) -> types.RunJson:
        """Read a run"""

    @api_call("POST", "/runs/{run_id}/cancel")
    def cancel_run(self, run_id: int | str, /, **fields: Unpack[types.CancelWriteInput]) -> types.CanceledJson:
        """Cancel a run"""

    @api_call("POST", "/runs/{run_id}/retry")
    def retry_run(self, run_id: int | str, /, **fields: Unpack[types.RetryWriteInput]) -> types.RetriedJson:
        """Retry a final run"""

    @api_call("GET", "/runs/{run_id}/graph")
    def get_graph(self, run_id: int | str, /) -> types.FlowGraphJson:
        """The steps of a run of a flow"""

    @api_call("POST", "/runs/{run_id}/promote")
    def promote_run(self, run_id: int | str, /) -> types.PromotedJson:
        """Start a delayed or retrying run now"""

    @api_call("GET", "/runs/{run_id}/attempts")
    def list_attempts(self, run_id: int | str, /, **fields: Unpack[types.AttemptListInput]) -> types.AttemptsJson:
        """The attempts of a run, oldest first"""

    @api_call("GET", "/runs/{run_id}/log")
    def read_log(self, run_id: int | str, /, **fields: Unpack[types.LogListInput]) -> types.LogJson:
        """The log lines of a run"""

    @api_call("GET", "/runs/{run_id}/callbacks")
    def list_callbacks_of_run(
        self, run_id: int | str, /, **fields: Unpack[types.CallbackListInput]
    ) -> types.CallbackRecordsJson:
        """The callbacks of a run, newest first"""

    # Schedules

    @api_call("POST", "/schedules/preview")
    def preview_schedule(self, **fields: Unpack[types.PreviewWriteInput]) -> types.SchedulePreviewJson:
        """What a schedule will do"""

    # Stats

    @api_call("GET", "/stats")
    def stats(self, **fields: Unpack[types.StatsListInput]) -> types.StatsJson:
        """How runs ended over a period"""

    @api_call("GET", "/stats/queues/{name}")
    def queue_stats(self, name: int | str, /, **fields: Unpack[types.LoadListInput]) -> types.QueueStatsJson:
        """How long the runs of a queue waited and took, over time"""

    @api_call("GET", "/stats/workers/{worker_id}")
    def worker_stats(self, worker_id: int | str, /, **fields: Unpack[types.LoadListInput]) -> types.WorkerStatsJson:
        """How busy a worker was, over time"""

    @api_call("GET", "/stats/sla")
    def service_levels(self, **fields: Unpack[types.SlaListInput]) -> types.ServiceLevelsJson:
        """How well tasks meet their service levels"""

    # Callbacks

    @api_call("POST", "/callbacks/{callback_token}")
    def callback(
        self, callback_token: int | str, /, **fields: Unpack[types.CallbackWriteInput]
    ) -> types.CallbackAnswerJson:
        """Report how a run ended (for targets)"""

    @api_call("POST", "/callbacks")
    def callback_by_ids(self, **fields: Unpack[types.CallbackByIdsWriteInput]) -> types.CallbackAnswerJson:
        """Report how a run ended, without a token (for targets)"""

    @api_call("GET", "/callbacks")
    def list_rejected_callbacks(self, **fields: Unpack[types.CallbackListInput]) -> types.CallbackRecordsJson:
        """Callbacks that found no run, newest first"""

    # Bulk

    @api_call("GET", "/bulk")
    def list_bulk(self, **fields: Unpack[types.BulkListInput]) -> types.BulkOperationsJson:
        """Bulk operations, newest first"""

    @api_call("POST", "/bulk")
    def start_bulk(self, **fields: Unpack[types.BulkStartInput]) -> types.BulkOperationJson:
        """Change all runs or tasks that match a filter, on the server"""

    @api_call("GET", "/bulk/{bulk_id}")
    def get_bulk(self, bulk_id: int | str, /) -> types.BulkOperationJson:
        """Read a bulk operation"""

    @api_call("GET", "/bulk/{bulk_id}/skipped")
    def list_skipped(self, bulk_id: int | str, /, **fields: Unpack[types.SkippedListInput]) -> types.SkippedItemsJson:
        """What a bulk operation skipped, and why"""

    @api_call("POST", "/bulk/{bulk_id}/cancel")
    def cancel_bulk(self, bulk_id: int | str, /) -> types.BulkOperationJson:
        """Stop a bulk operation"""

    @api_call("POST", "/bulk/{bulk_id}/undo")
    def undo_bulk(self, bulk_id: int | str, /) -> types.BulkOperationJson:
        """Undo a bulk operation"""

    # Views

    @api_call("GET", "/views")
    def list_views(self, **fields: Unpack[types.ViewsAskedInput]) -> types.AllViewsJson:
        """Saved views of a list"""

    @api_call("PUT", "/views/{of}/{view}")
    def save_view(self, of: int | str, view: int | str, /, *, body: types.ViewWriteInput) -> types.SavedViewJson:
        """Save or replace a view"""

    @api_call("DELETE", "/views/{of}/{view}")
    def remove_view(self, of: int | str, view: int | str, /) -> types.DeletedJson:
        """Remove a saved view"""

    # Calls

    @api_call("POST", "/calls")
    def make_call(self, *, body: types.CallWriteInput) -> types.PublishedJson:
        """Call a URL, now or later, without a task"""

    @api_call("POST", "/calls/batch")
    def make_calls(self, **fields: Unpack[types.CallBatchWriteInput]) -> types.CallBatchAnswerJson:
        """Create up to 10,000 calls in one transaction"""

    # Queues

    @api_call("GET", "/queues")
    def list_queues(self) -> types.QueuesJson:
        """The queues"""

    @api_call("GET", "/queues/{name}")
    def get_queue(self, name: int | str, /) -> types.QueueJson:
        """Read a queue"""

    @api_call("PUT", "/queues/{name}")
    def limit_queue(self, name: int | str, /, **fields: Unpack[types.QueueWriteInput]) -> types.QueueJson:
        """Limit a queue"""

    @api_call("POST", "/queues/{name}/pause")
    def pause_queue(self, name: int | str, /, **fields: Unpack[types.QueuePauseWriteInput]) -> types.QueueJson:
        """Pause a queue"""

    @api_call("POST", "/queues/{name}/resume")
    def resume_queue(self, name: int | str, /) -> types.QueueJson:
        """Resume a queue"""

    @api_call("POST", "/queues/{name}/drain")
    def drain_queue(self, name: int | str, /) -> types.RunsCanceledJson:
        """Cancel the waiting runs of a queue"""

    @api_call("POST", "/queues/{name}/clean")
    def clean_queue(self, name: int | str, /, **fields: Unpack[types.CleanWriteInput]) -> types.CleanedJson:
        """Remove the final runs of a queue"""

    @api_call("GET", "/queues/{name}/dead")
    def list_dead_runs(self, name: int | str, /, **fields: Unpack[types.DeadRunsInput]) -> types.RunPageJson:
        """The dead-lettered runs of a queue"""

    @api_call("GET", "/queues/{name}/depth")
    def queue_depth(self, name: int | str, /, **fields: Unpack[types.SeriesListInput]) -> types.QueueDepthJson:
        """How many runs waited in a queue, over time"""

    @api_call("POST", "/queues/{name}/redrive")
    def redrive_queue(self, name: int | str, /, **fields: Unpack[types.RedriveWriteInput]) -> types.RunsRetriedJson:
        """Retry the dead-lettered runs of a queue"""

    # Calendars

    @api_call("GET", "/calendars")
    def list_calendars(self) -> types.CalendarsJson:
        """All calendars"""

    @api_call("GET", "/calendars/{calendar}")
    def get_calendar(self, calendar: int | str, /) -> types.CalendarJson:
        """Read a calendar"""

    @api_call("PUT", "/calendars/{calendar}")
    def save_calendar(
        self, calendar: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.CalendarWriteInput]
    ) -> types.CalendarSavedJson:
        """Create or replace a calendar"""

    @api_call("DELETE", "/calendars/{calendar}")
    def delete_calendar(self, calendar: int | str, /) -> types.CalendarJson:
        """Delete a calendar"""

    @api_call("POST", "/calendars/{calendar}/preview")
    def preview_calendar(
        self,
        calendar: int | str,
        /,
        *,
        query: types.PreviewAskedInput | None = None,
        **fields: Unpack[types.CalendarWriteInput],
    ) -> types.CalendarPreviewJson:
        """Which slots a change would move"""

    @api_call("POST", "/calendars/{calendar}/refresh")
    def refresh_calendar(self, calendar: int | str, /) -> types.CalendarSavedJson:
        """Fetch the iCal source of a calendar now"""

    @api_call("GET", "/calendars/{calendar}/days")
    def list_calendar_days(
        self, calendar: int | str, /, **fields: Unpack[types.DaysAskedInput]
    ) -> types.CalendarDaysJson:
        """Which days of a calendar are open"""

    # Workers

    @api_call("GET", "/workers")
    def list_workers(self) -> types.WorkersJson:
        """The workers"""

    @api_call("GET", "/workers/{worker_id}")
    def get_worker(self, worker_id: int | str, /) -> types.WorkerJson:
        """Read a worker"""

    @api_call("PATCH", "/workers/{worker_id}")
    def change_worker(self, worker_id: int | str, /, **fields: Unpack[types.WorkerChangeInput]) -> types.WorkerJson:
        """Set how many runs a worker may run at once"""

    @api_call("DELETE", "/workers/{worker_id}")
    def forget_worker(self, worker_id: int | str, /) -> types.WorkerForgottenJson:
        """Remove a lost worker"""

    @api_call("POST", "/workers/{worker_id}/drain")
    def drain_worker(self, worker_id: int | str, /) -> types.WorkerStateSetJson:
        """Drain a worker"""

    @api_call("POST", "/workers/{worker_id}/stop")
    def stop_worker(self, worker_id: int | str, /) -> types.WorkerStateSetJson:
        """Stop a worker"""

    @api_call("POST", "/workers/{worker_id}/resume")
    def resume_worker(self, worker_id: int | str, /) -> types.WorkerStateSetJson:
        """Resume a worker"""

    # Worker protocol

    @api_call("POST", "/workers/{worker_id}/claim")
    def claim_runs(self, worker_id: int | str, /, **fields: Unpack[types.ClaimWriteInput]) -> types.ClaimedJson:
        """Claim runs"""

    @api_call("POST", "/workers/{worker_id}/heartbeat")
    def heartbeat(self, worker_id: int | str, /, **fields: Unpack[types.HeartbeatWriteInput]) -> types.HeartbeatJson:
        """Renew leases, and receive orders"""

    @api_call("POST", "/runs/{run_id}/settle")
    def settle_run(self, run_id: int | str, /, **fields: Unpack[types.SettleWriteInput]) -> types.SettledRunJson:
        """Report how an attempt ended"""

    @api_call("POST", "/runs/{run_id}/progress")
    def report_progress(
        self, run_id: int | str, /, **fields: Unpack[types.ProgressWriteInput]
    ) -> types.OrderAnswerJson:
        """Report progress"""

    @api_call("POST", "/runs/{run_id}/log")
    def write_log(self, run_id: int | str, /, **fields: Unpack[types.LogWriteInput]) -> types.OrderAnswerJson:
        """Write to the log of a run"""

    @api_call("POST", "/runs/{run_id}/extend")
    def extend_run(self, run_id: int | str, /, **fields: Unpack[types.ExtendWriteInput]) -> types.OrderAnswerJson:
        """Extend the deadline of an attempt"""

    # Jobs

    @api_call("POST", "", base="/api/jobs")
    def create_job(self, **fields: Unpack[types.JobWriteInput]) -> types.JobSavedJson:
        """Create a job"""

    @api_call("GET", "", base="/api/jobs")
    def list_jobs(self, **fields: Unpack[types.JobListInput]) -> types.JobPageJson:
        """List jobs"""

    @api_call("GET", "/{id}", base="/api/jobs")
    def get_job(self, job: int | str, /) -> types.JobJson:
        """Read a job"""

    @api_call("PUT", "/{id}", base="/api/jobs")
    def change_job(
        self, job: int | str, /, *, if_match: int | None = None, **fields: Unpack[types.JobChangeInput]
    ) -> types.JobSavedJson:
        """Change a job"""

    @api_call("DELETE", "/{id}", base="/api/jobs")
    def delete_job(self, job: int | str, /, **fields: Unpack[types.RemovalInput]) -> types.DeletedJson:
        """Delete a job"""

    @api_call("POST", "/{id}/pause", base="/api/jobs")
    def pause_job(self, job: int | str, /) -> types.JobJson:
        """Pause a job"""

    @api_call("POST", "/{id}/resume", base="/api/jobs")
    def resume_job(self, job: int | str, /) -> types.JobJson:
        """Resume a job"""

    @api_call("GET", "/{id}/executions", base="/api/jobs")
    def list_executions(self, job: int | str, /, **fields: Unpack[types.ExecutionListInput]) -> types.ExecutionPageJson:
        """The executions of a job"""

    # Plans

    @api_call("POST", "/plans")
    def publish_plan(self, **fields: Unpack[types.PlanWriteInput]) -> types.PlanJson:
        """Publish a plan"""

    @api_call("GET", "/plans")
    def list_plans(self, **fields: Unpack[types.PlanListInput]) -> types.PlanPageJson:
        """List plans"""

    @api_call("GET", "/plans/{plan_id}")
    def get_plan(self, plan_id: int | str, /) -> types.PlanWholeJson:
        """Read a plan, with its newest results"""

    @api_call("DELETE", "/plans/{plan_id}")
    def remove_plan(self, plan_id: int | str, /) -> types.PlanRemovedJson:
        """Remove a plan"""

    @api_call("POST", "/plans/{plan_id}/pause")
    def pause_plan(self, plan_id: int | str, /) -> types.PlanJson:
        """Pause a plan"""

    @api_call("POST", "/plans/{plan_id}/resume")
    def resume_plan(self, plan_id: int | str, /) -> types.PlanJson:
        """Resume a plan"""

    @api_call("POST", "/plans/{plan_id}/skip")
    def skip_plan(self, plan_id: int | str, /, **fields: Unpack[types.SkipWriteInput]) -> types.PlanJson:
        """Skip the next slots of a plan"""

    @api_call("POST", "/plans/{plan_id}/reset")
    def reset_plan(self, plan_id: int | str, /) -> types.PlanJson:
        """Reset a plan"""

    @api_call("POST", "/plans/{plan_id}/close")
    def close_plan(self, plan_id: int | str, /) -> types.PlanJson:
        """Close a plan"""

    # Subscriptions

    @api_call("GET", "/subscriptions")
    def subscriptions(self) -> types.SubscriptionsJson:
        """All webhook subscriptions"""

    @api_call("POST", "/subscriptions")
    def create_subscription(self, **fields: Unpack[types.SubscriptionWriteInput]) -> types.SubscriptionJson:
        """Create a subscription"""

    @api_call("GET", "/subscriptions/{subscription}")
    def subscription(self, subscription: int | str, /) -> types.SubscriptionJson:
        """One subscription, with its position"""

    @api_call("PATCH", "/subscriptions/{subscription}")
    def change_subscription(
        self, subscription: int | str, /, **fields: Unpack[types.SubscriptionChangeInput]
    ) -> types.SubscriptionJson:
        """Change fields of a subscription"""

    @api_call("DELETE", "/subscriptions/{subscription}")
    def remove_subscription(self, subscription: int | str, /) -> types.DeletedJson:
        """Remove a subscription and its deliveries"""

    @api_call("POST", "/subscriptions/{subscription}/test")
    def test_subscription(self, subscription: int | str, /) -> types.SubscriptionTestedJson:
        """Post a test event"""

    @api_call("POST", "/subscriptions/{subscription}/replay")
    def replay_subscription(
        self, subscription: int | str, /, **fields: Unpack[types.SubscriptionMoveInput]
    ) -> types.SubscriptionJson:
        """Continue at another position of the stream"""

    @api_call("GET", "/subscriptions/{subscription}/deliveries")
    def subscription_deliveries(
        self, subscription: int | str, /, **fields: Unpack[types.WebhookListInput]
    ) -> types.WebhookDeliveriesJson:
        """The deliveries of a subscription, newest first"""

    @api_call("GET", "/subscriptions/{subscription}/deliveries/{delivery_id}")
    def subscription_delivery(self, subscription: int | str, delivery_id: int | str, /) -> types.WebhookDeliveryJson:
        """One delivery, with its request and response"""

    @api_call("POST", "/subscriptions/{subscription}/deliveries/{delivery_id}/replay")
    def replay_delivery(self, subscription: int | str, delivery_id: int | str, /) -> types.WebhookDeliveryJson:
        """Deliver one event again"""

    # Alerts

    @api_call("GET", "/alerts")
    def alerts(self) -> types.AlertsJson:
        """Open alerts"""

    @api_call("POST", "/alerts/acknowledge")
    def acknowledge_alert(self, **fields: Unpack[types.AlertAcknowledgeInput]) -> types.AlertAcknowledgedJson:
        """Acknowledge an open alert"""

    @api_call("POST", "/alerts/unacknowledge")
    def unacknowledge_alert(self, **fields: Unpack[types.AlertKeyInput]) -> types.AlertAcknowledgedJson:
        """Withdraw an acknowledgement"""

    @api_call("GET", "/alerts/mutes")
    def alert_mutes(self) -> types.AlertMutesJson:
        """List mutes"""

    @api_call("POST", "/alerts/mutes")
    def mute_alerts(self, **fields: Unpack[types.AlertMuteWriteInput]) -> types.AlertMuteJson:
        """Mute alerts for a while"""

    @api_call("DELETE", "/alerts/mutes/{mute}")
    def unmute_alerts(self, mute: int | str, /) -> types.DeletedJson:
        """End a mute"""

    @api_call("GET", "/alerts/rules")
    def alert_rules(self) -> types.AlertRulesJson:
        """All rules"""

    @api_call("POST", "/alerts/rules")
    def create_alert_rule(self, **fields: Unpack[types.AlertRuleWriteInput]) -> types.AlertRuleJson:
        """Create a rule"""

    @api_call("GET", "/alerts/rules/{rule}")
    def alert_rule(self, rule: int | str, /) -> types.AlertRuleJson:
        """One rule"""

    @api_call("PUT", "/alerts/rules/{rule}")
    def change_alert_rule(
        self, rule: int | str, /, **fields: Unpack[types.AlertRuleChangeInput]
    ) -> types.AlertRuleJson:
        """Replace a rule"""

    @api_call("DELETE", "/alerts/rules/{rule}")
    def remove_alert_rule(self, rule: int | str, /) -> types.DeletedJson:
        """Delete a rule, and its state"""

    @api_call("GET", "/alerts/channels")
    def alert_channels(self) -> types.AlertChannelsJson:
        """All channels"""

    @api_call("POST", "/alerts/channels")
    def create_alert_channel(self, **fields: Unpack[types.AlertChannelWriteInput]) -> types.AlertChannelJson:
        """Create a channel"""

    @api_call("GET", "/alerts/channels/{channel}")
    def alert_channel(self, channel: int | str, /) -> types.AlertChannelJson:
        """One channel"""

    @api_call("PUT", "/alerts/channels/{channel}")
    def change_alert_channel(
        self, channel: int | str, /, **fields: Unpack[types.AlertChannelChangeInput]
    ) -> types.AlertChannelJson:
        """Replace a channel"""

    @api_call("DELETE", "/alerts/channels/{channel}")
    def remove_alert_channel(self, channel: int | str, /) -> types.DeletedJson:
        """Delete a channel"""

    @api_call("POST", "/alerts/channels/{channel}/test")
    def test_alert_channel(self, channel: int | str, /) -> types.AlertTestedJson:
        """Send a test message to a channel"""

    @api_call("GET", "/alerts/deliveries")
    def alert_deliveries(self, **fields: Unpack[types.DeliveryListInput]) -> types.AlertDeliveriesJson:
        """The notifications that were sent, and their results"""

    # Access

    @api_call("POST", "/tokens")
    def create_token(self, **fields: Unpack[types.TokenWriteInput]) -> types.TokenJson:
        """Create a token"""

    @api_call("GET", "/tokens")
    def list_tokens(self) -> types.TokenListJson:
        """List tokens"""

    @api_call("DELETE", "/tokens/{token}")
    def revoke_token(self, token: int | str, /) -> types.TokenRevokedJson:
        """Revoke a token"""

    @api_call("GET", "/audit")
    def audit_log(self, **fields: Unpack[types.AuditListInput]) -> types.AuditPageJson:
        """Who changed what, newest first"""

    @api_call("GET", "/audit/check")
    def check_audit_log(self, **fields: Unpack[types.AuditCheckInput]) -> types.AuditStateJson:
        """Check that the audit log is intact"""

    # System

    @api_call("GET", "/pause")
    def get_pause(self) -> types.PauseJson:
        """Whether everything is paused"""

    @api_call("POST", "/pause")
    def pause_all(self, **fields: Unpack[types.PauseWriteInput]) -> types.PauseChangedJson:
        """Pause everything, on all nodes"""

    @api_call("POST", "/resume")
    def resume_all(self) -> types.PauseChangedJson:
        """Resume everything"""

    @api_call("GET", "/healthz")
    def healthz(self) -> str:
        """Whether the service is healthy: `ok`, or 503"""

    @api_call("GET", "/version")
    def version(self) -> str:
        """The version"""

    @api_call("GET", "/installation")
    def installation(self) -> types.InstallationJson:
        """The version, the store and the installation's id"""

    @api_call("GET", "/livez")
    def livez(self) -> str:
        """Whether the process is alive"""

    @api_call("GET", "/readyz")
    def readyz(self) -> types.HealthJson:
        """Whether the service can do its work, part by part; 503 if not"""

    @api_call("GET", "/metrics", base="")
    def metrics(self) -> str:
        """Metrics for Prometheus"""

    # End of what is made
