"""The sentences of `explain`, in English and Chinese. Each says what happened and, where it can, what decided so.

`{run}`, `{blocking}` are ids; `{slot}`, `{started}`, `{since}` and the like are times in the task's zone; `{span}` is a
length of time. A sentence may name only what its finding knows: `tests/unit/service/test_explain_words.py` looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    "ran": (
        "It ran: run {run} started at {started} and ended {status} at {ended}.",
        "已执行：{run} 于 {started} 开始，{ended} 结束，状态 {status}。",
    ),
    "ran_badly": (
        "It ran: run {run} started at {started} and ended {status} at {ended}: {error}.",
        "已执行：{run} 于 {started} 开始，{ended} 结束，状态 {status}：{error}。",
    ),
    "running": (
        "It is running: attempt {attempt} of run {run} started at {started} on worker {worker}.",
        "正在执行：{run} 的第 {attempt} 次尝试于 {started} 在工作节点 {worker} 上开始。",
    ),
    "running_callback": (
        "Run {run} was accepted by its target, and its callback is awaited until {until}.",
        "执行 {run} 已被目标接受，等待回调至 {until}。",
    ),
    "running_retry": (
        "Attempt {attempt} of run {run} failed ({error}); it is tried again at {until}.",
        "执行 {run} 的第 {attempt} 次尝试失败（{error}），将于 {until} 重试。",
    ),
    "waiting": (
        "Run {run} is planned and waits for a worker to take it.",
        "执行 {run} 已计划，等待工作节点领取。",
    ),
    "waiting_until": (
        "Run {run} is planned and waits for its time, {until}.",
        "执行 {run} 已计划，等待其时间 {until}。",
    ),
    "waiting_to_come": (
        "This slot is still to come: {slot} is {span} away.",
        "该时刻尚未到来：距 {slot} 还有 {span}。",
    ),
    "waiting_due": (
        "This slot is due and about to be planned.",
        "该时刻已到，即将计划。",
    ),
    "not_a_slot": (
        "{at} is no slot of this task ({rule}). The one before it is {before}, the one after it is {after}.",
        "{at} 不是该任务的触发时刻（{rule}）。之前为 {before}，之后为 {after}。",
    ),
    "not_a_slot_changed": (
        (
            "{at} is no slot of this task since {actor} changed its schedule at {since} ({rule}). The one before it is"
            " {before}, the one after it is {after}."
        ),
        "{actor} 于 {since} 修改调度后，{at} 不再是该任务的触发时刻（{rule}）。之前为 {before}，之后为 {after}。",
    ),
    "not_a_slot_unborn": (
        "The task did not exist at {at}: it was created at {since}.",
        "{at} 时该任务尚不存在：它创建于 {since}。",
    ),
    "not_a_slot_on_demand": (
        "The task has no schedule: it runs only when it is triggered.",
        "该任务没有调度：仅在手动触发时执行。",
    ),
    "not_a_slot_run": (
        "Run {run} was not born of a slot, but of a {origin}; its status is {status}.",
        "执行 {run} 并非由触发时刻产生，而是来自 {origin}；状态为 {status}。",
    ),
    "overlap": (
        "Skipped: run {blocking} of the task was not over yet (overlap_action SKIP).",
        "已跳过：该任务的执行 {blocking} 尚未结束（overlap_action SKIP）。",
    ),
    "failure": (
        "Skipped, once, because run {blocking} had failed (failure_action SKIP).",
        "因执行 {blocking} 失败而跳过一次（failure_action SKIP）。",
    ),
    "backoff": (
        "Skipped: run {blocking} had failed, and its back-off was not over (failure_action BACKOFF).",
        "已跳过：执行 {blocking} 失败，退避时间未过（failure_action BACKOFF）。",
    ),
    "circuit_open": (
        (
            "Skipped: the circuit was open after {failures} failures in a row, the last of them run {blocking}, and cools"
            " down for {span} (failure_action HALF_OPEN)."
        ),
        "已跳过：连续失败 {failures} 次后熔断，最近一次为执行 {blocking}，冷却 {span}（failure_action HALF_OPEN）。",
    ),
    "concurrency": (
        "Skipped: every place of the task was taken ({limit}), one of them by run {blocking} (concurrency_policy SKIP).",
        "已跳过：任务的并发名额（{limit}）已满，其一由执行 {blocking} 占用（concurrency_policy SKIP）。",
    ),
    "concurrency_none": (
        "Skipped: max_concurrency is 0, which admits nothing.",
        "已跳过：max_concurrency 为 0，不允许任何执行。",
    ),
    "concurrency_wait": (
        "Run {run} waits for a place: there are {limit}, and run {blocking} has one of them.",
        "执行 {run} 等待并发名额：共 {limit} 个，其一由执行 {blocking} 占用。",
    ),
    "concurrency_shut": (
        "Run {run} waits: max_concurrency is 0, which admits nothing.",
        "执行 {run} 正在等待：max_concurrency 为 0，不允许任何执行。",
    ),
    "queue_full": (
        "Skipped: as many runs as queue_depth allows ({limit}) were waiting already, behind run {blocking}.",
        "已跳过：等待的执行已达 queue_depth 上限（{limit}），前面是执行 {blocking}。",
    ),
    "rate_limited": (
        "Run {run} waits for the rate limit, which lets the next one start at {until}.",
        "执行 {run} 受速率限制，最早于 {until} 开始。",
    ),
    "queue_paused": (
        "Run {run} waits: queue {queue} was paused by {actor} at {since}.",
        "执行 {run} 正在等待：队列 {queue} 于 {since} 被 {actor} 暂停。",
    ),
    "no_worker": (
        "Run {run} waits: no living worker takes {wanted} from queue {queue}.",
        "执行 {run} 正在等待：没有存活的工作节点从队列 {queue} 领取 {wanted}。",
    ),
    "misfire": (
        (
            "Dropped as a misfire: the slots up to {last} were planned only at {planned}, and misfire_policy {policy} did not"
            " keep this one."
        ),
        "错过执行而丢弃：截至 {last} 的时刻直到 {planned} 才被计划，misfire_policy {policy} 未保留该时刻。",
    ),
    "misfire_once": (
        "Dropped as a misfire: it was planned only at {planned}, and run_if_late is false.",
        "错过执行而丢弃：直到 {planned} 才被计划，且 run_if_late 为 false。",
    ),
    "catchup_cap": (
        (
            "Dropped: at {planned} more slots were overdue than are caught up at once; {count} were left out, this one among"
            " them (scheduler.max_catchup)."
        ),
        "已丢弃：{planned} 时积压过多，超出补跑上限；舍弃 {count} 个时刻，包括该时刻（scheduler.max_catchup）。",
    ),
    "disabled": (
        "The task was disabled by {actor} at {since}.",
        "任务于 {since} 被 {actor} 停用。",
    ),
    "completed": (
        "The task was completed at {since}: its schedule had no further slot.",
        "任务已于 {since} 完成：调度不再有后续时刻。",
    ),
    "error": (
        "The task was in ERROR since {since}, when a run of it had failed for good; reset it to go on.",
        "任务自 {since} 起处于 ERROR（某次执行最终失败）；重置后可继续。",
    ),
    "error_canceled": (
        "Run {run} was canceled at {ended} before it started, because the task had gone into ERROR.",
        "执行 {run} 于 {ended} 在开始前被取消，因为任务进入 ERROR 状态。",
    ),
    "deleted": (
        "The task was deleted by {actor} at {since}.",
        "任务于 {since} 被 {actor} 删除。",
    ),
    "deleted_canceled": (
        "Run {run} was canceled at {ended}, because the task was deleted by {actor}.",
        "执行 {run} 于 {ended} 被取消，因为任务被 {actor} 删除。",
    ),
    "canceled": (
        "Run {run} was canceled by {actor} at {ended}.",
        "执行 {run} 于 {ended} 被 {actor} 取消。",
    ),
    "canceled_replaced": (
        "Run {run} was canceled at {ended} by the next round of the task (overlap_action CANCEL_PREV).",
        "执行 {run} 于 {ended} 被任务的下一轮取代而取消（overlap_action CANCEL_PREV）。",
    ),
    "lost": (
        "Run {run} was lost with worker {worker} at {ended}: {error}.",
        "执行 {run} 于 {ended} 随工作节点 {worker} 丢失：{error}。",
    ),
    "lost_waiting": (
        "Run {run} was lost with its worker {losses} times and waits for another one.",
        "执行 {run} 已随工作节点丢失 {losses} 次，等待另一个工作节点。",
    ),
    "planner_late": (
        (
            "It ran late: run {run} was planned at {planned}, {span} after its slot, because no node was planning in between."
            " It is {status}."
        ),
        "执行较晚：{run} 直到 {planned} 才被计划，比触发时刻晚 {span}，其间没有节点在计划。状态 {status}。",
    ),
    "planner_late_due": (
        "It is due for {span} and not planned yet: no node is planning.",
        "该时刻已过 {span}，仍未被计划：没有节点在计划。",
    ),
    "store_down": (
        (
            "It ran late: run {run} was planned at {planned}, {span} after its slot, because the store could not be reached"
            " from {since} to {until}. It is {status}."
        ),
        "执行较晚：{run} 直到 {planned} 才被计划，比触发时刻晚 {span}，因为 {since} 至 {until} 存储不可用。状态 {status}。",
    ),
    "operator": (
        "Skipped, as {actor} had asked for (skip_next).",
        "应 {actor} 的要求跳过（skip_next）。",
    ),
    "cleaned": (
        "Its outcome was removed by retention, which reaches up to {last}.",
        "其结果已被保留策略清除（清除至 {last}）。",
    ),
    "missing": (
        "There is no record of this slot, which must never be: run `noonbell audit`.",
        "没有该时刻的记录，这不应发生：请运行 `noonbell audit`。",
    ),
    # Said behind another sentence.
    "and_late": (
        "It waited {span} before it started.",
        "开始前等待了 {span}。",
    ),
    "and_paused": (
        "It waited {span} before it started: queue {queue} was paused by {actor} from {since} to {until}.",
        "开始前等待了 {span}：队列 {queue} 于 {since} 至 {until} 被 {actor} 暂停。",
    ),
    "and_store_was_down": (
        "The store could not be reached from {since} to {until}.",
        "{since} 至 {until} 存储不可用。",
    ),
    "and_why_down": (
        "A node said why: {reason}.",
        "节点记录的原因：{reason}。",
    ),
    "and_back_on": (
        "It was enabled again by {actor} at {since}.",
        "{actor} 于 {since} 重新启用了它。",
    ),
}

SOMEBODY: Final = ("somebody", "某人")
NONE: Final = ("none", "无")
_UNITS: Final = (("d", "h", "min", "s"), ("天", "小时", "分", "秒"))


def sentence(key: str, lang: str, facts: Mapping[str, str]) -> str:
    return SENTENCES[key][lang == "zh"].format_map(facts)


def span(seconds: float, lang: str) -> str:
    """The two largest units that say something: `3 d 13 h`, `12 min 5 s`, `0 s`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = list(zip((days, hours, minutes, rest), _UNITS[lang == "zh"], strict=True))
    begin = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[begin : begin + 2] if count or begin == 3)
