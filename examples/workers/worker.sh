#!/usr/bin/env bash
# A worker in bash, with curl and jq: claim, heartbeat, settle, over HTTP. One run at a time.
#
#     NOONBELL_URL=http://127.0.0.1:8080 ./worker.sh WORKER_ID [QUEUE ...]
#
# A handler is a function do_JOBTYPE: it gets the payload as $1, and what it prints is the result, as JSON. It returns 0 for a success,
# 64 to fail the run for good, anything else to be tried again as the task says; what it writes to stderr is the error's message.
# When the run is canceled or lost, its process is ended.
set -u
base="${NOONBELL_URL:-http://127.0.0.1:8080}/api/v1"
worker=$1
shift

do_sleep() { sleep "$(jq .seconds <<<"$1")" && echo '{"slept": true}'; }

do_divide() {
    [ "$(jq .by <<<"$1")" != 0 ] || { echo "a division by zero" >&2; return 64; }
    jq '.number / .by' <<<"$1"
}

job_types='["sleep", "divide"]'

call() { # PATH, with the body on stdin
    curl --silent --show-error --fail --max-time 60 -H "Content-Type: application/json" \
        -H "Authorization: Bearer ${NOONBELL_TOKEN:-}" -d @- "$base$1"
}

claim() {
    jq -n '{queues: $ARGS.positional, job_types: $types, concurrency: 1, max: 1, wait_seconds: 5}' \
        --argjson types "$job_types" --args "${@:-default}" | call "/workers/$worker/claim"
}

heartbeat() { # RUN → the order for it, and the state of the worker
    jq '{runs: [{run_id, token}]}' <<<"$1" | call "/workers/$worker/heartbeat" | jq -r '.runs[0].order, .worker.state'
}

settle() { # RUN OUTCOME RESULT MESSAGE
    jq --arg worker "$worker" --arg outcome "$2" --argjson result "$3" --arg message "$4" \
        '{worker_id: $worker, token, outcome: $outcome} + if $outcome == "success" then {result: $result} else {error_message: $message} end' \
        <<<"$1" | call "/runs/$(jq .run_id <<<"$1")/settle" >/dev/null # 409: it is another worker's by now, or over
}

carry_out() { # RUN
    local handler ping order="" state="" code
    set -m # a process group of its own: what the handler starts ends with it
    "do_$(jq -r .job_type <<<"$1")" "$(jq -c .payload <<<"$1")" >"$folder/result" 2>"$folder/error" &
    handler=$!
    set +m
    ping=$(jq '.ping_interval_ms / 1000' <<<"$1")
    while kill -0 "$handler" 2>/dev/null; do
        sleep "$ping" &
        wait -n "$handler" $! # whichever ends first
        { read -r order && read -r state; } < <(heartbeat "$1")
        [ "$state" != stopping ] || going=false
        if [ "$order" != continue ] && [ -n "$order" ]; then
            kill -- "-$handler" 2>/dev/null
            return # there is nothing to settle
        fi
    done
    wait "$handler"
    code=$?
    case $code in
    0) settle "$1" success "$(cat "$folder/result")" "" ;;
    64) settle "$1" fail null "$(cat "$folder/error")" ;;
    *) settle "$1" error null "exit code $code: $(cat "$folder/error")" ;;
    esac
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
going=true
trap 'going=false' TERM INT
while $going; do
    if found=$(claim "$@"); then
        run=$(jq -c '.runs[0] // empty' <<<"$found")
        [ -z "$run" ] || carry_out "$run"
    else
        sleep 1 # the server is away, or says why not
    fi
done
