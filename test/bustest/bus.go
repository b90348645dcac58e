// Package bustest gives tests a session bus of their own, and on it what a desktop has: a panel that takes icons and
// clicks in their menus. Nothing but tests may import it.
package bustest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/godbus/dbus/v5"
)

// config is a session bus that starts no services of its own: what is on it, the test put there.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=%s/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`

// Bus is a running dbus-daemon.
type Bus struct {
	Address string
	daemon  *exec.Cmd
}

// Start starts a bus that ends with the test. Without dbus-daemon the test is skipped.
func Start(t testing.TB) *Bus {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("dbus-daemon is not installed: scripts/deps.sh does it")
	}
	dir, err := os.MkdirTemp("", "bus") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(dir+"/config", fmt.Appendf(nil, config, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("dbus-daemon", "--config-file="+dir+"/config", "--nofork", "--nopidfile", "--print-address=1")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	b := &Bus{daemon: daemon}
	t.Cleanup(b.Stop)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("dbus-daemon gave no address")
	}
	b.Address = lines.Text()
	return b
}

// At is a bus that somebody else started.
func At(address string) *Bus { return &Bus{Address: address} }

// Stop ends the bus, as a logout does. It may be called twice.
func (b *Bus) Stop() {
	b.daemon.Process.Kill()
	b.daemon.Wait()
}

// Connect makes a connection that is closed with the test.
func (b *Bus) Connect(t testing.TB) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(b.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
