package listener

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var one, two = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")

// free is a port that nobody uses at addr.
func free(t *testing.T, addr netip.Addr) int {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestBothAddressesAreHeardAndNoOther(t *testing.T) {
	port := free(t, one)
	l, err := Listen(t.Context(), port, one, two)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.LocalAddr().String())
			c.Close()
		}
	}()
	for _, addr := range []netip.Addr{one, two} {
		want := netip.AddrPortFrom(addr, uint16(port)).String()
		c, err := net.Dial("tcp", want)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c); string(got) != want {
			t.Errorf("answered by %s, want %s", got, want)
		}
		c.Close()
	}
	if c, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), uint16(port)).String(), time.Second); err == nil {
		c.Close()
		t.Error("a third address is heard")
	}
	if got := l.Addr().(*net.TCPAddr); got.Port != port || !got.IP.Equal(one.AsSlice()) {
		t.Errorf("address %s", got)
	}
}

func TestCloseEndsAcceptAndFreesThePorts(t *testing.T) {
	port := free(t, one)
	l, err := Listen(t.Context(), port, one, two)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := l.Accept(); ended <- err }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	again, err := Listen(t.Context(), port, one, two)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestPortOfAnEndingServerIsWaitedFor(t *testing.T) {
	port := free(t, one)
	old, err := net.Listen("tcp", netip.AddrPortFrom(one, uint16(port)).String())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { old.Close() })
	l, err := Listen(t.Context(), port, one)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// inherits has a socket inherited as by a program that is started.
func inherits(t *testing.T, l net.Listener) {
	t.Helper()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.Dup(int(file.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(inheritedVariable, strconv.Itoa(fd))
	if err := Inherit(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handed.Store(nil) })
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("what is started from here would inherit the socket: %x, %v", flags, err)
	}
	if is, set := os.LookupEnv(inheritedVariable); set {
		t.Errorf("what is started from here would be told of descriptor %s", is)
	}
}

// Whoever connected while nobody listened here but the socket is answered; the other address is listened at as ever.
func TestAnInheritedSocketIsServed(t *testing.T) {
	port := free(t, one)
	early, err := net.Listen("tcp", netip.AddrPortFrom(one, uint16(port)).String())
	if err != nil {
		t.Fatal(err)
	}
	inherits(t, early)
	early.Close()
	waits, err := net.Dial("tcp", early.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	l, err := Listen(t.Context(), port, two, one)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.RemoteAddr().String() != waits.LocalAddr().String() {
		t.Errorf("%s came, not %s", c.RemoteAddr(), waits.LocalAddr())
	}
}

func TestAnInheritedSocketOfAnotherPortIsLeftAlone(t *testing.T) {
	other, err := net.Listen("tcp", netip.AddrPortFrom(one, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	inherits(t, other)
	l, err := Listen(t.Context(), free(t, one), one)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if handed.Load() == nil {
		t.Error("it was taken")
	}
}

func TestADescriptorThatIsNoneIsRefused(t *testing.T) {
	for _, fd := range []string{"", "three", "9999", "-1"} {
		t.Setenv(inheritedVariable, fd)
		if err := Inherit(); err == nil {
			t.Errorf("%q was taken", fd)
		}
	}
}
