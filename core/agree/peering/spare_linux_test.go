package peering

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A laptop in a crowd has the kernel ask its neighbours more seldom; one that knows a caller, as often as ever.
func TestKeepalivesAreSparedInACrowd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	limits := defaultLimits
	l := newLimitedListener(listener, limits, nil)
	idle := func(conn net.Conn) int {
		t.Helper()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var seconds int
		if cerr := raw.Control(func(fd uintptr) { seconds, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		return seconds
	}
	var last *limitedConn
	for n := 1; n <= 60; n++ {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		last = accepted.(*limitedConn)
		if want := max(5, (n+1)/2); idle(last.Conn) != want {
			t.Fatalf("the kernel asks over connection %d after %d s, want %d", n, idle(last.Conn), want)
		}
	}
	if l.recognise(last); idle(last.Conn) != 5 {
		t.Errorf("of one that is known after %d s", idle(last.Conn))
	}
}
