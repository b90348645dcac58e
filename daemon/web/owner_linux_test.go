package web

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// dialed gives the two ends of a connection.
func dialed(t *testing.T, dial func(address string)) (there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial(l.Addr().String())
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	return there
}

func TestAConnectionHasAnOwnerWhileItIsOpen(t *testing.T) {
	var here net.Conn
	there := dialed(t, func(address string) {
		var err error
		if here, err = net.Dial("tcp4", address); err != nil {
			t.Fatal(err)
		}
	})
	if uid, err := owner(there); err != nil || uid != os.Geteuid() {
		t.Errorf("%d %v, want %d", uid, err, os.Geteuid())
	}
	here.Close()
	if uid, err := owner(there); err == nil {
		t.Errorf("a closed one has the owner %d", uid)
	}
}

func TestAnotherUsersConnectionIsKnown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	there := dialed(t, func(address string) {
		host, port, _ := net.SplitHostPort(address)
		cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port+"; echo; read")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); cmd.Wait() })
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	})
	if uid, err := owner(there); err != nil || uid != 65534 {
		t.Errorf("%d %v", uid, err)
	}
}
