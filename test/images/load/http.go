package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Requests is the report of load http; times in milliseconds.
type Requests struct {
	URL      string  `json:"url"`
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"` // that were answered with a status below 400
	Errors   int     `json:"errors"`
	// FirstError quotes one, LastError the latest; they often differ in an outage.
	FirstError string  `json:"firstError,omitempty"`
	LastError  string  `json:"lastError,omitempty"`
	PerSecond  float64 `json:"perSecond"`
	P50        float64 `json:"p50ms"`
	P90        float64 `json:"p90ms"`
	P99        float64 `json:"p99ms"`
	Max        float64 `json:"maxms"`
	// Outage is the longest time in which no request was answered.
	Outage float64 `json:"outagems"`
}

// requests sends at a fixed rate, no matter how long answers take, so that a stalled server shows as latency. What is
// under way when ctx ends is not counted.
func requests(ctx context.Context, url string, rate float64, timeout time.Duration) (*Requests, error) {
	if rate <= 0 || rate > 100000 {
		return nil, fmt.Errorf("rate %v: use more than 0, at most 100000", rate)
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	var (
		mu    sync.Mutex
		took  []time.Duration
		ends  []time.Time
		group sync.WaitGroup
		r     = &Requests{URL: url}
	)
	begin := time.Now()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	inFlight := make(chan struct{}, 4096) // a bound, should nothing be answered any more
loop:
	for {
		select {
		case <-ctx.Done():
			break loop
		case <-tick.C:
		}
		select {
		case inFlight <- struct{}{}:
		case <-ctx.Done():
			break loop
		}
		group.Go(func() {
			defer func() { <-inFlight }()
			t := time.Now()
			err := getOnce(ctx, client, url)
			if ctx.Err() != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.Errors++
				if r.FirstError == "" {
					r.FirstError = err.Error()
				}
				r.LastError = err.Error()
				return
			}
			took, ends = append(took, time.Since(t)), append(ends, time.Now())
		})
	}
	end := time.Now()
	group.Wait()
	r.Seconds, r.Requests = end.Sub(begin).Seconds(), len(took)
	r.PerSecond = float64(r.Requests) / r.Seconds
	r.Outage = milliseconds(longest(begin, end, ends))
	r.P50, r.P90, r.P99, r.Max = quantile(took, .5), quantile(took, .9), quantile(took, .99), quantile(took, 1)
	return r, nil
}

func getOnce(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// quantile by nearest rank, in milliseconds; it sorts.
func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return milliseconds(d[min(len(d)-1, int(q*float64(len(d))))])
}

// longest is the longest stretch between begin and end without an event.
func longest(begin, end time.Time, events []time.Time) time.Duration {
	slices.SortFunc(events, time.Time.Compare)
	var gap time.Duration
	for _, t := range append(events, end) {
		gap = max(gap, t.Sub(begin))
		begin = t
	}
	return gap
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
