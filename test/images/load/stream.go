package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The first byte of a connection to load serve says what it shall do.
const (
	wantTicks = 't' // send an 8-byte number every 10 ms
	wantSink  = 'b' // read everything
	wantEcho  = 'e' // send back what comes
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
	// P50 and P99 are how long small messages took, there and back on a connection of their own, while load blast sent.
	P50 float64 `json:"p50ms,omitempty"`
	P99 float64 `json:"p99ms,omitempty"`
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

// blast sends on so many connections as fast as they take it, and asks for an answer every 10 ms beside them. It counts what was
// acknowledged; Gap is the longest time in which one of the connections took nothing.
func blast(ctx context.Context, addr string, streams int) (*Stream, error) {
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range streams + 1 {
		want := byte(wantSink)
		if i == streams {
			want = wantEcho
		}
		c, err := connect(ctx, addr, want)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	sum, begin := &Stream{Addr: addr}, time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	all.Go(func() { took = answers(ctx, conns[streams]) })
	for _, c := range conns[:streams] {
		all.Go(func() {
			s := &Stream{}
			err := pour(ctx, c, s, begin)
			mu.Lock()
			defer mu.Unlock()
			if sum.Bytes += s.Bytes; s.Gap > sum.Gap {
				sum.Gap, sum.GapAt = s.Gap, s.GapAt
			}
			if err != nil {
				sum.Broken = err.Error()
			}
		})
	}
	all.Wait()
	sum.P50, sum.P99 = quantile(took, .5), quantile(took, .99)
	return sum.finish(begin), nil
}

// pour writes until ctx ends, or the connection.
func pour(ctx context.Context, c net.Conn, s *Stream, begin time.Time) error {
	last := begin
	buf := make([]byte, 128<<10)
	for {
		n, err := c.Write(buf)
		s.Bytes += int64(n)
		now := time.Now()
		s.note(begin, last, now)
		last = now
		if ctx.Err() != nil {
			s.Bytes -= waiting(c)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// waiting is how many bytes of a connection were written and not acknowledged (tcp(7), SIOCOUTQ).
func waiting(c net.Conn) (n int64) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if v, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil {
			n = int64(v)
		}
	})
	return n
}

// answers asks every 10 ms and gives what each took. Once ctx ends it stops, and at a connection that breaks, too.
func answers(ctx context.Context, c net.Conn) (took []time.Duration) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for b := make([]byte, 8); ; <-t.C {
		begin := time.Now()
		if _, err := c.Write(b); err != nil {
			return took
		}
		if _, err := io.ReadFull(c, b); err != nil || ctx.Err() != nil {
			return took
		}
		took = append(took, time.Since(begin))
	}
}

func serve(ctx context.Context, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	at := l.Addr().(*net.TCPAddr)
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: at.Port})
	if err != nil {
		return err
	}
	defer packets.Close()
	go countDatagrams(packets)
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
	case wantEcho:
		_, _ = io.Copy(c, c)
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
