// A worker in Go, with the standard library alone: claim, heartbeat, settle, over HTTP.
//
//	NOONBELL_URL=http://127.0.0.1:8080 go run worker.go WORKER_ID [QUEUE ...]
//
// Go 1.19, which Debian 12 has, or newer.
//
// Put your own functions into handlers, by job type. What they return is the result. Fail ends a run for good, any other error is
// retried as the task says. Long ones look at ctx: it is canceled when the run is canceled or lost.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

type Fail string

func (f Fail) Error() string { return string(f) }

type Handler func(ctx context.Context, payload json.RawMessage) (any, error)

var handlers = map[string]Handler{"sleep": sleep, "divide": divide}

func sleep(ctx context.Context, payload json.RawMessage) (any, error) {
	var asked struct{ Seconds float64 }
	if err := json.Unmarshal(payload, &asked); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(asked.Seconds * float64(time.Second))):
		return map[string]bool{"slept": true}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func divide(_ context.Context, payload json.RawMessage) (any, error) {
	var asked struct{ Number, By float64 }
	if err := json.Unmarshal(payload, &asked); err != nil {
		return nil, err
	}
	if asked.By == 0 {
		return nil, Fail("a division by zero")
	}
	return asked.Number / asked.By, nil
}

type Lease struct {
	RunID int64 `json:"run_id"`
	Token int64 `json:"token"`
}

type ClaimedRun struct {
	Lease
	JobType        string          `json:"job_type"`
	Payload        json.RawMessage `json:"payload"`
	PingIntervalMs int64           `json:"ping_interval_ms"`
}

type Worker struct {
	name   string
	queues []string
	mutex  sync.Mutex
	held   map[Lease]context.CancelFunc
	ping   time.Duration
	stop   context.CancelFunc
}

const concurrency = 4

func env(name, usual string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return usual
}

func call(path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest("POST", env("NOONBELL_URL", "http://127.0.0.1:8080")+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("NOONBELL_TOKEN"))
	response, err := (&http.Client{Timeout: time.Minute}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s was answered with %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func (w *Worker) carryOut(ctx context.Context, run ClaimedRun) {
	result, err := handlers[run.JobType](ctx, run.Payload)
	said := map[string]any{"worker_id": w.name, "token": run.Token, "outcome": "success", "result": result}
	if err != nil {
		said["outcome"], said["error_message"] = "error", err.Error()
		if fail := Fail(""); errors.As(err, &fail) {
			said["outcome"] = "fail"
		}
	}
	if ctx.Err() == nil {
		// 409: it is another worker's by now, or over. Anything else: its lease runs out.
		if err := call(fmt.Sprintf("/runs/%d/settle", run.RunID), said, &struct{}{}); err != nil {
			log.Println("not settled:", err)
		}
	}
	w.mutex.Lock()
	delete(w.held, run.Lease)
	w.mutex.Unlock()
}

func (w *Worker) beat() time.Duration {
	w.mutex.Lock()
	runs := []Lease{}
	for lease := range w.held {
		runs = append(runs, lease)
	}
	ping := w.ping
	w.mutex.Unlock()
	var told struct {
		Runs   []struct{ Order string }
		Worker struct{ State string }
	}
	if err := call("/workers/"+w.name+"/heartbeat", map[string]any{"runs": runs}, &told); err != nil {
		log.Println("no heartbeat:", err)
		return ping
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for number, run := range told.Runs {
		if cancel := w.held[runs[number]]; cancel != nil && run.Order != "continue" {
			cancel()
		}
	}
	if told.Worker.State == "stopping" {
		w.stop()
	}
	return ping
}

func (w *Worker) work(going context.Context) {
	asked := map[string]any{"queues": w.queues, "job_types": []string{"sleep", "divide"}, "concurrency": concurrency, "max": 1, "wait_seconds": 5}
	room, bell, working := make(chan struct{}, concurrency), make(chan struct{}, 1), sync.WaitGroup{}
	go func() {
		for {
			wait := w.beat()
			select {
			case <-time.After(wait):
			case <-bell:
			}
		}
	}()
	for going.Err() == nil {
		room <- struct{}{}
		var found struct{ Runs []ClaimedRun }
		if err := call("/workers/"+w.name+"/claim", asked, &found); err != nil {
			log.Println("no claim:", err)
			time.Sleep(time.Second)
		}
		if len(found.Runs) == 0 {
			<-room
		}
		for _, run := range found.Runs {
			ctx, cancel := context.WithCancel(context.Background())
			w.mutex.Lock()
			w.held[run.Lease] = cancel
			if ping := time.Duration(run.PingIntervalMs) * time.Millisecond; ping < w.ping {
				w.ping = ping
			}
			w.mutex.Unlock()
			working.Add(1)
			go func(run ClaimedRun) {
				defer func() { cancel(); <-room; working.Done() }()
				w.carryOut(ctx, run)
			}(run)
			select {
			case bell <- struct{}{}:
			default:
			}
		}
	}
	working.Wait() // with a heartbeat as long
}

func main() {
	going, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	queues := os.Args[2:]
	if len(queues) == 0 {
		queues = []string{"default"}
	}
	worker := &Worker{name: os.Args[1], queues: queues, held: map[Lease]context.CancelFunc{}, ping: 5 * time.Second, stop: stop}
	worker.work(going)
}
