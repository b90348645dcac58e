package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/core/trust/wire"
	"kith.dev/core/trust/wire/codec"
)

const (
	// patience bounds how long the peer may take to answer, and before Synced for each line.
	patience = 15 * time.Second
	minDelay = 200 * time.Millisecond
	maxDelay = 10 * time.Second
)

// Run follows the peer until ctx ends, coming back after failures with growing delays. It can be called again.
func (v *View) Run(ctx context.Context) error {
	// Between half of the delay and three halves of it, so that many who lost the same peer do not come back as one.
	growing := wait.Backoff{Duration: minDelay / 2, Factor: 2, Jitter: 2, Steps: 100, Cap: maxDelay / 2}
	delay, lastErr := growing, ""
	for ctx.Err() == nil {
		attempt, stop := context.WithCancel(ctx)
		changed := v.changed.Wait()
		v.mu.Lock()
		v.stop = stop
		v.mu.Unlock()
		if !v.there() { // asked only now: from here on Look ends the attempt
			stop()
			delay, lastErr = growing, ""
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		synced, err := v.follow(attempt)
		ended := attempt.Err() != nil // the end, or the peer came or went
		stop()
		if ended {
			delay = growing
			continue
		}
		if err.Error() != lastErr {
			lastErr = err.Error()
			v.cfg.Log.Info("the view of the namespaces abroad broke, will be tried again", "err", err)
		}
		if synced {
			delay, lastErr = growing, ""
		}
		timer := time.NewTimer(delay.Step())
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// follow reads one stream to its end, and tells whether it came as far as Synced.
func (v *View) follow(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(patience, func() { cancel(errLate) })
	defer late.Stop()
	defer func() {
		if errors.Is(context.Cause(ctx), errLate) {
			err = errLate
		}
	}()
	body, err := v.cfg.Open(ctx)
	if err != nil {
		return false, err
	}
	defer body.Close()
	v.begin()
	bounded := &io.LimitedReader{R: body}
	lines := bufio.NewReaderSize(bounded, 32<<10)
	for {
		bounded.N = codec.MaxFrame
		line, err := lines.ReadBytes('\n')
		switch line = bytes.TrimSpace(line); {
		case err != nil && bounded.N <= 0:
			return synced, fmt.Errorf("the peer sent a line of more than %d bytes", codec.MaxFrame)
		case err != nil:
			return synced, err // of a line that is cut off nobody can say what it was
		case len(line) == 0:
			continue
		}
		if !synced && !late.Reset(patience) {
			return false, errLate
		}
		kind, gone, object, err := parse(line)
		if err == nil && kind == KindSynced {
			synced = true
			late.Stop()
			v.finish()
			continue
		}
		if err == nil {
			err = v.take(kind, gone, object)
		}
		if err != nil {
			return synced, fmt.Errorf("what the peer says cannot be used: %w", err)
		}
	}
}

var errLate = errors.New("no answer in time")

// parse takes a line apart without decoding what it is about.
func parse(line []byte) (kind string, gone bool, object []byte, err error) {
	err = wire.Fields(line, func(name, raw []byte) error {
		switch string(name) {
		case "kind":
			if len(raw) < 2 || raw[0] != '"' || len(raw) > 64 {
				return errors.New("kind: not the name of one")
			}
			kind = string(raw[1 : len(raw)-1])
		case "gone":
			gone = string(raw) == "true"
		case "object":
			object = raw
		}
		return nil
	})
	return kind, gone, object, err
}
