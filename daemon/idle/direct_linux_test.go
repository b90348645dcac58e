package idle

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that has a connection to the port is found, unless it is one of Kith's own, and until it ends.
func TestWhoIsConnectedPastTheFrontDoor(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		at := l.Addr().(*net.TCPAddr)
		port := uint16(at.Port)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		is := func(when, want string, own ...string) {
			t.Helper()
			if got, err := Direct(port, own...); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s, %s: %q, %v; want %q", address, when, got, err, want)
			}
		}
		is("nobody", "")
		mine, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		is("this process", "idle.test (process "+strconv.Itoa(os.Getpid())+")")
		is("this process, which is Kith's", "", self)

		other := exec.Command("bash", "-c", `exec 3<>/dev/tcp/"$0"/"$1"; echo there; read -r line <&3`, at.IP.String(), strconv.Itoa(at.Port))
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "there\n" {
			t.Fatal(line, err)
		}
		for range 2 { // its connection and this process' own are established once they are accepted
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		is("another program", "bash (process "+strconv.Itoa(other.Process.Pid)+")", self)
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = other.Wait()
		is("when it has ended", "", self)
		mine.Close()
	}
}

// A connection that no program in /proc has open, here for it is on its way through a unix socket, is somebody's.
func TestAConnectionOfNobodyThatIsSeenIsSomebodys(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	file, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	file.Close()
	c.Close()
	if got, err := Direct(uint16(l.Addr().(*net.TCPAddr).Port), self); err != nil || got != hidden {
		t.Errorf("%q, %v", got, err)
	}
}
