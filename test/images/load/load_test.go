package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRequestsCountsAnswersAndErrors(t *testing.T) {
	var n atomic.Int64
	w := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%4 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r, err := requests(ctx, w.URL, 50, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if sum := r.Requests + r.Errors; sum < 30 || sum > 51 || r.Errors < sum/5 || r.FirstError != "status 503 Service Unavailable" {
		t.Errorf("report %+v", r)
	}
	if r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max || r.Outage < 10 {
		t.Errorf("latencies %+v", r)
	}
}

func TestQuantileAndLongest(t *testing.T) {
	var d []time.Duration
	for i := 100; i >= 1; i-- {
		d = append(d, time.Duration(i)*time.Millisecond)
	}
	if quantile(d, .5) != 51 || quantile(d, .99) != 100 || quantile(d, 1) != 100 || quantile(nil, .5) != 0 {
		t.Errorf("p50 %v, p99 %v, max %v", quantile(d, .5), quantile(d, .99), quantile(d, 1))
	}
	b := time.Now()
	at := func(s int) time.Time { return b.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		events []time.Time
		want   time.Duration
	}{
		{nil, 10 * time.Second},
		{[]time.Time{at(9), at(1), at(3)}, 6 * time.Second},
		{[]time.Time{at(1)}, 9 * time.Second},
	} {
		if got := longest(b, at(10), c.events); got != c.want {
			t.Errorf("%v: %v, want %v", c.events, got, c.want)
		}
	}
}

// pause forwards one connection and holds everything back between two moments.
func pause(t *testing.T, to string, from, until time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		a, err := l.Accept()
		if err != nil {
			return
		}
		defer a.Close()
		b, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer b.Close()
		begin := time.Now()
		first := make([]byte, 1)
		_, _ = a.Read(first)
		_, _ = b.Write(first)
		buf := make([]byte, 4096)
		for {
			n, err := b.Read(buf)
			if err != nil {
				return
			}
			if d := time.Since(begin); d > from && d < until {
				time.Sleep(until - d)
			}
			if _, err := a.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}

func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go attend(c)
		}
	}()
	return l.Addr().String()
}

func TestStreamFindsTheGap(t *testing.T) {
	addr := pause(t, listen(t), 300*time.Millisecond, 700*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
	defer cancel()
	s, err := stream(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	if s.Gap < 350 || s.Gap > 700 || s.GapAt < 0.2 || s.GapAt > 0.5 || s.Broken != "" || s.OutOfOrder != 0 || s.Bytes < 400 {
		t.Errorf("report %+v, want a gap of 400 ms after 0.3 s", s)
	}
}

func TestStreamTellsOfABrokenConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := stream(ctx, l.Addr().String())
	if err != nil || s.Broken == "" || s.Seconds > 2 {
		t.Errorf("report %+v, %v", s, err)
	}
}

func TestBlastMeasures(t *testing.T) {
	addr := listen(t)
	for _, streams := range []int{1, 8} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		s, err := blast(ctx, addr, streams)
		if err != nil || s.MBits < 50 || s.Broken != "" || s.Seconds > 1 || s.P50 <= 0 || s.P50 > s.P99 {
			t.Errorf("%d streams: report %+v, %v", streams, s, err)
		}
	}
}

func TestPourCountsWhatIsAcknowledged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	c, err := connect(ctx, l.Addr().String(), wantSink)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	const read = 1 << 20
	done := make(chan error, 1)
	go func() { // a receiver that stops to read
		_, err := io.CopyN(io.Discard, there, read)
		done <- err
	}()
	s := &Stream{}
	if err := pour(ctx, c, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var waits int
	raw, err := there.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { waits, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err != nil {
		t.Fatal(err)
	}
	if arrived := int64(read + waits - 1); s.Bytes != arrived || waiting(c) == 0 { // the first byte said what is wanted
		t.Errorf("%d bytes counted, %d arrived, %d were not acknowledged", s.Bytes, arrived, waiting(c))
	}
}

func TestDatagramsCountsWhatArrived(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go countDatagrams(c)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s, err := datagrams(ctx, c.LocalAddr().String())
	if err != nil || s.Bytes < 100*datagram || s.Bytes%(countOff*datagram) != 0 || s.MBits <= 0 {
		t.Errorf("%+v, %v", s, err)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if s, err = datagrams(ctx, "127.0.0.1:1"); err != nil || s.Bytes != 0 || s.Gap < 50 {
		t.Errorf("to nobody: %+v, %v", s, err)
	}
}
