package peering

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/core/agree/presence"
	"kith.dev/test/pace"
)

const insideEnv = "KITH_TEST_INSIDE_NETNS"

// A laptop whose battery ends says nothing at all. This plays it in two network namespaces of its own, with hardware
// addresses that are not there: once with a quiet connection, which is the keepalive's affair, and once with
// a call under way, which is that of TCP_USER_TIMEOUT. The test runs itself in the first namespace.
func TestSilentDeathIsSeenWithinFifteenSeconds(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		silentDeath(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("makes network namespaces, so it must be root")
	}
	if testing.Short() {
		t.Skip("waits for the kernel, half a minute")
	}
	t.Parallel()
	cmd := exec.CommandContext(within(t, time.Minute), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	must(t, err)
}

func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %v: %s", args, err, out)
	}
	return nil
}

// listenAfar makes a namespace, with the far end of the wire in it, and a listener there. Threads share nothing but
// the process, so what this thread opens or starts is in its namespace, and that lasts as long as the listener.
func listenAfar() (net.Listener, error) {
	born, wired := make(chan int), make(chan error)
	var l net.Listener
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			close(born)
			done <- err
			return
		}
		born <- unix.Gettid()
		err := <-wired
		for _, args := range []string{"addr add 192.0.2.2/24 dev far", "link set far up"} {
			if err == nil {
				err = ip(args)
			}
		}
		if err == nil {
			l, err = net.Listen("tcp", "192.0.2.2:0")
		}
		done <- err
	}()
	if tid, ok := <-born; ok {
		wired <- ip(fmt.Sprintf("link set far netns %d", tid))
	}
	err := <-done
	return l, err
}

func silentDeath(t *testing.T) {
	for _, args := range []string{"link set lo up", "link add near type veth peer name far", "addr add 192.0.2.1/24 dev near", "link set near address 02:00:00:00:00:0a", "link set near up"} {
		must(t, ip(args))
	}
	l, err := listenAfar()
	must(t, err)
	who, alice := someone(t), someone(t)
	server := NewServer(ServerConfig{Identity: who, Name: func() string { return "bob" }, Handler: newMemory(who), Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	defer func() { cancel(); <-served }()

	c, _ := keep(t, alice)
	c.Set([]Target{{ID: who.ID(), Addresses: []string{l.Addr().String()}}})
	for _, busy := range []bool{false, true} {
		becomes(t, c, who.ID(), presence.Reachable)
		time.Sleep(time.Second) // the keepalive counts from the last packet
		// Nothing sent arrives, and nothing that comes is taken; nor does the far side, asking anew, learn the new address and
		// have its own end of the connection, given up at about the same time, heard here.
		must(t, ip("link set near arp off"))
		must(t, ip("link set near address 02:00:00:00:00:0b"))
		must(t, ip("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev near nud permanent"))
		begin := time.Now()
		if busy {
			client, _ := c.Client(who.ID())
			ctx := within(t, patience)
			go client.call(ctx, 20*time.Second, http.MethodGet, "/kith/v1/hello", nil, nil)
		}
		for state(c, who.ID()).State == presence.Reachable && time.Since(begin) < patience {
			time.Sleep(20 * time.Millisecond)
		}
		took := time.Since(begin)
		if got := state(c, who.ID()); got.State == presence.Reachable || got.Why != "no answer" {
			t.Errorf("busy %v: after %s: %+v", busy, took, got)
		}
		pace.Within(t, "who is gone is known to be", took, 15500*time.Millisecond)
		must(t, ip("neigh del 192.0.2.2 dev near"))
		must(t, ip("link set near address 02:00:00:00:00:0a"))
		must(t, ip("link set near arp on"))
		c.Poke()
	}
}
