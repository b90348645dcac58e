package tray_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/bustest"
)

const (
	// hourly is an hour's worth of changes on a busy LAN: one every two seconds.
	hourly = 1800
	maxRSS = 25 << 20
)

// TestTrayStaysSmall runs the real program through an hour's worth of changes among 50 peers and 20 requests, with the menu
// read and clicked meanwhile.
func TestTrayStaysSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	bus := bustest.Start(t)
	program := t.TempDir() + "/kith-tray"
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "kith.dev/cmd/kith-tray")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	daemon := &talker{next: make(chan api.Snapshot), now: crowd(0)}
	socket := daemon.serve(t)
	panel := bus.Watch(t, 0)
	var said bytes.Buffer
	cmd := exec.Command(program, "--socket", socket)
	cmd.Env = append(os.Environ(), "DBUS_SESSION_BUS_ADDRESS="+bus.Address, "XDG_CONFIG_HOME="+t.TempDir())
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	m := panel.Menu(t)
	m.Wait(t, soon, "42 more peers", nil)
	early := threads(t, cmd.Process.Pid)
	for i := range hourly {
		daemon.say(crowd(i))
		if i%10 == 0 {
			m.Lines(t)
			m.Event(0, "opened")
		}
		if i%100 == 0 {
			for _, l := range m.Lines(t) { // submenus open and close; some are gone by now
				if l.Opens {
					m.Event(l.Number, "opened")
					m.Event(l.Number, "closed")
				}
			}
		}
		if i%10 == 5 {
			m.Event(0, "closed")
		}
	}
	last := crowd(0)
	last.Status.Name = "finally"
	daemon.say(last)
	m.Wait(t, soon, "finally", nil)
	size, late := rss(t, cmd.Process.Pid), threads(t, cmd.Process.Pid)
	t.Logf("RSS %.1f MiB, %d threads, %d at first", float64(size)/(1<<20), late, early)
	if size > maxRSS {
		t.Errorf("it needs %.1f MiB, %d are allowed", float64(size)/(1<<20), maxRSS>>20)
	}
	if late > early+6 {
		t.Errorf("%d threads, %d at first", late, early)
	}
	time.Sleep(time.Second) // what is under way ends
	before := ticks(t, cmd.Process.Pid)
	time.Sleep(2 * time.Second)
	if used := ticks(t, cmd.Process.Pid) - before; used > 1 {
		t.Errorf("it used %d ms of CPU in 2 s in which nothing happened", used*10)
	}
	cmd.Process.Signal(syscall.SIGQUIT) // the runtime lists all goroutines
	select {
	case <-ended:
	case <-time.After(soon):
		t.Fatal("it does not end")
	}
	n := strings.Count(said.String(), "\ngoroutine ")
	t.Logf("%d goroutines", n)
	if n == 0 || n > 60 {
		t.Errorf("%d goroutines", n)
	}
}

// talker is a daemon that says what it is told to, as fast as it is heard.
type talker struct {
	next chan api.Snapshot
	mu   sync.Mutex
	now  api.Snapshot
}

func (d *talker) say(s api.Snapshot) {
	d.mu.Lock()
	d.now = s
	d.mu.Unlock()
	d.next <- s
}

func (d *talker) serve(t *testing.T) (socket string) {
	t.Helper()
	socket = t.TempDir() + "/s"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: soon}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return socket
}

func (d *talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == api.PathSnapshot {
		d.mu.Lock()
		json.NewEncoder(w).Encode(d.now)
		d.mu.Unlock()
	}
	for r.URL.Query().Get("follow") != "" {
		http.NewResponseController(w).Flush()
		if r.URL.Path != api.PathSnapshot {
			<-r.Context().Done() // no events
			return
		}
		select {
		case s := <-d.next:
			json.NewEncoder(w).Encode(s)
		case <-r.Context().Done():
			return
		}
	}
}

// crowd is what the daemon says after the i-th change: peers come, go and are used, requests come and are answered.
func crowd(i int) (s api.Snapshot) {
	s.Status = backend().State
	for n := range 50 {
		p := laptop(fmt.Sprintf("laptop-%02d", n))
		p.Reachable, p.LastSeen = (n+i)%7 != 0, time.Now()
		if (n+i)%5 == 0 {
			p.Outgoing, p.Pods.Abroad, p.Offered = api.StateConnected, i%9, api.Resources{"cpu": strconv.Itoa(i%8 + 1)}
		}
		s.Peers = append(s.Peers, p)
	}
	for n := range i % 21 {
		id := fmt.Sprintf("r-%d", i/3+n)
		s.Requests = append(s.Requests, api.Request{ID: id, Peer: id, Direction: api.Incoming, Code: "123456", Granted: api.Resources{"cpu": "1"}, State: api.StateRequested})
	}
	s.Status.Counts.Requests = len(s.Requests)
	return s
}

func rss(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(read(t, pid, "status")) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func threads(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// ticks is the CPU time used so far, in hundredths of a second.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	stat := read(t, pid, "stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		t.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		t.Fatal(err)
	}
	return user + system
}

func read(t *testing.T, pid int, file string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
