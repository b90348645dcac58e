package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"kith.dev/core/api"
)

// maxLine bounds one line of a stream.
const maxLine = 16 << 20

// long makes a long call: report, which may be nil, gets its progress, out its result.
func (c *Client) long(ctx context.Context, method, path string, in, out any, report func(api.Progress)) error {
	body, err := c.send(ctx, method, path, api.Lines, in)
	if err != nil {
		return err
	}
	defer body.Close()
	for line, err := range c.lines(ctx, body) {
		if err != nil {
			return err
		}
		var l struct {
			api.Progress
			Result json.RawMessage `json:"result"`
			Error  *api.Error      `json:"error"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return understood(err)
		}
		switch {
		case l.Error != nil:
			return l.Error
		case l.Result != nil:
			if out == nil {
				return nil
			}
			return understood(json.Unmarshal(l.Result, out))
		case report != nil:
			report(l.Progress)
		}
	}
	return c.explain(ctx, io.ErrUnexpectedEOF)
}

// errSilent is why a stream ends whose daemon hangs.
var errSilent = errors.New("it gave no sign of life")

// open begins a stream without an end. The context it gives ends when kithd is silent for too long.
func (c *Client) open(ctx context.Context, path string) (context.Context, io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.silence, func() { cancel(errSilent) })
	body, err := c.send(ctx, "GET", path, api.Lines, nil)
	if err != nil {
		timer.Stop()
		cancel(nil)
		return ctx, nil, err
	}
	return ctx, &stream{ReadCloser: body, heard: func() { timer.Reset(c.silence) }, end: func() { timer.Stop(); cancel(nil) }}, nil
}

// stream tells when something is heard, if only a sign of life.
type stream struct {
	io.ReadCloser
	heard, end func()
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 {
		s.heard()
	}
	return n, err
}

func (s *stream) Close() error {
	s.end()
	return s.ReadCloser.Close()
}

// lines gives the lines of a stream that are not blank. A line is valid until the next one.
func (c *Client) lines(ctx context.Context, body io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		scanner := bufio.NewScanner(body)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 && !yield(line, nil) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			yield(nil, c.explain(ctx, err))
		}
	}
}

// EventsFrom says which events are wanted.
type EventsFrom struct {
	Since  uint64 // after this sequence number; 0: all that kithd remembers
	Latest bool   // only those to come, whatever Since says
	Follow bool   // go on until the context ends
}

// Events gives events as they come. It ends without an error when, not following, there are no more, and when ctx
// is cancelled; with one when the daemon goes away: the caller may then come back with the last Seq it saw.
func (c *Client) Events(ctx context.Context, from EventsFrom) iter.Seq2[api.Event, error] {
	query := url.Values{}
	if from.Latest {
		query.Set("since", "latest")
	} else if from.Since > 0 {
		query.Set("since", strconv.FormatUint(from.Since, 10))
	}
	if from.Follow {
		query.Set("follow", "true")
	}
	return follow(ctx, c, api.PathEvents+"?"+query.Encode(), from.Follow, func(line []byte) (e api.Event, err error) {
		err = understood(json.Unmarshal(line, &e))
		return e, err
	})
}

// Snapshots gives the snapshot of now, and another one each time something in it changed. It ends without an error when
// ctx is cancelled, else with the one that ended it: the caller may then call it again.
func (c *Client) Snapshots(ctx context.Context) iter.Seq2[api.Snapshot, error] {
	return follow(ctx, c, api.PathSnapshot+"?follow=true", true, func(line []byte) (api.Snapshot, error) {
		var l struct {
			api.Snapshot
			Error *api.Error `json:"error"`
		}
		if err := json.Unmarshal(line, &l); err != nil || l.Error == nil {
			return l.Snapshot, understood(err)
		}
		return l.Snapshot, l.Error
	})
}

// follow gives what read makes of the lines of a stream. That it ends is an error if it is endless, unless ctx was cancelled.
func follow[T any](ctx context.Context, c *Client, path string, endless bool, read func(line []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		heard, body, err := c.open(ctx, path)
		if err != nil {
			if ctx.Err() != context.Canceled {
				yield(none, err)
			}
			return
		}
		defer body.Close()
		for line, err := range c.lines(heard, body) {
			if ctx.Err() == context.Canceled {
				return
			}
			one := none
			if err == nil {
				one, err = read(line)
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
		if endless && ctx.Err() == nil {
			yield(none, c.explain(ctx, io.EOF))
		}
	}
}
