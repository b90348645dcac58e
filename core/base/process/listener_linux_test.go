package process

import (
	"io"
	"net"
	"os"
	"testing"
)

// Who connects after the process has closed its socket waits in the copy.
func TestASocketOutlivesItsProcess(t *testing.T) {
	born, err := birth(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p, err := open(os.Getpid(), born)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	theirs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := theirs.Addr().String()
	conn, err := net.Dial("tcp", at) // has the same address at one end
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ours, err := p.Listener(at)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	later, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if _, err := later.Write([]byte("hello")); err != nil || later.(*net.TCPConn).CloseWrite() != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "hello"} {
		came, err := ours.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			conn.Close()
		}
		if said, err := io.ReadAll(came); err != nil || string(said) != want {
			t.Errorf("%q, %v", said, err)
		}
		came.Close()
	}
	ours.Close()
	if l, err := p.Listener(at); err == nil {
		t.Errorf("a socket that nobody listens with: %v", l.Addr())
	}
}
