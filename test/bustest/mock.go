package bustest

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// Mock is a service of the system bus as python-dbusmock imitates it.
type Mock struct {
	Object dbus.BusObject // its main one, on a connection of the test's
	stop   func()
	signal func(os.Signal) error
}

// Mock starts the template of python-dbusmock for a service, whose bus name and main object these are. It ends with the test. Without
// python-dbusmock the test is skipped.
func (b *Bus) Mock(t testing.TB, template, name string, path dbus.ObjectPath) *Mock {
	t.Helper()
	const python = "/usr/bin/python3" // Debian's, which has Debian's modules
	if exec.Command(python, "-c", "import dbusmock").Run() != nil {
		t.Skip("python3-dbusmock is not installed: scripts/deps.sh does it")
	}
	mock := exec.Command(python, "-m", "dbusmock", "--system", "--template", template)
	mock.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+b.Address)
	mock.Stderr = os.Stderr
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	m := &Mock{stop: sync.OnceFunc(func() { mock.Process.Kill(); mock.Wait() }), signal: mock.Process.Signal}
	t.Cleanup(m.stop)
	conn := b.Connect(t)
	m.Object = conn.Object(name, path)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var here bool
		err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&here)
		if here && err == nil {
			return m
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not come to the bus: %v", name, err)
		}
	}
}

// Stop ends the service, as a crash does. It may be called twice.
func (m *Mock) Stop() { m.stop() }

// Pause has the service hang: it answers what it is asked once Resume is called.
func (m *Mock) Pause(t testing.TB) { m.send(t, syscall.SIGSTOP) }

// Resume ends Pause.
func (m *Mock) Resume(t testing.TB) { m.send(t, syscall.SIGCONT) }

func (m *Mock) send(t testing.TB, s os.Signal) {
	t.Helper()
	if err := m.signal(s); err != nil {
		t.Fatal(err)
	}
}

// Call calls a method of the main object.
func (m *Mock) Call(t testing.TB, method string, args ...any) *dbus.Call {
	t.Helper()
	call := m.Object.Call(method, 0, args...)
	if call.Err != nil {
		t.Fatalf("%s: %v", method, call.Err)
	}
	return call
}

// Emit has the main object send a signal.
func (m *Mock) Emit(t testing.TB, of, name, signature string, args ...any) {
	t.Helper()
	list := make([]dbus.Variant, len(args))
	for i, a := range args {
		list[i] = dbus.MakeVariant(a)
	}
	m.Call(t, "org.freedesktop.DBus.Mock.EmitSignal", of, name, signature, list)
}

// Update changes properties of an object of the service, which sends a signal of it.
func (m *Mock) Update(t testing.TB, on dbus.BusObject, of string, properties map[string]any) {
	t.Helper()
	changed := map[string]dbus.Variant{}
	for name, value := range properties {
		changed[name] = dbus.MakeVariant(value)
	}
	if call := on.Call("org.freedesktop.DBus.Mock.UpdateProperties", 0, of, changed); call.Err != nil {
		t.Fatal(call.Err)
	}
}
