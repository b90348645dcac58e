package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The first byte of a connection to load serve says what it shall do.
const (
	wantTicks = 't' // send an 8-byte number every 10 ms
	wantSink  = 'b' // read everything
)

const tickEvery = 10 * time.Millisecond

// Stream is the report of load stream and load blast; times in milliseconds.
type Stream struct {
	Addr    string  `json:"addr"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	MBits   float64 `json:"mbitPerSecond"`
	// Gap is the longest time without a byte, GapAt when it began, in seconds after the start.
	Gap   float64 `json:"gapms"`
	GapAt float64 `json:"gapAt"`
	// Broken says how the connection ended before its time; empty when it lived.
	Broken string `json:"broken,omitempty"`
	// OutOfOrder counts ticks that were not the ones awaited: TCP rewritten wrongly.
	OutOfOrder int `json:"outOfOrder"`
}

func (s *Stream) note(begin, last, now time.Time) {
	if g := milliseconds(now.Sub(last)); g > s.Gap {
		s.Gap, s.GapAt = g, last.Sub(begin).Seconds()
	}
}

func (s *Stream) finish(begin time.Time) *Stream {
	s.Seconds = time.Since(begin).Seconds()
	s.MBits = float64(s.Bytes) * 8 / 1e6 / s.Seconds
	return s
}

func connect(ctx context.Context, addr string, want byte) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte{want}); err != nil {
		c.Close()
		return nil, err
	}
	// Ending ctx wakes a blocked read or write.
	context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	return c, nil
}

// stream receives ticks on one connection until ctx ends or the connection breaks.
func stream(ctx context.Context, addr string) (*Stream, error) {
	c, err := connect(ctx, addr, wantTicks)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &Stream{Addr: addr}
	begin := time.Now()
	last := begin
	var tick [8]byte
	for next := uint64(0); ; next++ {
		_, err := io.ReadFull(c, tick[:])
		now := time.Now()
		s.note(begin, last, now)
		last = now
		if ctx.Err() != nil {
			return s.finish(begin), nil
		}
		if err != nil {
			s.Broken = err.Error()
			return s.finish(begin), nil
		}
		s.Bytes += int64(len(tick))
		if got := binary.BigEndian.Uint64(tick[:]); got != next {
			s.OutOfOrder++
			next = got
		}
	}
}

// blast sends as fast as the connection takes it. It counts what the kernel took, which at the end is up to a send
// buffer more than arrived.
func blast(ctx context.Context, addr string) (*Stream, error) {
	c, err := connect(ctx, addr, wantSink)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s := &Stream{Addr: addr}
	begin := time.Now()
	last := begin
	buf := make([]byte, 128<<10)
	for {
		n, err := c.Write(buf)
		s.Bytes += int64(n)
		now := time.Now()
		s.note(begin, last, now)
		last = now
		if ctx.Err() != nil {
			return s.finish(begin), nil
		}
		if err != nil {
			s.Broken = err.Error()
			return s.finish(begin), nil
		}
	}
}

func serve(ctx context.Context, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Println("load serves on", l.Addr())
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go attend(c)
	}
}

func attend(c net.Conn) {
	defer c.Close()
	var want [1]byte
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, want[:]); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	switch want[0] {
	case wantSink:
		_, _ = io.Copy(io.Discard, c)
	case wantTicks:
		t := time.NewTicker(tickEvery)
		defer t.Stop()
		for n := uint64(0); ; n++ {
			if _, err := c.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
				return
			}
			<-t.C
		}
	}
}
