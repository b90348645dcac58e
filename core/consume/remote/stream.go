package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

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
	delay, lastErr := time.Duration(0), ""
	for ctx.Err() == nil {
		attempt, stop := context.WithCancel(ctx)
		changed := v.changed.Wait()
		v.mu.Lock()
		away := v.away
		v.stop = stop
		v.mu.Unlock()
		if away {
			stop()
			delay, lastErr = 0, ""
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
			delay = 0
			continue
		}
		if err.Error() != lastErr {
			lastErr = err.Error()
			v.cfg.Log.Info("the view of the namespaces abroad broke, will be tried again", "err", err)
		}
		delay = min(max(2*delay, minDelay), maxDelay)
		if synced {
			delay, lastErr = minDelay, ""
		}
		timer := time.NewTimer(delay/2 + rand.N(delay))
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
