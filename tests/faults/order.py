"""Which process runs which test, and when: several at a time, and at the end, one after the other, those that must be alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from faults.record import Record

ALONE = (
    "test_a_full_disk_refuses_writes_and_work_goes_on_by_itself_when_there_is_room",
    "test_a_crowd_that_says_nothing_does_not_take_the_files_that_runs_need",
    "test_without_a_single_file_left_every_slot_is_still_accounted_for",
    "test_no_late_word_of_a_frozen_worker_is_written",
    "test_every_job_succeeds_once_while_workers_are_killed",
    "test_a_subscription_survives_a_node_that_is_killed_every_few_seconds",
    "test_each_slot_of_two_upstreams_is_followed_once_while_nodes_are_killed",
    "test_five_hundred_flows_end_while_nodes_are_killed",
    "test_no_slot_is_lost_or_doubled_while_nodes_are_killed",
    "test_no_slot_is_lost_or_doubled_when_the_database_fails_over",
    "test_nodes_of_an_earlier_version_are_replaced_one_by_one_under_load",
)
"""The tests that share the machine with no other: they fill it, or judge by the clock.

By their names, because names are all that the process knows that gives the tests out.
"""


def is_alone(nodeid: str) -> bool:
    return nodeid.partition("[")[0].rpartition("::")[2] in ALONE


class AloneLast(LoadScheduling):
    """A process has one test in hand and one that follows: it begins a test only when it knows the next one, or that there is none.

    When the tests that may run side by side are given out, all processes but one are sent home. That one gets the rest when the others
    have nothing left.
    """

    def __init__(self, config: pytest.Config, log: Producer, record: Record) -> None:
        super().__init__(config, log)
        self._record = record
        self._alone: list[int] = []

    @property
    def tests_finished(self) -> bool:
        return not self._alone and super().tests_finished

    @property
    def has_pending(self) -> bool:
        return bool(self._alone) or super().has_pending

    def schedule(self) -> None:
        if self.collection is None:
            if not self._check_nodes_have_same_collection():
                return
            self.collection = next(iter(self.node2collection.values()))
            left = set(self._record.left_of(self.collection))
            for index, nodeid in enumerate(self.collection):
                if nodeid in left:
                    (self._alone if is_alone(nodeid) else self.pending).append(index)
        self._give_out()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        self.node2pending[node].remove(item_index)
        self._give_out()

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        self._give_out()

    def _give_out(self) -> None:
        staying = [node for node in self.nodes if not node.shutting_down]
        for wanted in (1, 2):
            for node in staying:
                if len(self.node2pending[node]) < wanted:
                    self._send_tests(node, 1)
        if self.pending:
            return
        for node in staying[1:] if self._alone else staying:
            node.shutdown()
        if (
            self._alone
            and staying
            and not any(self.node2pending[node] for node in self.nodes if node is not staying[0])
        ):
            self.pending, self._alone = self._alone, []
            self._send_tests(staying[0], len(self.pending))
            staying[0].shutdown()
